"""Links over TCP, with somebody in the way who tries everything but the secret."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable

import pytest

from tests.rpc.ground import (
    LEADER,
    PATIENCE_S,
    SECRET,
    TASKMANAGER,
    between,
    connected,
    leader,
    number_of,
    refusal,
    run,
    security,
    until,
)
from understudy.errors import UnreachableError
from understudy.model import ApplicationId
from understudy.process.channels import link_codec
from understudy.rpc import accepting, admission, handshake
from understudy.rpc.messages import CannotStart, Heartbeat, LinkMessage
from understudy.rpc.tcp import MixedNetwork, TcpNetwork
from understudy.rpc.wire import UnixNetwork

HANDSHAKE_BYTES = handshake.HELLO_BYTES + handshake.PROOF_BYTES
"""Both sides say as much before the first frame."""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_messages_go_both_ways_in_order_and_name_their_sender(host: str) -> None:
    async def story() -> None:
        async with leader(host=host) as (address, heard):
            link = await connected(address)
            for number in range(100):
                link.send(Heartbeat(number=number), term=3)
            answers = [await link.receive() for _ in range(100)]

            assert list(range(100)) == heard.numbers == [number_of(one) for one in answers]
            assert {(LEADER, 7)} == {(one.sender, one.term) for one in answers if one}
            link.close()
            await until(lambda: heard.ended == 1)

    run(story())


def test_frames_of_megabytes_go_through() -> None:
    async def story() -> None:
        async with leader() as (address, heard):
            link = await connected(address)
            await until(lambda: bool(heard.links))
            text = "y" * (8 << 20)
            heard.links[0].send(CannotStart(application_id=ApplicationId("x"), reason=text))
            envelope = await link.receive()

            assert envelope is not None
            assert CannotStart(application_id=ApplicationId("x"), reason=text) == envelope.message
            link.close()

    run(story())


def test_the_end_of_the_block_ends_its_links() -> None:
    async def story() -> None:
        async with leader() as (address, heard):
            link = await connected(address)
            await until(lambda: bool(heard.links))

        assert await link.receive() is None
        assert "Connect call failed" in await refusal(address)

    run(story())


# --- who does not know the secret -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("secret", "cluster_id"), [(b"another secret, of sixteen", "tried"), (SECRET, "another")]
)
def test_who_has_another_secret_or_cluster_is_told_and_named_in_both_logs(
    secret: bytes, cluster_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with leader() as (address, heard):
            for _ in range(3):
                said = await refusal(address, security(secret, cluster_id))

                assert f"{address}: it refuses us: security.secret-file must hold the same" in said
            assert [] == heard.links
            assert "" == await refusal(address)

    with caplog.at_level(logging.WARNING):
        run(story())

    told = [record.getMessage() for record in caplog.records]
    theirs = [one for one in told if one.startswith("127.0.0.1: refused, it does not know the")]
    assert 1 == len(theirs)
    assert "security.secret-file" in theirs[0]
    assert 3 == len([one for one in told if ": it refuses us: security.secret-file" in one])
    assert SECRET.decode() not in str(told)


def test_a_leader_that_does_not_know_the_secret_is_not_believed() -> None:
    """It can say the right things up to the proof: there it has nothing but what it was told."""

    async def imposter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await reader.readexactly(handshake.HELLO_BYTES)
        writer.write(hello)
        writer.write(await reader.readexactly(handshake.PROOF_BYTES))
        await reader.read()
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(imposter, "127.0.0.1", 0)
        async with server:
            said = await refusal(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")

        assert "it does not know the secret: security.secret-file" in said

    run(story())


def test_a_client_that_repeats_what_another_one_said_is_refused() -> None:
    recorded = bytearray()

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            recorded.extend(data)
            writer.write(data)

    async def story() -> None:
        async with leader() as (address, heard):
            async with between(address, up=record) as around:
                link = await connected(around)
                link.send(Heartbeat(number=1))
                assert 1 == number_of(await link.receive())
            port = int(address.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(recorded)
            answer = await reader.read()

            assert handshake.REFUSED == answer[handshake.HELLO_BYTES :]
            assert [1] == heard.numbers
            writer.close()

    run(story())


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 3,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512),
        b"\xff" * (1 << 20),
        handshake.MAGIC + b"\xff" * (1 << 20),
        b"",
    ],
    ids=["a browser", "TLS", "a megabyte", "a megabyte after the right word", "nothing"],
)
def test_whoever_speaks_otherwise_is_sent_away_and_nobody_else_notices(said: bytes) -> None:
    async def story() -> None:
        async with leader() as (address, heard):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", int(address.rpartition(":")[2])
            )
            writer.write(said)
            if not said:
                writer.write_eof()
            link = await connected(address)
            link.send(Heartbeat(number=1))
            assert 1 == number_of(await link.receive())
            try:
                answer = await reader.read()
            except OSError:
                answer = b""

            assert len(answer) <= handshake.HELLO_BYTES + handshake.PROOF_BYTES
            assert 1 == len(heard.links)
            writer.close()

    run(story())


def test_who_says_nothing_or_little_is_sent_away_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "HANDSHAKE_S", 2.0)

    async def story() -> None:
        async with leader() as (address, heard):
            port = int(address.rpartition(":")[2])
            silent, one = await asyncio.open_connection("127.0.0.1", port)
            slow, other = await asyncio.open_connection("127.0.0.1", port)
            began = time.monotonic()

            async def drip() -> None:
                for letter in handshake.hello(bytes(32)):
                    other.write(bytes([letter]))
                    await asyncio.sleep(0.5)

            dripping = asyncio.create_task(drip())
            await asyncio.gather(silent.read(), slow.read(), return_exceptions=True)
            took = time.monotonic() - began

            assert admission.HANDSHAKE_S * 0.9 < took < admission.HANDSHAKE_S * 3
            assert [] == heard.links
            dripping.cancel()
            one.close()
            other.close()

    run(story())


def test_a_crowd_that_says_nothing_keeps_nobody_out() -> None:
    """More connections than may wait: the oldest go, and who knows the secret gets through."""

    async def story() -> None:
        async with leader() as (address, heard):
            port = int(address.rpartition(":")[2])
            crowd = [
                await asyncio.open_connection("127.0.0.1", port)
                for _ in range(accepting.UNPROVEN_MAX * 3)
            ]
            began = time.monotonic()
            link = await connected(address)
            link.send(Heartbeat(number=1))

            assert 1 == number_of(await link.receive())
            assert time.monotonic() - began < admission.HANDSHAKE_S
            first = await asyncio.gather(crowd[0][0].read(), return_exceptions=True)
            assert first[0] == b"" or isinstance(first[0], OSError)
            assert time.monotonic() - began < admission.HANDSHAKE_S * 0.8, (
                "it went at its own deadline"
            )
            assert 1 == len(heard.links)
            for _, writer in crowd:
                writer.close()

    run(story())


# --- who is in the way ----------------------------------------------------------------------------


async def _handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for count in (handshake.HELLO_BYTES, handshake.PROOF_BYTES):
        writer.write(await reader.readexactly(count))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    header = await reader.readexactly(handshake.HEADER_BYTES)
    body = await reader.readexactly(int.from_bytes(header[:4], "big"))
    return header + body + await reader.readexactly(handshake.PROOF_BYTES)


Trick = Callable[[list[bytes]], list[bytes]]

SMALLEST_FRAME = handshake.HEADER_BYTES + handshake.PROOF_BYTES + 32


def _altered(place: int) -> Trick:
    def trick(frames: list[bytes]) -> list[bytes]:
        spoilt = bytearray(frames[1])
        spoilt[place] ^= 1
        return [frames[0], bytes(spoilt), frames[2]]

    return trick


TRICKS: dict[str, Trick] = {
    "repeats": lambda frames: [frames[0], frames[0], frames[1], frames[2]],
    "leaves out": lambda frames: [frames[0], frames[2]],
    "reorders": lambda frames: [frames[0], frames[2], frames[1]],
    # Not one byte: the next frame begins with the zero that one proof of 256 ends with.
    "cuts short": lambda frames: [frames[0], frames[1][: -handshake.PROOF_BYTES], frames[2]],
    "mixes two": lambda frames: [
        frames[0],
        frames[1][: handshake.HEADER_BYTES] + frames[2][handshake.HEADER_BYTES :],
    ],
    "adds a frame": lambda frames: [frames[0], bytes(SMALLEST_FRAME), frames[1]],
    "claims a gigabyte": lambda frames: [frames[0], b"\x40" + frames[1][1:]],
    **{f"alters byte {place}": _altered(place) for place in (0, 3, 4, 19, 20, 40, -32, -1)},
}


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("trick", TRICKS)
def test_what_was_touched_on_the_way_ends_the_link_and_is_not_heard(
    trick: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def meddle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _handshake(reader, writer)
        frames = [await _frame(reader) for _ in range(3)]
        writer.write(b"".join(TRICKS[trick](frames)))
        while data := await reader.read(65536):
            writer.write(data)

    async def story() -> None:
        async with leader() as (address, heard), between(address, **{way: meddle}) as around:
            link = await connected(around)
            for number in (1, 2, 3):
                link.send(Heartbeat(number=number))
            got = []
            while (envelope := await link.receive()) is not None:
                got.append(number_of(envelope))

            assert [1] == (heard.numbers if way == "up" else got)
            assert got == heard.numbers[: len(got)]

    with caplog.at_level(logging.WARNING):
        run(story())
    assert "on its way" in caplog.text


def test_frames_of_one_direction_are_none_of_the_other() -> None:
    """Whoever sends a peer its own frames back is found out."""

    async def reflect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _handshake(reader, writer)
        writer.write(await echo.get())

    async def catch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _handshake(reader, writer)
        echo.put_nowait(await _frame(reader))

    async def story() -> None:
        there = leader()
        async with there as (address, heard), between(address, catch, reflect) as around:
            link = await connected(around)
            link.send(Heartbeat(number=1))

            assert await link.receive() is None
            assert [] == heard.numbers

    echo: asyncio.Queue[bytes] = asyncio.Queue()
    run(story())


@pytest.mark.parametrize("place", range(0, HANDSHAKE_BYTES, 7))
@pytest.mark.parametrize("way", ["up", "down"])
def test_an_altered_handshake_comes_to_nothing(place: int, way: str) -> None:
    async def meddle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = 0
        while data := await reader.read(65536):
            spoilt = bytearray(data)
            if said <= place < said + len(data):
                spoilt[place - said] ^= 0x10
            said += len(data)
            writer.write(spoilt)
        writer.close()

    async def story() -> None:
        async with leader() as (address, heard), between(address, **{way: meddle}) as around:
            said = await refusal(around)

            assert said
            # The client's proof was right where only the leader's answer was altered.
            assert (way == "down" and place >= handshake.HELLO_BYTES) or [] == heard.links

    run(story())


# --- finding each other ---------------------------------------------------------------------------


def test_who_has_no_secret_is_told_which_option_is_missing() -> None:
    async def story() -> None:
        unix: UnixNetwork[LinkMessage] = UnixNetwork(link_codec)
        network: MixedNetwork[LinkMessage] = MixedNetwork(unix, None)
        with pytest.raises(UnreachableError, match=r"need security\.secret-file"):
            await network.connect("tcp://127.0.0.1:1", TASKMANAGER)

    run(story())


def test_the_address_says_how_its_leader_is_reached() -> None:
    async def story() -> None:
        unix: UnixNetwork[LinkMessage] = UnixNetwork(link_codec)
        network = MixedNetwork(unix, TcpNetwork[LinkMessage](link_codec, security()))
        async with leader() as (address, heard), network.listen(LEADER, heard.serve):
            for one in (address, network.address_of(LEADER)):
                link = await network.connect(one, TASKMANAGER)
                link.send(Heartbeat(number=len(heard.links)))
                await link.receive()
                link.close()

            assert 2 == len(heard.links)

    run(story())


@pytest.mark.parametrize(
    "address",
    ["tcp://", "tcp://host", "tcp://host:0", "tcp://host:99999", "tcp://[::1", "tcp://:1"],
)
def test_an_address_that_is_none_cannot_be_reached(address: str) -> None:
    async def story() -> None:
        assert "no address of a link" in await refusal(address)

    run(story())


def test_nobody_there_is_told_in_time() -> None:
    async def story() -> None:
        began = time.monotonic()
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with server:
            said = await refusal(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")

        assert "no answer" in said
        assert time.monotonic() - began < PATIENCE_S / 2

    run(story())


def test_the_security_of_links_does_not_show_its_secret() -> None:
    shown = repr(security(server=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)))

    assert "secret" not in shown
    assert "tls=True" in shown
