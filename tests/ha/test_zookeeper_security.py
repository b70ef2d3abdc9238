"""TLS and SASL, with a server that demands them."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from kazoo.exceptions import NoAuthError
from puresasl import SASLError
from puresasl.client import SASLClient

from tests.ha.test_zookeeper_session import give_up
from tests.support.zookeeper import LOOPBACK, Server, free_port
from tests.support.zookeeper_clients import PATIENCE_S, Cluster, hands, never_blocked, until
from understudy.errors import ConfigurationError
from understudy.ha.register import Release

SESSION_S = 10.0


@dataclass
class Secure:
    """A server that speaks TLS, and what clients need."""

    server: Server
    cluster: Cluster
    """Its clients' certificate and key are in one file."""
    ca: Path
    client: Path


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    ca, store, client = (directory / name for name in ("ca.pem", "store.pem", "client.pem"))
    authority.cert_pem.write_to_path(str(ca))
    for leaf, path in (
        (authority.issue_cert(LOOPBACK), store),
        (authority.issue_cert("me"), client),
    ):
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        pkcs8 = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.write_bytes(pkcs8 + b"".join(one.bytes() for one in leaf.cert_chain_pems))
    port = free_port()
    lines = (
        f"secureClientPort={port}\nsecureClientPortAddress={LOOPBACK}\n"
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"ssl.keyStore.location={store}\nssl.keyStore.type=PEM\n"
        f"ssl.trustStore.location={ca}\nssl.trustStore.type=PEM\nssl.clientAuth=need\n"
    )
    with Server(directory / "server", configuration=lines) as server:
        cluster = Cluster(
            f"{LOOPBACK}:{port}",
            ZK_SESSION_TIMEOUT=f"{SESSION_S} s",
            ZK_CONNECTION_TIMEOUT="15 s",
            ZK_SSL="true",
            ZK_SSL_CA=str(ca),
            ZK_SSL_CERTIFICATE=str(client),
        )
        yield Secure(server, cluster, ca, client)


def test_what_is_written_by_tls_is_read_by_it_and_a_session_is_given_up(secure: Secure) -> None:
    told: list[Release] = []

    async def scenario() -> None:
        register = secure.cluster.open()
        register.on_release(told.append)
        version = await register.swap("leader", b"one", None)
        found = await secure.cluster.open().load("leader")
        latch = register.latch("me", b"")
        await latch.ahead()
        lost = asyncio.ensure_future(latch.lost())
        await until(lambda: bool(told))
        await asyncio.to_thread(give_up, told[0])
        async with asyncio.timeout(10):
            await lost

        assert found is not None
        assert (b"one", version) == (found.value, found.version)

    asyncio.run(scenario())


def test_a_key_may_be_in_a_file_of_its_own(secure: Secure) -> None:
    register = secure.cluster.open(ZK_SSL_KEY=str(secure.client))

    assert asyncio.run(register.load("nothing")) is None


def test_only_who_shows_the_certificate_reads_what_its_creator_wrote(secure: Secure) -> None:
    register = secure.cluster.open(ZK_ACL="creator")
    asyncio.run(register.swap("mine", b"one", None))

    with hands(secure.server) as stranger, pytest.raises(NoAuthError):
        stranger.get_children(secure.cluster.entry("mine"))


def test_a_silent_server_is_noticed_through_tls(secure: Secure) -> None:
    async def scenario() -> None:
        register = secure.cluster.open(ZK_SESSION_TIMEOUT="4 s")
        await register.load("leader")
        secure.server.freeze()
        try:
            async with never_blocked():
                with pytest.raises(OSError):  # noqa: PT011 -- broken, or nobody there
                    await register.swap("silent", b"one", None)
                await until(lambda: not register.status()["connected"])
        finally:
            secure.server.thaw()
        await register.load("leader")
        await until(lambda: bool(register.status()["connected"]))

    asyncio.run(scenario())


def test_a_server_of_another_authority_is_not_trusted(secure: Secure, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))

    async def scenario() -> None:
        register = secure.cluster.open(ZK_SSL_CA=str(other), ZK_CONNECTION_TIMEOUT="1 s")
        async with never_blocked():
            with pytest.raises(OSError, match=LOOPBACK):
                await register.load("leader")
        register.release()

    asyncio.run(scenario())


# --- SASL -----------------------------------------------------------------------------------------


def by_sasl(quorum: str) -> Cluster:
    """Return a cluster whose clients say by DIGEST-MD5 who they are."""
    return Cluster(
        quorum,
        ZK_ACL="creator",
        ZK_CONNECTION_TIMEOUT="3 s",
        ZK_SASL_MECHANISM="DIGEST-MD5",
        ZK_SASL_USERNAME="understudy",
        ZK_SASL_PASSWORD="secret",
    )


@pytest.fixture
def sasl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Return a cluster whose server knows that user."""
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(
        "Server { org.apache.zookeeper.server.auth.DigestLoginModule required "
        'user_understudy="secret"; };\n'
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={jaas}")
    lines = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
    with Server(tmp_path / "server", configuration=lines) as server:
        yield by_sasl(server.connect_string)


def test_who_is_known_by_sasl_may_and_who_is_not_is_told(sasl: Cluster) -> None:
    async def scenario() -> None:
        version = await sasl.open().swap("leader", b"one", None)
        again = await sasl.open().load("leader")
        anonymous = sasl.open(ZK_SASL_MECHANISM="none", ZK_ACL="open")
        with pytest.raises(PermissionError, match=r"client\.authorization"):
            await anonymous.load("leader")
        wrong = sasl.open(ZK_SASL_PASSWORD="guessed")
        with pytest.raises(ConfigurationError, match=r"client\.sasl"):
            await wrong.load("leader")

        assert again is not None
        assert version == again.version

    asyncio.run(scenario())


def test_a_refusal_is_seen_by_who_asks_after_it(sasl: Cluster) -> None:
    """As where the loop was busy meanwhile: kazoo's thread has ended, and nobody connects again."""
    wrong = sasl.open(ZK_SASL_PASSWORD="guessed", ZK_CONNECTION_TIMEOUT="1 s")
    client = wrong._session._start()
    client._connection._connection_routine.join(PATIENCE_S)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"client\.sasl"):
            asyncio.run(wrong.load("leader"))


def test_what_a_mechanism_needs_and_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ConfigurationError, match=r"mechanism is GSSAPI, .* pip install"):
        Cluster("nowhere:2181", ZK_SASL_MECHANISM="GSSAPI").open()


def test_a_library_that_cannot_say_who_we_are_just_now_is_asked_again(
    sasl: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when no KDC answers: kazoo's thread would end by it, for good."""
    process = SASLClient.process
    failed: list[Any] = []

    def fails_at_first(client: Any, challenge: Any = None) -> Any:
        if not failed:
            failed.append(client)
            raise SASLError("nobody answers")
        return process(client, challenge)

    monkeypatch.setattr(SASLClient, "process", fails_at_first)

    assert asyncio.run(sasl.open().load("nothing")) is None
    assert failed


def test_a_server_that_dies_in_the_midst_of_sasl_has_refused_nobody() -> None:
    """It accepts the session, and is gone before it has judged who we are."""
    granted = bytes.fromhex("0000000000002710000000000000000100000010") + bytes(17)
    with socket.create_server((LOOPBACK, 0)) as dying:
        dying.settimeout(PATIENCE_S)
        quorum = f"{LOOPBACK}:{dying.getsockname()[1]}"

        def die() -> None:
            line, _ = dying.accept()
            with line:
                line.recv(1000)
                line.sendall(len(granted).to_bytes(4, "big") + granted)
                line.recv(1000)

        async def scenario() -> None:
            register = by_sasl(quorum).open()
            asking = asyncio.ensure_future(register.load("leader"))
            await asyncio.to_thread(die)
            await asyncio.to_thread(die)
            with pytest.raises(OSError):  # noqa: PT011 -- and no ConfigurationError
                await asking
            register.release()

        asyncio.run(scenario())
