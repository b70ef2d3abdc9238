"""A line of contenders, where a backend keeps one by its sessions; see `LatchElection`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Latch(Protocol):
    """Who is first in line may lead; who is no longer in it, is dead or has stopped.

    A contender stands in line by a session of the backend, which ends when the backend has not
    heard of it for ``session_s``. Methods may raise ``OSError`` or ``TimeoutError``.
    """

    @property
    def session_s(self) -> float:
        """Return the timeout of the session, as the backend has granted it."""
        ...

    async def ahead(self) -> str | None:
        """Stand in line, unless in it already; return who is just ahead, None for the first."""
        ...

    async def moved(self) -> None:
        """Return once it may have changed who is ahead, since `ahead` was asked."""
        ...

    async def dismiss(self, dead: str) -> None:
        """Take out of the line somebody who is proved dead."""
        ...

    async def renew(self) -> float:
        """Have the backend acknowledge that this contender stands in line; return when it was sent.

        Raises `LeadershipLost` where it does not.
        """
        ...

    async def lost(self) -> str:
        """Return why, once this contender does not stand in line any more."""
        ...

    async def leave(self) -> None:
        """Give up the place in line."""
        ...


@runtime_checkable
class HasLatch(Protocol):
    """A register whose backend keeps such a line."""

    def latch(self, me: str, note: bytes) -> Latch:
        """Open it for one contender; ``note`` is shown to people."""
        ...

    async def line(self) -> list[str]:
        """Return who stands in it, the first one first, without standing in it oneself."""
        ...
