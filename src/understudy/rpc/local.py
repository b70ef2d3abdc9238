"""Links within one process: for ``python app.py``, for tests, and for the simulation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from understudy.errors import UnreachableError
from understudy.model import Incarnation, Term
from understudy.rpc.gateway import Envelope, Serve

M = TypeVar("M")


class LocalLink(Generic[M]):
    """One end of a pair of queues."""

    def __init__(self, sender: Incarnation) -> None:
        self._sender = sender
        self._inbox: asyncio.Queue[Envelope[M] | None] = asyncio.Queue()
        self._peer: LocalLink[M] | None = None
        self._closed = False

    def send(self, message: M, term: Term = 0) -> None:
        """Put a message into the peer's queue, unless either end is closed."""
        if self._peer and not self._closed and not self._peer._closed:
            self._peer._inbox.put_nowait(Envelope(self._sender, term, message))

    async def receive(self) -> Envelope[M] | None:
        """Return the next message in the queue; None once either end is closed."""
        if self._closed:
            return None
        return await self._inbox.get()

    def close(self) -> None:
        """Close this end, and let the peer receive None after the sent messages."""
        if self._closed:
            return
        self._closed = True
        self._inbox.put_nowait(None)
        if self._peer:
            self._peer._inbox.put_nowait(None)


def link_pair(one: Incarnation, other: Incarnation) -> tuple[LocalLink[M], LocalLink[M]]:
    """Return the two ends of a link; each is given its sender."""
    first: LocalLink[M] = LocalLink(one)
    second: LocalLink[M] = LocalLink(other)
    first._peer, second._peer = second, first
    return first, second


class LocalNetwork(Generic[M]):
    """The listeners of this process, by address."""

    def __init__(self) -> None:
        self._serving: dict[str, Serve[M]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def address_of(self, incarnation: Incarnation) -> str:
        """Return ``local:`` and the incarnation."""
        return f"local:{incarnation}"

    async def connect(self, address: str, sender: Incarnation) -> LocalLink[M]:
        """Connect to a listener of this process, or raise `UnreachableError`."""
        serve = self._serving.get(address)
        if serve is None:
            raise UnreachableError(f"{address}: nobody listens")
        ends: tuple[LocalLink[M], LocalLink[M]] = link_pair(
            sender, Incarnation(address.removeprefix("local:"))
        )
        mine, theirs = ends
        task = asyncio.ensure_future(self._serve(serve, theirs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return mine

    @contextlib.asynccontextmanager
    async def listen(self, incarnation: Incarnation, serve: Serve[M]) -> AsyncIterator[None]:
        """Accept connections during the block; accepted links outlive the block."""
        address = self.address_of(incarnation)
        self._serving[address] = serve
        try:
            yield
        finally:
            del self._serving[address]

    async def _serve(self, serve: Serve[M], link: LocalLink[M]) -> None:
        try:
            await serve(link)
        finally:
            link.close()
