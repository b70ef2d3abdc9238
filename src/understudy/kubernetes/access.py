"""Where the API server is and who we are: a pod's service account, or a kubeconfig file.

Tokens in files are rotated by the kubelet: they are read again by age, and after a refusal. A
plug-in that a kubeconfig names (``exec``, ``auth-provider``) is another program with another
life-cycle: it is named and refused.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from understudy.config import Configuration, options
from understudy.errors import ConfigurationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod has its token, namespace and certificate authority."""

DIRECTORY_VARIABLE = "UNDERSTUDY_SERVICE_ACCOUNT_DIR"
"""The environment variable that names another directory with these files."""

TOKEN_AGE_S = 60.0
"""A token is read again after so long, as client-go does; a kubelet rotates at 80 % of its life."""

_WAY_OUT = (
    f"make a token with `kubectl create token NAME --duration=24h` and put it into the user's "
    f"`token` or `tokenFile`, and name the file in {options.K8S_CONFIG_FILE.key}"
)

_OTHER_PROGRAMS = ("exec", "auth-provider")
_BASIC = ("username", "password")

Read = Callable[[], str]


@dataclass(frozen=True)
class Access:
    """How to reach an API server."""

    server: str
    """Its URL, without a slash at the end."""
    namespace: str
    read_token: Read | None = None
    """Reads the token again; raises ``OSError`` or `ConfigurationError`."""
    authority: str | None = None
    """PEM of the certificate authorities; None: those of the system."""
    certificate: str | None = field(default=None, repr=False)
    """PEM of the client certificate and its key."""
    verify: bool = True
    server_name: str | None = None
    """The name that the server's certificate has, where it is not the host of the URL."""

    def tls(self) -> ssl.SSLContext | bool:
        """Return the TLS settings; raises `ConfigurationError` if a certificate is unusable."""
        if not self.server.startswith("https://"):
            return False
        try:
            context = ssl.create_default_context(cadata=self.authority)
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate:
                load_certificate(context, self.certificate)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(
                f"a certificate for the API server {self.server} cannot be used: {error}; correct "
                "it in the kubeconfig file"
            ) from error
        return context


def load_certificate(context: ssl.SSLContext, pem: str) -> None:
    """Load a certificate and its key without a file: a key on disk would outlive a crash."""
    descriptor = os.memfd_create("certificate")
    try:
        with os.fdopen(descriptor, "w", closefd=False) as file:
            file.write(pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def access_of(configuration: Configuration) -> Access:
    """Return the access that a configuration names; raises as `find_access` does."""
    return find_access(
        configuration.find(options.K8S_CONFIG_FILE),
        configuration.find(options.K8S_CONTEXT),
        configuration.find(options.K8S_NAMESPACE),
    )


def find_access(
    path: str | None,
    context: str | None,
    namespace: str | None,
    environment: Mapping[str, str] = os.environ,
) -> Access:
    """Return the access that the options and the environment name.

    Raises `ConfigurationError` if there is none, or it cannot be used.
    """
    named = path or environment.get("KUBECONFIG", "")
    if os.pathsep in named and not Path(named).exists():
        raise ConfigurationError(
            f"$KUBECONFIG names several files ({named}): name one in {options.K8S_CONFIG_FILE.key}"
        )
    if named:
        return _of_kubeconfig(Path(named).expanduser(), context, namespace)
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    service_account = Path(environment.get(DIRECTORY_VARIABLE) or SERVICE_ACCOUNT)
    if host and (service_account / "token").exists():
        port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        return _in_cluster(host, port, namespace, service_account)
    usual = Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"
    if usual.exists():
        return _of_kubeconfig(usual, context, namespace)
    raise ConfigurationError(
        "nothing says where the API server of Kubernetes is: this is "
        f"no pod with a service account, $KUBECONFIG is not set, and there is no {usual}; set "
        f"{options.K8S_CONFIG_FILE.key}"
    )


def _in_cluster(host: str, port: str, namespace: str | None, directory: Path) -> Access:
    host = f"[{host}]" if ":" in host else host
    token, authority = directory / "token", directory / "ca.crt"
    found = namespace or _text(directory / "namespace").strip() or "default"
    return Access(
        f"https://{host}:{port}", found, lambda: _token(token), authority=_text(authority)
    )


def _of_kubeconfig(path: Path, context: str | None, namespace: str | None) -> Access:
    config = _Kubeconfig(path)
    chosen = config.entry("contexts", context or config.current, "context")
    cluster = config.entry("clusters", str(chosen.get("cluster", "")), "cluster")
    name = str(chosen.get("user", ""))
    user = config.entry("users", name, "user") if name else {}
    config.refuse(cluster, ("proxy-url",), "a proxy is not supported: name the server itself")
    config.refuse(
        user, _OTHER_PROGRAMS, f"credentials of another program are not taken: {_WAY_OUT}"
    )
    config.refuse(user, _BASIC, f"no API server takes passwords any more: {_WAY_OUT}")
    certificate, key = config.pem(user, "client-certificate"), config.pem(user, "client-key")
    if bool(certificate) != bool(key):
        raise ConfigurationError(
            f"{path}: user {name!r} must have both client-certificate and client-key"
        )
    server = str(cluster.get("server", "")).rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise ConfigurationError(f"{path}: the cluster of the context has no server URL")
    return Access(
        server,
        namespace or str(chosen.get("namespace") or "default"),
        config.token(user, name),
        authority=config.pem(cluster, "certificate-authority"),
        certificate=f"{certificate}\n{key}" if certificate else None,
        verify=not cluster.get("insecure-skip-tls-verify"),
        server_name=cluster.get("tls-server-name"),
    )


class _Kubeconfig:
    """A kubeconfig file; its paths are relative to its directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = self._loaded()
        self.current = str(self._data.get("current-context") or "")

    def _loaded(self) -> dict[str, Any]:
        try:
            data = yaml.safe_load(_text(self._path))
        except yaml.YAMLError as error:
            raise ConfigurationError(f"{self._path} is not YAML: {error}") from error
        if not isinstance(data, dict):
            raise ConfigurationError(f"{self._path} is no kubeconfig file: it has no mapping")
        return data

    def entry(self, kind: str, name: str, part: str) -> dict[str, Any]:
        """Return a named entry; raises `ConfigurationError` with the names that there are."""
        entries = [one for one in self._data.get(kind) or () if isinstance(one, dict)]
        for one in entries:
            if one.get("name") == name and isinstance(one.get(part), dict):
                found: dict[str, Any] = one[part]
                return found
        known = ", ".join(sorted(str(one.get("name")) for one in entries)) or "none"
        raise ConfigurationError(
            f"{self._path}: {kind} has no {name!r}; known there: {known}"
            + (f"; set {options.K8S_CONTEXT.key}" if kind == "contexts" else "")
        )

    def refuse(self, entry: dict[str, Any], fields: tuple[str, ...], why: str) -> None:
        """Raise `ConfigurationError` if an entry has one of the fields."""
        for one in fields:
            if entry.get(one):
                shown = entry[one].get("command", "") if one == "exec" else ""
                raise ConfigurationError(
                    f"{self._path} has {one}{f' ({shown})' if shown else ''}: {why}"
                )

    def pem(self, entry: dict[str, Any], name: str) -> str | None:
        """Return the text of a certificate or key, given as a path or in base64."""
        if given := entry.get(f"{name}-data"):
            try:
                return base64.b64decode(given, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                raise ConfigurationError(
                    f"{self._path}: {name}-data is not base64 of PEM: {error}"
                ) from error
        return _text(self._path.parent / entry[name]) if entry.get(name) else None

    def token(self, user: dict[str, Any], name: str) -> Read | None:
        """Return the function that reads a user's token; None without one."""
        if path := user.get("tokenFile"):
            return lambda: _token(self._path.parent / path)
        if not user.get("token"):
            return None
        again = self._path
        # The file is read again: whoever renews the token writes it there.
        return lambda: str(_Kubeconfig(again).entry("users", name, "user").get("token", ""))


def _token(path: Path) -> str:
    text = path.read_text().strip()
    if not text.isascii() or not text.isprintable():
        raise ConfigurationError(f"{path} has no token")
    return text


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
