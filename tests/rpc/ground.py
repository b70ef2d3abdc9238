"""What links are tried with: two ends of one cluster, and somebody between them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from understudy.errors import UnderstudyError
from understudy.model import Incarnation
from understudy.process.channels import link_codec
from understudy.rpc.addresses import address_at, bind
from understudy.rpc.certificates import PemFiles
from understudy.rpc.gateway import Envelope, Link
from understudy.rpc.messages import Heartbeat, LinkMessage
from understudy.rpc.tcp import LinkSecurity, TcpNetwork

SECRET = b"a secret of this test, and of no other"
CLUSTER = "tried"
LEADER, TASKMANAGER = Incarnation(secrets.token_hex(16)), Incarnation("b" * 32)
PATIENCE_S = 30.0


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run a story to its end, within the time that it may take."""
    asyncio.run(asyncio.wait_for(story, PATIENCE_S))


@dataclass
class Heard:
    """What a leader's end has heard, and how many links it was given."""

    links: list[Link[LinkMessage]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    ended: int = 0

    async def serve(self, link: Link[LinkMessage]) -> None:
        """Answer each heartbeat."""
        self.links.append(link)
        while (envelope := await link.receive()) is not None:
            number = number_of(envelope)
            self.numbers.append(number)
            link.send(Heartbeat(number=number), term=7)
        self.ended += 1


def number_of(envelope: Envelope[LinkMessage] | None) -> int:
    """Return the number of a heartbeat."""
    assert envelope is not None
    assert isinstance(envelope.message, Heartbeat)
    return envelope.message.number


def security(secret: bytes = SECRET, cluster_id: str = CLUSTER, **tls: Any) -> LinkSecurity:
    """Return what proves that one belongs to the cluster."""
    return LinkSecurity(secret, cluster_id, **tls)


@contextlib.asynccontextmanager
async def leader(
    given: LinkSecurity | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[str, Heard]]:
    """Listen as a leader does; gives the address, and what was heard."""
    listening = bind(host, (0,), ("jobmanager.bind-host", "high-availability.jobmanager.port"))
    address = address_at(host, listening.getsockname()[1])
    heard = Heard()
    network: TcpNetwork[LinkMessage] = TcpNetwork(
        link_codec, given or security(), listening, address
    )
    async with network.listen(LEADER, heard.serve):
        yield network.address_of(LEADER), heard


async def connected(address: str, given: LinkSecurity | None = None) -> Link[LinkMessage]:
    """Connect as a TaskManager does."""
    network: TcpNetwork[LinkMessage] = TcpNetwork(link_codec, given or security())
    return await network.connect(address, TASKMANAGER)


async def refusal(address: str, given: LinkSecurity | None = None) -> str:
    """Return why a connection fails; empty if it does not."""
    try:
        link = await connected(address, given)
    except UnderstudyError as error:
        return str(error)
    link.close()
    return ""


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds; the story's own patience bounds it."""
    while not holds():
        await asyncio.sleep(0.005)


Pump = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


async def as_it_is(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hand on what comes."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


@contextlib.asynccontextmanager
async def between(address: str, up: Pump = as_it_is, down: Pump = as_it_is) -> AsyncIterator[str]:
    """Stand between the two ends; gives the address where the leader seems to be."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    tasks: list[asyncio.Task[None]] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond_reader, beyond_writer = await asyncio.open_connection(host, int(port))
        tasks.append(asyncio.create_task(up(reader, beyond_writer)))
        tasks.append(asyncio.create_task(down(beyond_reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield address_at(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- certificates ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Authority:
    """A certificate authority of a test, and where its files are."""

    place: Path
    own: trustme.CA = field(default_factory=trustme.CA)

    def files(self, name: str = "node", *hosts: str, **further: Any) -> PemFiles:
        """Return a keystore and a truststore of this authority."""
        trust, keys = self.place / "trust.pem", self.place / f"{name}.pem"
        self.own.cert_pem.write_to_path(str(trust))
        issued = self.own.issue_cert(*(hosts or ("127.0.0.1",)), **further)
        issued.private_key_and_cert_chain_pem.write_to_path(str(keys))
        return PemFiles("security.ssl.internal", str(trust), str(keys))


def in_tls(files: PemFiles, fingerprint: str | None = None) -> LinkSecurity:
    """Return what proves that one belongs to the cluster, with TLS around it."""
    return security(
        server=files.server(clients_need_certificates=True),
        client=files.client(verify_hostname=False, with_certificate=True),
        fingerprint=fingerprint,
    )
