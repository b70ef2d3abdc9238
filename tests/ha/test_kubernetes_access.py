"""Where the API server is: a pod's service account, and kubeconfig files of each kind."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.kubernetes.fake import kubeconfig
from understudy.errors import ConfigurationError
from understudy.kubernetes.access import DIRECTORY_VARIABLE, Access, find_access

SERVER = "https://127.0.0.1:6443"


def write(directory: Path, *, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
    """Write a kubeconfig with one context."""
    config = kubeconfig(SERVER)
    config["clusters"][0]["cluster"] |= cluster
    if user is not None:
        config["users"][0]["user"] = user
    path = directory / "config"
    path.write_text(json.dumps(config))
    return path


def found(path: Path, **options: str) -> Access:
    return find_access(str(path), options.get("context"), options.get("namespace"), {})


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """What the kubelet mounts into a pod."""
    directory = tmp_path / "account"
    directory.mkdir()
    (directory / "token").write_text("first\n")
    (directory / "namespace").write_text("flights")
    (directory / "ca.crt").write_text("PEM")
    return directory


def test_a_pod_uses_its_service_account(account: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    access = find_access(None, None, None, environment | {DIRECTORY_VARIABLE: str(account)})

    assert ("https://10.0.0.1:443", "flights", "PEM") == (
        access.server,
        access.namespace,
        access.authority,
    )
    assert access.read_token is not None
    assert "first" == access.read_token()
    (account / "token").write_text("second")
    assert "second" == access.read_token()


def test_a_server_with_an_address_of_ipv6(account: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}

    access = find_access(None, None, "orders", environment | {DIRECTORY_VARIABLE: str(account)})

    assert ("https://[fd00::1]:6443", "orders") == (access.server, access.namespace)


def test_the_environment_names_a_file_before_the_service_account(
    account: Path, tmp_path: Path
) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": str(write(tmp_path))}

    assert (
        SERVER
        == find_access(None, None, None, environment | {DIRECTORY_VARIABLE: str(account)}).server
    )


def test_the_file_in_the_home_directory_is_the_last(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube")

    access = find_access(None, None, None, {"HOME": str(tmp_path)})

    assert (SERVER, "flights") == (access.server, access.namespace)


def test_without_any_of_them_the_option_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"set kubernetes\.config\.file"):
        find_access(None, None, None, {"HOME": str(tmp_path)})


def test_several_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"several files .*kubernetes\.config\.file"):
        find_access(None, None, None, {"KUBECONFIG": "/a/config:/b/config"})


def test_a_token_is_read_again_from_the_file_that_has_it(tmp_path: Path) -> None:
    access = found(write(tmp_path, user={"token": "first"}))
    write(tmp_path, user={"token": "second"})

    assert access.read_token is not None
    assert "second" == access.read_token()


def test_a_token_file_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine\n")

    access = found(write(tmp_path, user={"tokenFile": "secret"}))

    assert access.read_token is not None
    assert "mine" == access.read_token()


@pytest.mark.parametrize("inline", [True, False])
def test_a_client_certificate_is_used(tmp_path: Path, inline: bool) -> None:
    authority = trustme.CA()
    mine = authority.issue_cert("somebody")
    texts = {
        "client-certificate": mine.cert_chain_pems[0].bytes().decode(),
        "client-key": mine.private_key_pem.bytes().decode(),
    }
    if inline:
        user = {f"{name}-data": packed(text) for name, text in texts.items()}
    else:
        user = {name: f"{name}.pem" for name in texts}
        for name, text in texts.items():
            (tmp_path / f"{name}.pem").write_text(text)
    ca = packed(authority.cert_pem.bytes().decode())

    access = found(write(tmp_path, user=user, **{"certificate-authority-data": ca}))

    assert access.tls()
    assert "PRIVATE KEY" in (access.certificate or "")
    assert "PRIVATE KEY" not in repr(access)


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({"exec": {"command": "cloud-login"}}, {}, r"has exec \(cloud-login\).*create token"),
        ({"auth-provider": {"name": "gcp"}}, {}, "has auth-provider.*create token"),
        ({"username": "u", "password": "p"}, {}, "has username.*create token"),
        ({}, {"proxy-url": "http://proxy"}, "has proxy-url"),
        ({"client-certificate-data": packed("x")}, {}, "both client-certificate and client-key"),
        ({}, {"certificate-authority": "missing.crt"}, r"missing\.crt cannot be read"),
        ({}, {"certificate-authority-data": "%"}, "is not base64"),
        ({}, {"server": "ftp://x"}, "no server URL"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        found(write(tmp_path, user=user, **cluster))


def test_an_unknown_context_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no 'prod'; known there: test; set kubernetes"):
        found(write(tmp_path), context="prod")


@pytest.mark.parametrize("text", ["", "[", "- a"])
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(ConfigurationError, match="config"):
        found(path)


def test_an_unusable_certificate_is_named() -> None:
    access = Access(SERVER, "flights", authority="no PEM")

    with pytest.raises(ConfigurationError, match="certificate for the API server"):
        access.tls()
