"""An endpoint whose server is imported once the first client comes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from types import ModuleType

import pytest

from understudy.api import endpoint

DEADLINE_S = 60.0

MODULE = "this"
"""Of the standard library; nobody imports it."""


class Served:
    """Answers each client with a word; fails as often as a test says."""

    def __init__(self, listening: socket.socket, failures: int = 0) -> None:
        self._listening = listening
        self.failures = failures

    @contextlib.asynccontextmanager
    async def serving(self, module: ModuleType) -> AsyncIterator[None]:
        """Serve as long as the block lasts."""
        if self.failures:
            self.failures -= 1
            raise OSError("no descriptors")
        server = await asyncio.start_server(_answer, sock=self._listening.dup())
        try:
            yield
        finally:
            server.close()


async def _answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"served")
    writer.close()


async def _asked(listening: socket.socket) -> bytes:
    host, port = listening.getsockname()
    reader, writer = await asyncio.open_connection(host, port)
    said = await reader.read()
    writer.close()
    return said


@pytest.mark.parametrize("failures", [0, 1])
def test_a_server_is_imported_once_a_client_connects(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "AGAIN_S", 0.0)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)

    async def story() -> tuple[bool, bytes, bool, int]:
        listening = endpoint.bind("127.0.0.1", (0,))
        served = Served(listening, failures)
        async with (
            asyncio.timeout(DEADLINE_S),
            endpoint.served_once_asked(listening, MODULE, served.serving),
        ):
            await asyncio.sleep(0)
            before = MODULE in sys.modules
            said = await _asked(listening)
        return before, said, MODULE in sys.modules, listening.fileno()

    assert (False, b"served", True, -1) == asyncio.run(story())
