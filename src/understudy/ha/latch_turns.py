"""Turns by a line of contenders, which a backend keeps by its sessions.

The first in line leads without waiting for a lease: its predecessor has left, lost its session, or
is proved dead. Safety is the same as with a lease: the term is minted by compare-and-swap and
fences every document. The line adds that the last leader has stopped by then: a leader counts its
deadline from the sending of its last acknowledged request, and the deadline passes before the
backend can end the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator

from understudy.clock import Clock
from understudy.core.lease import Timing
from understudy.ha.latch import Latch
from understudy.ha.lease_turns import LeaseTurns
from understudy.ha.register import Pushed, Register
from understudy.ha.retrieval import RETRY_BACKOFF
from understudy.ha.turns import Deaths, Denied, Turns
from understudy.model import Incarnation, LeaderRecord

_log = logging.getLogger(__name__)


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
    """See `Turns`."""

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
