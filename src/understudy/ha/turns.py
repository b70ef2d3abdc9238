"""Whose turn it is to lead: the part of an election that depends on the backend.

`LeaseTurns` waits for a lease to run out, on any register. `LatchTurns` stands in a line of
contenders, which a backend keeps by its sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from understudy.clock import Clock
from understudy.core import lease
from understudy.core.lease import Timing
from understudy.ha.register import Latch, Pushed, Register
from understudy.ha.retrieval import RETRY_BACKOFF, WakeUps, wake_at_changes
from understudy.model import Incarnation, LeaderRecord

_log = logging.getLogger(__name__)


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


# --- turns by a lease, on any register ------------------------------------------------------------


class LeaseTurns:
    """A contender waits until the lease of the last leader ran out, or its death is proved."""

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


# --- turns by a line of contenders ----------------------------------------------------------------
#
# The first in line leads without waiting for a lease: its predecessor has left, lost its session,
# or is proved dead. Safety is the same as with a lease: the term is minted by compare-and-swap, and
# fences every document. The line adds that the last leader has stopped by then: a leader counts its
# deadline from the sending of its last acknowledged request, and the deadline passes before the
# backend can end the session.


def open_turns(
    latch: Latch | None,
    register: Register,
    timing: Timing,
    clock: Clock,
    deaths: Deaths,
    jitter: random.Random,
) -> Turns:
    """Return turns by the line of contenders; by a lease if there is no ``latch``."""
    if latch is None:
        return LeaseTurns(register, timing, clock, deaths, jitter)
    return LatchTurns(latch, timing, clock, deaths, jitter)


class LatchTurns:
    """A contender waits in the line of its backend; the first has its turn."""

    renews_record = False

    def __init__(
        self, latch: Latch, timing: Timing, clock: Clock, deaths: Deaths, jitter: random.Random
    ) -> None:
        """``timing`` holds until the backend has granted a session."""
        self.timing = timing
        self.died_at: dict[Incarnation, float] = {}
        self._latch = latch
        self._clock = clock
        self._deaths = deaths
        self._jitter = jitter
        self._denied = 0
        self._complaint = ""

    @property
    def patience_s(self) -> float:
        """Return half a session."""
        return self.timing.lease_s / 2

    @contextlib.asynccontextmanager
    async def contending(self) -> AsyncIterator[None]:
        """Do nothing: `come` asks the line itself."""
        yield

    async def come(self, denied: Denied | None) -> None:
        """Wait until this contender is first in line; after a failed try with backoff."""
        if denied:
            self._denied += 1
            await self._rest(self._denied)
        else:
            self._denied = 0
        await self._come_first()
        self.timing = Timing.of_session(self._latch.session_s)

    def pushed(self) -> Pushed | None:
        """Return None: who comes first loads the record."""
        return None

    def has_left(self, holder: Incarnation) -> bool:
        """Return True: this contender is first in line, so the holder has lost its session."""
        return True

    async def confirm(self) -> float | None:
        """Have the backend confirm the place in line.

        The record may be written by an older session of this process: only the place in line proves
        that the present session lives.
        """
        return await self._latch.renew()

    async def lost(self) -> str:
        """Return the reason once this contender is no longer in line."""
        return await self._latch.lost()

    async def leave(self) -> None:
        """Leave the line if the backend answers; otherwise the session's end removes us."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self.patience_s):
                await self._latch.leave()

    async def _come_first(self) -> None:
        """Return once this contender is first in line."""
        failures = 0
        while True:
            try:
                ahead = await self._latch.ahead()
                if ahead is None:
                    self._complaint = ""
                    return
                await self._await_end(Incarnation(ahead))
                failures = 0
            except (OSError, TimeoutError) as error:
                why = str(error) or "the backend does not answer"
                self._complain(f"cannot stand in line: {why}")
                failures += 1
                await self._rest(failures)

    async def _rest(self, failures: int) -> None:
        pause_s = RETRY_BACKOFF.pause_s(failures)
        await asyncio.sleep(self._jitter.uniform(pause_s, 2 * pause_s))

    def _complain(self, grievance: str) -> None:
        """Warn once; log a repeated message at debug level."""
        level = logging.DEBUG if grievance == self._complaint else logging.WARNING
        self._complaint = grievance
        _log.log(level, "%s", grievance)

    async def _await_end(self, ahead: Incarnation) -> None:
        """Return once the contender ahead may have left; dismiss it if its death is proved."""
        record = LeaderRecord(holder=ahead, term=0, session="")
        death = asyncio.ensure_future(self._deaths.proof(record))
        moved = asyncio.ensure_future(self._latch.moved())
        try:
            await asyncio.wait({death, moved}, return_when=asyncio.FIRST_COMPLETED)
            died_at = death.result() if death.done() else None
            # The last wake-up counts: earlier ones may have had other causes.
            self.died_at[ahead] = self._clock.now() if died_at is None else died_at
            if death.done():
                await self._latch.dismiss(ahead)
            if moved.done():
                moved.result()
        finally:
            for waiting in (death, moved):
                waiting.cancel()
            await asyncio.gather(death, moved, return_exceptions=True)
