"""A line of contenders that a backend keeps by its sessions, for `LatchTurns`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Latch(Protocol):
    """One contender's view of a line: the first may lead; one that left is dead or has stopped.

    A contender's place in line lasts as long as its session. The backend ends a session that is
    silent for ``session_s``. Methods may raise ``OSError`` or ``TimeoutError``.
    """

    @property
    def session_s(self) -> float:
        """Return the session timeout that the backend granted."""
        ...

    async def ahead(self) -> str | None:
        """Join the line if not in it yet; return the contender just ahead, None for the first."""
        ...

    async def moved(self) -> None:
        """Return once the contender ahead may have changed since the last `ahead`."""
        ...

    async def dismiss(self, dead: str) -> None:
        """Remove a contender whose death is proved."""
        ...

    async def renew(self) -> float:
        """Have the backend confirm this contender's place; return when the request was sent.

        Raises `LeadershipLost` if the contender is not in line.
        """
        ...

    async def lost(self) -> str:
        """Return the reason once this contender is no longer in line."""
        ...

    async def leave(self) -> None:
        """Give up the place in line."""
        ...


@runtime_checkable
class HasLatch(Protocol):
    """A register whose backend keeps a line of contenders."""

    def latch(self, me: str, note: bytes) -> Latch:
        """Open the line for one contender; ``note`` is shown to people."""
        ...

    async def line(self) -> list[str]:
        """Return the contenders in order, without joining the line."""
        ...
