"""The connections to a link's address, from the first byte to the end of the link.

A peer without a first message costs one task with a deadline. The number of these tasks is
limited: the oldest gives way. A peer with a first message is a link. The number of links is limited
too, so that the process keeps the descriptors for its own work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

from understudy.errors import UnreachableError
from understudy.rpc.accepting import accepted, refuse, shares
from understudy.rpc.complaints import Complaints
from understudy.rpc.gateway import Link, Serve

M = TypeVar("M")

HANDSHAKE_S = 5.0
"""How long a peer may take to prove that it belongs to the cluster."""

FIRST_MESSAGE_S = 30.0
"""How long an authenticated peer may take for its first message: a registration is sent at once,
and may be a large frame on a slow network."""

Heard = Callable[[], None]
Prove = Callable[[socket.socket, Heard], Awaitable[Link[M]]]
"""Authenticates a connection; returns a link that calls `Heard` at each message, or raises."""

_log = logging.getLogger(__name__)


class Admission(Generic[M]):
    """All connections to one address."""

    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._shares = shares()
        self._waiting: dict[asyncio.Task[None], None] = {}
        """Tasks of peers without a first message, the oldest first."""
        self._serving: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(
        self, listening: socket.socket, prove: Prove[M], serve: Serve[M]
    ) -> AsyncIterator[None]:
        """Serve connections during the block; end all links after it."""
        with listening:
            accepting = asyncio.create_task(self._accept(listening, prove, serve))
            try:
                yield
            finally:
                ending = [accepting, *self._waiting, *self._serving]
                for task in ending:
                    task.cancel()
                await asyncio.gather(*ending, return_exceptions=True)

    async def _accept(self, listening: socket.socket, prove: Prove[M], serve: Serve[M]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            end = await accepted(listening, self._complaints, self._shares, self._give_way)
            if len(self._serving) >= self._shares.links:
                self._complaints.log(
                    "accepting connections",
                    f"refused, as there are {len(self._serving)} links: no more leave this process "
                    "the file descriptors that it needs itself; raise the limit (ulimit -n)",
                )
                refuse(end)
                continue
            if len(self._waiting) >= self._shares.unproven:
                self._give_way()
            task = loop.create_task(self._admit(end, prove, serve))
            self._waiting[task] = None
            task.add_done_callback(self._forget)

    def _give_way(self) -> bool:
        """End the connection that has waited longest; return whether there was one."""
        if not self._waiting:
            return False
        oldest = next(iter(self._waiting))
        del self._waiting[oldest]
        oldest.cancel()
        return True

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._waiting.pop(task, None)
        self._serving.discard(task)

    async def _admit(self, end: socket.socket, prove: Prove[M], serve: Serve[M]) -> None:
        """Authenticate one peer and serve it."""
        task = asyncio.current_task()
        assert task is not None
        peer = name_of(end)

        def heard() -> None:
            if task in self._waiting:
                del self._waiting[task]
                self._serving.add(task)

        def too_late() -> None:
            if task in self._waiting:
                task.cancel()

        try:
            async with asyncio.timeout(HANDSHAKE_S):
                link = await prove(end, heard)
        except UnreachableError as error:
            return self._complaints.log(peer, str(error))
        except ssl.SSLError as error:
            return self._complaints.log(peer, str(error))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return None  # A port scan, a health check or a killed process: not logged.
        deadline = asyncio.get_running_loop().call_later(FIRST_MESSAGE_S, too_late)
        try:
            await serve(link)
        except Exception:
            _log.exception("serving %s has failed", peer)
        finally:
            deadline.cancel()
            link.close()
        return None


def name_of(end: socket.socket) -> str:
    """Return the host of a peer; not its port, which changes with each connection."""
    try:
        name = end.getpeername()
    except OSError:
        return "somebody"
    return str(name[0]) if isinstance(name, tuple) else "a process of this host"
