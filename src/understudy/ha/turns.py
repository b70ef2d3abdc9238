"""Whose turn it is to lead: the part of an election that depends on the backend.

`lease_turns` waits for a lease to run out, on any register. `latch_turns` stands in a line of
contenders, which a backend keeps by its sessions.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from understudy.core.lease import Timing
from understudy.ha.register import Pushed
from understudy.model import Incarnation, LeaderRecord


class Deaths(Protocol):
    """Proves that a leader and all its descendants are dead."""

    async def proof(self, holder: LeaderRecord) -> float | None:
        """Return once the holder is certainly dead; wait for ever if that cannot be proved.

        Returns the time of the death by `Clock.now`; None if unknown.
        """
        ...


class NoProofs:
    """Proves no death: leadership changes only by the lease."""

    async def proof(self, holder: LeaderRecord) -> float | None:
        """Wait for ever."""
        await asyncio.Event().wait()
        return None


@dataclass(frozen=True)
class Denied:
    """Why a try to acquire a term failed."""

    holder: LeaderRecord | None
    """The record of the living holder, as far as it is known."""
    until: float | None
    """Local time at which the holder's lease runs out; None: the register did not answer."""


class Turns(Protocol):
    """How one contender waits for its turn, and keeps it while it leads."""

    timing: Timing
    """The periods and deadlines; they may change while the contender waits for its turn."""

    died_at: dict[Incarnation, float]
    """When a former holder died or left, by `Clock.now`, where that is known."""

    renews_record: bool
    """Whether each renewal writes the leader's record: others see nothing else of a living leader.
    If not, `confirm` alone renews."""

    @property
    def patience_s(self) -> float:
        """Return the time limit for each step: to read, to acquire a term, to release it."""
        ...

    def contending(self) -> AbstractAsyncContextManager[None]:
        """Watch what `come` waits for, as long as the block runs."""
        ...

    async def come(self, denied: Denied | None) -> None:
        """Return when this contender should try to acquire a term; ``denied``: the last try."""
        ...

    def pushed(self) -> Pushed | None:
        """Return the leader's record that ended `come`; None: the contender has to load it."""
        ...

    def has_left(self, holder: Incarnation) -> bool:
        """Return whether a holder leads no more, now that it is this contender's turn."""
        ...

    async def confirm(self) -> float | None:
        """Have the backend confirm the turn; return when the request was sent.

        None: the acknowledged write of the record says all. Raises `LeadershipLost` if the turn is
        over; ``OSError`` or ``TimeoutError`` if that is unknown.
        """
        ...

    async def lost(self) -> str:
        """Return the reason once the turn is over; wait for ever if only a renewal tells."""
        ...

    async def leave(self) -> None:
        """Let the next contender have its turn."""
        ...
