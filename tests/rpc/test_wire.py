"""A link between processes of one host, and the JSON of checkpoints in its messages."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.driver import ground
from understudy.model import NULL, Checkpoint, CheckpointKind, Incarnation, JobId, Term
from understudy.process import channels
from understudy.process.channels import driver_codec
from understudy.rpc import wire
from understudy.rpc.gateway import Envelope
from understudy.rpc.messages import CheckpointsTaken, RunAttempt


@pytest.mark.parametrize("frame", [b"\0\0\0\3\xc1\xc1\xc1", b"\xff\xff\xff\xff"])
def test_a_peer_that_says_what_nobody_understands_is_gone(
    frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """As one of another version; whoever listens looks for it anew, and is not ended by it."""

    async def main() -> object:
        mine, theirs = socket.socketpair()
        link = await wire.over_socket(mine, channels.main_codec, Incarnation("me"))
        with theirs:
            theirs.sendall(frame)
            async with asyncio.timeout(10):
                return await link.receive()

    assert asyncio.run(main()) is None
    assert "the peer speaks another protocol" in caplog.text


TEXTS = ["null", "57", '[{"logOffset":3},null]', '{"found":true}', '"é"', "[" + "9" * 70_000 + "]"]


def checkpoint(text: str) -> Checkpoint:
    """Return a checkpoint that holds this text twice."""
    raw = msgspec.Raw(text.encode())
    return Checkpoint(
        kind=CheckpointKind.BATCH, name="orders", attempt=1, offsets=raw, note=raw, size=3
    )


def messages(text: str) -> list[Any]:
    """Return every message of a driver that carries checkpoints."""
    one = checkpoint(text)
    return [
        CheckpointsTaken(job_id=JobId("j"), attempt=1, sequence=1, checkpoints=(one, one)),
        RunAttempt(deploy=ground.deploy(one), term=Term(3)),
        RunAttempt(deploy=ground.deploy(), term=Term(3)),
    ]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("which", range(3))
def test_a_message_arrives_as_it_was_sent(text: str, which: int) -> None:
    message = messages(text)[which]
    frame = driver_codec.encode(Envelope(Incarnation("a"), Term(3), message))
    arrived = driver_codec.decode(frame[4:]).message

    assert message == arrived


def test_what_holds_nothing_arrives_as_the_default() -> None:
    told = messages("null")[0]
    frame = driver_codec.encode(Envelope(Incarnation("a"), Term(3), told))
    arrived = driver_codec.decode(frame[4:]).message
    assert isinstance(arrived, CheckpointsTaken)

    assert [NULL, NULL] == [one.offsets for one in arrived.checkpoints]
    assert told == replace(arrived)
