"""What the runtime asks of any wire: links between processes, and where to find them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar

import msgspec

from understudy.model import Incarnation, Term

M = TypeVar("M")


class Envelope(msgspec.Struct, Generic[M], frozen=True):
    """A message, who sent it, and under which term."""

    sender: Incarnation
    term: Term
    message: M


class Link(Protocol[M]):
    """One connection, both ways. Messages arrive in order, or the link is broken."""

    def send(self, message: M, term: Term = 0) -> None:
        """Send a message; a broken connection shows when receiving."""
        ...

    async def receive(self) -> Envelope[M] | None:
        """Return the next message, None once the peer is gone."""
        ...

    def close(self) -> None:
        """Close the connection; what was sent is still delivered if the peer reads."""
        ...


Serve = Callable[[Link[M]], Awaitable[None]]
"""Owns one accepted link until it returns."""


class Network(Protocol[M]):
    """Who can be reached."""

    def address_of(self, incarnation: Incarnation) -> str:
        """Return where a process listens."""
        ...

    async def connect(self, address: str, sender: Incarnation) -> Link[M]:
        """Open a connection, or raise `UnreachableError`."""
        ...

    def listen(
        self, incarnation: Incarnation, serve: Serve[M]
    ) -> AbstractAsyncContextManager[None]:
        """Accept connections as long as the block lasts."""
        ...
