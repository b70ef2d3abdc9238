"""Who is who on a control plane of tests: its certificate authority, and whom it vouches for."""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
import yaml

ADMINS = "system:masters"
NODES = "system:nodes"


@dataclass(frozen=True)
class User:
    """A name and a group that the API server knows from a certificate of its authority."""

    name: str
    group: str | None = None


ADMIN = User("admin", ADMINS)


def node_user(node: str) -> User:
    """Return who a node's kubelet is: the API server lets it touch what is bound to that node."""
    return User(f"system:node:{node}", NODES)


class Keys:
    """The files with all keys of a control plane, below one directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.authority = trustme.CA(organization_name="understudy tests")
        self.ca = self._write("ca.crt", self.authority.cert_pem)
        self._users: dict[User, tuple[Path, Path]] = {}
        self._issue("server", self.authority.issue_cert("127.0.0.1", "localhost", "kubernetes"))
        # Its certificate plays no part: a service account's token is signed with the bare key.
        self._issue("service-accounts", self.authority.issue_cert("service-accounts"))

    def __getitem__(self, file: str) -> Path:
        """Return the path of a file."""
        return self.directory / file

    def of(self, user: User) -> tuple[Path, Path]:
        """Return the certificate and the key of a user, issued on first demand."""
        if user not in self._users:
            file = user.name.replace(":", "-")
            # A certificate without any host name is refused: trustme says that the list matters.
            leaf = self.authority.issue_cert(
                file, common_name=user.name, organization_name=user.group
            )
            self._users[user] = self._issue(file, leaf)
        return self._users[user]

    def serving(self, name: str, *addresses: str) -> tuple[Path, Path]:
        """Return the certificate and the key of another server on these addresses."""
        return self._issue(name, self.authority.issue_cert(*addresses))

    def client_context(self, user: User | None = None) -> ssl.SSLContext:
        """Return how a client checks the servers, and says who it is."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if user is not None:
            context.load_cert_chain(*self.of(user))
        return context

    def kubeconfig(self, url: str, user: User | str) -> dict[str, Any]:
        """Return a kubeconfig with everything in it, for a user or for the bearer of a token."""
        if isinstance(user, str):
            credentials = {"token": user}
        else:
            certificate, key = self.of(user)
            credentials = {
                "client-certificate-data": _base64(certificate),
                "client-key-data": _base64(key),
            }
        cluster = {"server": url, "certificate-authority-data": _base64(self.ca)}
        context = {"cluster": "tests", "user": "tests"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": credentials}],
            "contexts": [{"name": "tests", "context": context}],
            "current-context": "tests",
        }

    def write_kubeconfig(self, path: Path, url: str, user: User | str) -> Path:
        """Write a kubeconfig that only this user of the machine may read; return its path."""
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(self.kubeconfig(url, user)))
        return path

    def _issue(self, name: str, leaf: trustme.LeafCert) -> tuple[Path, Path]:
        certificate = self._write(f"{name}.crt", *leaf.cert_chain_pems)
        return certificate, self._write(f"{name}.key", leaf.private_key_pem)

    def _write(self, file: str, *parts: trustme.Blob) -> Path:
        path = self.directory / file
        path.touch(mode=0o600)
        path.write_bytes(b"".join(part.bytes() for part in parts))
        return path


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
