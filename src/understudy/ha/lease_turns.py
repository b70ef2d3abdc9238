"""Turns by a lease, on any register: a contender waits until the lease of the last leader ran out.

Proof of the leader's death ends the wait at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator

from understudy.clock import Clock
from understudy.core import lease
from understudy.core.lease import Timing
from understudy.ha.register import Pushed, Register
from understudy.ha.retrieval import WakeUps, wake_at_changes
from understudy.ha.turns import Deaths, Denied
from understudy.model import Incarnation, LeaderRecord

_log = logging.getLogger(__name__)


class LeaseTurns:
    """See `Turns`."""

    renews_record = True

    def __init__(
        self,
        register: Register,
        timing: Timing,
        clock: Clock,
        deaths: Deaths,
        jitter: random.Random,
    ) -> None:
        """``jitter`` spreads the tries of standbys."""
        self.timing = timing
        self.died_at: dict[Incarnation, float] = {}
        self._register = register
        self._clock = clock
        self._deaths = deaths
        self._jitter = jitter
        self._dead: set[Incarnation] = set()
        self._news = WakeUps()
        self._pushed: Pushed | None = None
        self._watched = Incarnation("")
        self._watching: asyncio.Task[None] | None = None

    @property
    def patience_s(self) -> float:
        """Return half of the renew deadline.

        The deadline of a term runs from the sending of its write. So an answer that comes at the
        last moment leaves the other half for the first renewal, which has the same limit.
        """
        return self.timing.renew_deadline_s / 2

    @contextlib.asynccontextmanager
    async def contending(self) -> AsyncIterator[None]:
        """Watch the leader's record, and the life of its holder."""
        changes = asyncio.ensure_future(wake_at_changes(self._register, self._clock, self._news))
        try:
            yield
        finally:
            changes.cancel()
            self._watch_no_longer()
            await asyncio.gather(changes, return_exceptions=True)

    async def come(self, denied: Denied | None) -> None:
        """Wait for a change of the record, a death, the lease's end, or the retry period."""
        if denied:
            if denied.holder and denied.holder.holder != self._watched:
                self._watch(denied.holder)
            pause_s = self.timing.retry_s * self._jitter.uniform(1, lease.JITTER_FACTOR)
            if denied.until is not None:
                pause_s = max(0.0, denied.until - self._clock.now())
            await self._news.within(pause_s)
        self._pushed = self._news.take()

    def pushed(self) -> Pushed | None:
        """Return the record that came with the wake-up, once."""
        pushed, self._pushed = self._pushed, None
        return pushed

    def has_left(self, holder: Incarnation) -> bool:
        """Return whether the holder's death is proved."""
        return holder in self._dead

    async def confirm(self) -> float | None:
        """Return None: whoever reads the record sees the renewed lease."""
        return None

    async def lost(self) -> str:
        """Wait for ever: only a renewal detects a lost lease."""
        await asyncio.Event().wait()
        return ""

    async def leave(self) -> None:
        """Do nothing: the record is vacant."""

    def _watch(self, holder: LeaderRecord) -> None:
        self._watch_no_longer()
        self._watched = holder.holder
        self._watching = asyncio.ensure_future(self._await_death(holder))

    def _watch_no_longer(self) -> None:
        self._watched = Incarnation("")
        if self._watching:
            self._watching.cancel()
            self._watching = None

    async def _await_death(self, holder: LeaderRecord) -> None:
        died_at = await self._deaths.proof(holder)
        if died_at is not None:
            self.died_at[holder.holder] = died_at
        _log.info("the leader of term %d (%s) is dead", holder.term, holder.name)
        self._dead.add(holder.holder)
        self._news.ring(None)
