"""Crowds at the address of links, over TCP and over Unix sockets, under a small limit of files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from tests.rpc import ground
from tests.rpc.ground import Heard, number_of, run, until
from understudy.model import Incarnation
from understudy.process.channels import link_codec
from understudy.rpc import accepting, admission, complaints, wire
from understudy.rpc.accepting import shares
from understudy.rpc.complaints import Complaints
from understudy.rpc.gateway import Link
from understudy.rpc.messages import Heartbeat, LinkMessage

FEW = 128
"""What this process may open in the tests of scarcity."""


@contextlib.asynccontextmanager
async def unix_leader() -> AsyncIterator[tuple[str, Heard]]:
    """Listen as a leader of this host does."""
    network: wire.UnixNetwork[LinkMessage] = wire.UnixNetwork(link_codec)
    me = Incarnation(secrets.token_hex(16))
    heard = Heard()
    async with network.listen(me, heard.serve):
        yield network.address_of(me), heard


async def connected(address: str) -> Link[LinkMessage]:
    if address.startswith("tcp://"):
        return await ground.connected(address)
    network: wire.UnixNetwork[LinkMessage] = wire.UnixNetwork(link_codec)
    return await network.connect(address, ground.TASKMANAGER)


def bare(address: str) -> socket.socket:
    """Connect and say nothing."""
    if address.startswith("unix:@"):
        end = socket.socket(socket.AF_UNIX)
        end.connect("\0" + address.removeprefix("unix:@"))
        return end
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)))


LEADERS = {"tcp": ground.leader, "unix": unix_leader}


@pytest.mark.parametrize("kind", LEADERS)
def test_a_crowd_that_says_nothing_gives_way_to_who_says_something(kind: str) -> None:
    async def story() -> None:
        async with LEADERS[kind]() as (address, heard):
            crowd = []
            for _ in range(shares().unproven * 3):
                crowd.append(bare(address))
                await asyncio.sleep(0)
            link = await connected(address)
            link.send(Heartbeat(number=1))

            assert 1 == number_of(await link.receive())
            await until(lambda: ended(crowd[0]))
            assert [1] == heard.numbers
            for end in crowd:
                end.close()
            link.close()

    run(story())


def ended(end: socket.socket) -> bool:
    """Say whether the other side has closed a connection."""
    end.setblocking(False)
    try:
        return end.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("kind", LEADERS)
def test_who_says_nothing_is_sent_away_and_who_has_said_something_stays(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "HANDSHAKE_S", 1.0)
    monkeypatch.setattr(admission, "FIRST_MESSAGE_S", 1.0)

    async def story() -> None:
        async with LEADERS[kind]() as (address, _):
            said = await connected(address)
            said.send(Heartbeat(number=1))
            assert 1 == number_of(await said.receive())
            silent = bare(address)
            proven = await connected(address)

            assert await proven.receive() is None
            await until(lambda: ended(silent))
            said.send(Heartbeat(number=2))
            assert 2 == number_of(await said.receive())
            silent.close()

    run(story())


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Let this process open few files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_descriptors")
@pytest.mark.parametrize("kind", LEADERS)
def test_the_last_descriptors_are_kept_and_the_log_stays_short(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Both ends are in this process here, which runs out of files on its own side."""
    caplog.set_level(logging.WARNING)

    async def story() -> None:
        async with LEADERS[kind]() as (address, heard):
            held: list[socket.socket] = []
            with contextlib.suppress(OSError):
                while True:
                    held.append(bare(address))
                    await asyncio.sleep(0)
            for end in held[: shares().reserve]:
                end.close()
            link = await connected(address)
            link.send(Heartbeat(number=1))

            assert 1 == number_of(await link.receive())
            assert [1] == heard.numbers
            for end in held:
                end.close()
            link.close()

    run(story())

    assert len(caplog.records) < 10, caplog.text


@pytest.mark.usefixtures("few_descriptors")
def test_links_are_so_many_as_leave_the_process_its_own_files() -> None:
    async def story() -> None:
        async with unix_leader() as (address, _):
            links = []
            with contextlib.suppress(Exception):
                while True:
                    link = await connected(address)
                    links.append(link)
                    link.send(Heartbeat(number=1))
                    if await link.receive() is None:
                        break
            # Both ends are in this process: each link costs two.
            assert len(links) * 2 <= FEW - shares().reserve + 2
            for link in links:
                link.close()

    run(story())


@pytest.mark.parametrize("limit", [64, 256, 1024, 20_000, 1 << 20])
def test_shares_leave_a_reserve(limit: int) -> None:
    shared = shares(limit)

    assert shared.rest + shared.unproven + shared.links + shared.reserve <= limit
    assert shared.reserve >= min(accepting.RESERVE_MAX, limit // 4)


def test_a_peer_that_does_not_read_loses_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "UNREAD_BYTES_MAX", 1 << 20)
    piece = Heartbeat(number=1)

    async def story() -> None:
        for kind in LEADERS.values():
            async with kind() as (address, heard):
                link = await connected(address)
                writer = cast("Any", link)._writer
                link.send(piece)
                await until(lambda: len(heard.links) == 1)
                theirs = heard.links[0]
                writer.transport.pause_reading()
                for _ in range(400_000):
                    theirs.send(piece)
                await until(lambda: heard.ended == 1)
                link.close()

    run(story())


# --- the log --------------------------------------------------------------------------------------


def test_complaints_are_bounded_whomever_they_are_about(caplog: pytest.LogCaptureFixture) -> None:
    told = Complaints()
    for number in range(10_000):
        told.log(f"10.0.{number // 250}.{number % 250}", f"nonsense {number}")

    assert complaints.LINES_MAX == len(caplog.records)
    assert complaints.LEFT_OUT in caplog.records[-1].getMessage()


def test_the_same_complaint_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    told = Complaints()
    for _ in range(10):
        told.log("10.0.0.1", "nonsense")

    assert ["10.0.0.1: nonsense"] == [one.getMessage() for one in caplog.records]
