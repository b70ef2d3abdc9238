"""The HTTP server of a process whose main work is something else.

Its connections are few, and each waits for its client a bounded time: for the head of a request,
for its body (see `bounds.py`), and for the answer to be read. When all are taken, the one that has
waited longest for its client is closed for a new one, so a silent crowd keeps no client out. Log
lines caused by strangers are bounded, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from understudy.api import answers
from understudy.process.closing import Closing
from understudy.rpc.accepting import accepted, shares
from understudy.rpc.complaints import Bounded, Complaints

HEAD_S = 10.0
"""Longest time for the head of a request, from its first byte to its end."""

KEEP_ALIVE_S = 5
"""Longest time until the next request on a connection begins."""

HEAD_BYTES_MAX = 16_384
"""Limit of a request's head, which may reach twice that; our heads have some hundred bytes."""

UNREAD_S = 20.0
"""Longest time for a client to read 64 kB of an answer."""

LINGER_S = 2.0
LINGER_BYTES_MAX = 1 << 20
"""A refused body is read and discarded for this time, and up to this size, since a client that
still sends may not see the answer otherwise. Then nothing more is read."""

HANDSHAKE_S = 5.0
"""Longest time for a TLS handshake."""

BOUNDED_LOGS = ("uvicorn.error", "asyncio")
"""Loggers of lines that strangers can cause."""


class Connection(H11Protocol):
    """One connection of a client, and how long the server has waited for the client."""

    lost: Callable[[], None] = staticmethod(lambda: None)
    """Called at the end of the connection."""

    _since = 0.0
    _unread_since: float | None = None
    _closing_since: float | None = None
    _lingered = 0
    is_aborted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        self._since = self.loop.time()
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the counter of connections."""
        super().connection_lost(exc)
        self.lost()

    def data_received(self, data: bytes) -> None:
        """Process the client's bytes; of a refused body, only a bounded part."""
        # In pieces, as h11 checks the length of a head only while the head is incomplete.
        for begin in range(0, len(data), HEAD_BYTES_MAX):
            if self.transport.is_closing():
                return
            piece = data[begin : begin + HEAD_BYTES_MAX]
            if self._is_refused_body:
                self._lingered += len(piece)
                if self._lingered > LINGER_BYTES_MAX:
                    self.flow.pause_reading()
                    return
            super().data_received(piece)

    def handle_events(self) -> None:
        """Process the parsed events."""
        try:
            super().handle_events()
        except h11.LocalProtocolError:
            # Invalid bytes after a complete request: uvicorn cannot answer them any more.
            self.abort()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Continue to write."""
        self._unread_since = None
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._since = self.loop.time()
        super().on_response_complete()

    def abort(self) -> None:
        """Close the connection, even with unsent bytes."""
        self.is_aborted = True
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP in the shape of all refusals."""
        refusal = answers.error(400, msg)
        # The parser raises if an answer is under way: then nothing can be sent.
        self.conn.send(h11.Response(status_code=400, headers=[]))
        lines = [b"HTTP/1.1 400 Bad Request", b"connection: close"]
        lines += [name + b": " + text for name, text in refusal.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(refusal.body)]))
        self.transport.close()

    @property
    def _is_refused_body(self) -> bool:
        """Return whether the request was answered before its body was complete."""
        cycle = self.cycle
        if cycle is None or not cycle.response_complete:
            return False
        return self.conn.their_state is h11.SEND_BODY

    def waits(self, now: float) -> tuple[float, float] | None:
        """Return since when the connection waits for its client, and the limit of that wait.

        None while the client waits for the server.
        """
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            return self._closing_since, UNREAD_S
        if self._unread_since is not None:
            return self._unread_since, UNREAD_S
        if self._is_refused_body:
            return self._since, LINGER_S
        if self.cycle is None or self.cycle.response_complete:
            return self._since, HEAD_S
        if self.cycle.more_body and not self.cycle.response_started:
            return self._since, float("inf")  # The reader of the body has its own deadline.
        return None


class Server(uvicorn.Server):
    """A server that leaves the process's signals alone."""

    def __init__(self, config: uvicorn.Config, connections_max: int) -> None:
        super().__init__(config)
        self._connections_max = connections_max
        self._shares = shares()
        self._complaints = Complaints()
        self._accepting: list[asyncio.Task[None]] = []
        self._entering: dict[asyncio.Task[None], None] = {}
        """Connections whose TLS is not established yet, the oldest first."""
        self._left = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing: signals are the process's own."""
        yield

    @contextlib.asynccontextmanager
    async def serving(self, listening: socket.socket) -> AsyncIterator[None]:
        """Serve on a bound socket during the block; at its end, wait for no client."""
        task = asyncio.create_task(self.serve(sockets=[listening]))
        try:
            yield
        finally:
            self.should_exit = True
            self.force_exit = True
            with Closing("REST") as closing, closing.step("its server"):
                await task

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections; asyncio would accept more than the descriptors allow."""
        await self.lifespan.startup()
        self.servers = []
        self._accepting = [asyncio.create_task(self._accept(one)) for one in sockets or ()]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Check the connections once a second."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in self._connections():
                waits = connection.waits(now)
                if waits and now - waits[0] > waits[1]:
                    connection.abort()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end."""
        await self.close()
        await super().shutdown(sockets)

    async def close(self) -> None:
        """Accept no more connections."""
        ending = [*self._accepting, *self._entering]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _connections(self) -> list[Connection]:
        return cast("list[Connection]", list(self.server_state.connections))

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room()
            end = await accepted(listening, self._complaints, self._shares, self._give_way)
            task = loop.create_task(self._admit(end))
            self._entering[task] = None
            task.add_done_callback(self._entered)

    async def _room(self) -> None:
        """Wait until one more connection is allowed; close an old one for it if possible."""
        while self._count() >= self._connections_max and not self._give_way():
            self._left.clear()
            await self._left.wait()

    def _count(self) -> int:
        open_ = sum(not one.is_aborted for one in self._connections())
        return open_ + len(self._entering)

    def _give_way(self) -> bool:
        """Close the connection that waits longest for its client; return whether there is one."""
        now = asyncio.get_running_loop().time()
        waiting = [
            (waits[0], id(one), one)
            for one in self._connections()
            if (waits := one.waits(now)) and not one.is_aborted
        ]
        if waiting:
            min(waiting)[2].abort()
            return True
        if self._entering:
            oldest = next(iter(self._entering))
            oldest.cancel()
            del self._entering[oldest]
            return True
        return False

    def _entered(self, task: asyncio.Task[None]) -> None:
        self._entering.pop(task, None)
        self._left.set()

    async def _admit(self, end: socket.socket) -> None:
        tls = self.config.ssl
        limit_s = HANDSHAKE_S if tls else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol,
                end,
                ssl=tls,
                ssl_handshake_timeout=limit_s,
                ssl_shutdown_timeout=limit_s,
            )
        except OSError:  # Includes TLS errors (a port scan, a client without TLS): not logged.
            end.close()
        except BaseException:
            end.close()
            raise

    def _protocol(self) -> Connection:
        made = Connection(self.config, self.server_state, self.lifespan.state)
        made.lost = self._left.set
        return made


def server(app: ASGIApp, tls: ssl.SSLContext | None, connections_max: int | None = None) -> Server:
    """Return a server of ours, by default with REST's share of connections."""
    config = uvicorn.Config(
        cast("Any", app),
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )
    config.load()
    config.ssl = tls
    for name in BOUNDED_LOGS:
        log = logging.getLogger(name)
        if not any(isinstance(one, Bounded) for one in log.filters):
            log.addFilter(Bounded())
    return Server(config, min(connections_max or shares().rest, shares().rest))
