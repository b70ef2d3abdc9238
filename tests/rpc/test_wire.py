"""A link between processes of one host."""

from __future__ import annotations

import asyncio
import socket

import pytest

from understudy.model import Incarnation
from understudy.process import channels
from understudy.rpc import wire


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
