"""Links within one process: for ``python app.py``, and for tests."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from understudy.model import Incarnation, Term
from understudy.rpc.gateway import Envelope

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
