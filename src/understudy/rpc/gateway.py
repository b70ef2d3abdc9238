"""The protocols of any wire: links between processes, and the network that opens them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar

import msgspec

from understudy.model import Incarnation, Term

M = TypeVar("M")


class Envelope(msgspec.Struct, Generic[M], frozen=True):
    """A message with its sender and term."""

    sender: Incarnation
    term: Term
    message: M


class Link(Protocol[M]):
    """One connection, both ways. Messages arrive in order, or the link is broken."""

    def send(self, message: M, term: Term = 0) -> None:
        """Send a message; a broken connection shows when receiving."""
        ...

    async def receive(self) -> Envelope[M] | None:
        """Return the next message; None once the peer is gone."""
        ...

    def close(self) -> None:
        """Close the connection; what was sent is still delivered if the peer reads."""
        ...


Serve = Callable[[Link[M]], Awaitable[None]]
"""Serves one accepted link, which is closed when the function returns."""


class Network(Protocol[M]):
    """Opens and accepts links."""

    def address_of(self, incarnation: Incarnation) -> str:
        """Return the address at which a process listens."""
        ...

    async def connect(self, address: str, sender: Incarnation) -> Link[M]:
        """Open a connection, or raise `UnreachableError`."""
        ...

    def listen(
        self, incarnation: Incarnation, serve: Serve[M]
    ) -> AbstractAsyncContextManager[None]:
        """Accept connections during the block."""
        ...
