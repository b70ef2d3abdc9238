"""A real REST endpoint for a test, and what is said to it byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from tests.api.test_metrics import Manager, manager
from tests.support.memory_storage import MemoryStorage
from understudy.api import rest
from understudy.api.authentication import OPEN, RestSecurity
from understudy.api.endpoint import bind
from understudy.clock import SystemClock
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.services import HighAvailabilityServices, Locations
from understudy.ha.storage import InlineStorage
from understudy.jobmanager.job_manager import JobManager

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Said:
    """What came back until the connection ended, or the answer was whole."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """Return why it was refused."""
        found: Any = msgspec.json.decode(self.body)
        return str(found["errors"][0])


def services() -> HighAvailabilityServices:
    """Open a cluster's stores, in memory."""
    storage = InlineStorage(MemoryStorage(), 5.0)
    places = Locations("c", "jobs", "apps")
    return HighAvailabilityServices(EmbeddedRegister(), storage, "flights", places)


@contextlib.asynccontextmanager
async def endpoint(
    settings: Mapping[str, str] | None = None,
    one: Manager | None = None,
    security: RestSecurity = OPEN,
) -> AsyncIterator[int]:
    """Serve a standby's REST; gives the port."""
    found = one or manager(settings, services(), SystemClock())
    listening = bind("127.0.0.1", (0,))
    async with rest.serving(cast("JobManager", found), listening, security):
        yield int(listening.getsockname()[1])


async def exchange(port: int, *pieces: bytes) -> Said:
    """Send bytes, and read one answer."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
            return await answer(reader)
        finally:
            writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> Said:
    """Read one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
    body = b""
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    return Said(int(first.split()[1]), headers, body)


def request(
    method: str, path: str, *headers: str, body: bytes = b"", version: str = "1.1"
) -> bytes:
    """Return a request; a body brings its length along."""
    lines = [f"{method} {path} HTTP/{version}", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
