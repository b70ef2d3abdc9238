"""The port of a kubelet where the API server asks for the output of containers."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

POLL_S = 0.1
REQUEST_S = 10.0
CHUNK_BYTES = 65_536


@dataclass(frozen=True)
class Wanted:
    """What is asked for."""

    namespace: str
    pod: str
    container: str
    previous: bool
    follow: bool
    tail: int | None


def wanted(target: str) -> Wanted | None:
    """Return what a request's target asks for; None if it is something else."""
    split = urlsplit(target)
    parts = split.path.strip("/").split("/")
    if len(parts) != 4 or parts[0] != "containerLogs":
        return None
    _, namespace, pod, container = parts
    asked = {name: values[-1] for name, values in parse_qs(split.query).items()}
    tail = asked.get("tailLines")
    return Wanted(
        namespace,
        pod,
        container,
        previous=asked.get("previous") == "true",
        follow=asked.get("follow") == "true",
        tail=int(tail) if tail is not None else None,
    )


Find = Callable[[Wanted], tuple[Path, Callable[[], bool]] | None]
"""Returns the file with what is asked for, and what says whether more may come."""


class LogServer:
    """Answers ``GET /containerLogs/NAMESPACE/POD/CONTAINER`` to who has a certificate."""

    def __init__(self, find: Find, context: ssl.SSLContext) -> None:
        self._find = find
        self._context = context

    async def listen(self, host: str) -> tuple[asyncio.Server, int]:
        """Listen on a free port; return it."""
        server = await asyncio.start_server(self._answer, host, 0, ssl=self._context)
        return server, server.sockets[0].getsockname()[1]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_S):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
            asked = wanted(head.split(" ")[1])
            found = self._find(asked) if asked is not None else None
            if asked is None or found is None:
                writer.write(_head("404 Not Found"))
            else:
                writer.write(_head("200 OK"))
                await _send(found[0], asked, found[1], writer)
            await writer.drain()
        writer.close()


def _head(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n".encode()


async def _send(
    path: Path, asked: Wanted, grows: Callable[[], bool], writer: asyncio.StreamWriter
) -> None:
    if not path.exists():  # the container has not begun
        return
    with path.open("rb") as file:
        if asked.tail is not None:
            lines = file.read().splitlines(keepends=True)
            writer.write(b"".join(lines[len(lines) - min(asked.tail, len(lines)) :]))
        while True:
            last = not (asked.follow and grows())
            while data := file.read(CHUNK_BYTES):
                writer.write(data)
                await writer.drain()
            if last or writer.is_closing():
                return
            await asyncio.sleep(POLL_S)
