"""Leader election where the backend keeps a line of contenders by their sessions.

The first in line leads, so nobody waits for a lease: who stood before it has left, or its session
has ended, or it is proved dead. Safety is the same as everywhere: the term is minted by
compare-and-swap, and every document is fenced by it. What the line adds is that the last leader has
stopped by then: it counts its deadline from the sending of the last write that was acknowledged,
and that deadline is over before the backend can have ended its session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from understudy.core import lease
from understudy.core.lease import Timing
from understudy.errors import DataError, LeadershipLost
from understudy.ha.election import Election, Leadership
from understudy.ha.latch import Latch
from understudy.ha.retrieval import LEADER_KEY, RETRY_BACKOFF_MAX_S, RETRY_BACKOFF_S
from understudy.model import Incarnation, LeaderRecord, Term


def open_election(latch: Latch | None, *parts: Any) -> Election:
    """Return a contender: in line, where the backend keeps one, else with a lease.

    ``parts``: as `Election` takes them.
    """
    return Election(*parts) if latch is None else LatchElection(latch, *parts)


class LatchElection(Election):
    """One contender, who stands in line."""

    def __init__(self, latch: Latch, *parts: Any) -> None:
        """``parts``: as `Election` takes them; the timing is replaced by the session's."""
        super().__init__(*parts)
        self._latch = latch

    @property
    def _patience_s(self) -> float:
        return self._timing.lease_s / 2

    async def run(self, body: Callable[[Leadership], Awaitable[None]]) -> None:
        """See `Election.run`; the place in line is given up at the end."""
        try:
            await super().run(body)
        finally:
            await self._leave()

    async def _acquire(self) -> Leadership:
        pause_s = RETRY_BACKOFF_S
        while True:
            await self._come_first()
            self._keep_time(Timing.of_session(self._latch.session_s))
            seen = await self._try_to_acquire()
            if isinstance(seen, Leadership):
                return seen
            await asyncio.sleep(self._jitter.uniform(pause_s, 2 * pause_s))
            pause_s = min(2 * pause_s, RETRY_BACKOFF_MAX_S)

    async def _come_first(self) -> None:
        """Return once nobody stands before us."""
        pause_s = RETRY_BACKOFF_S
        while True:
            try:
                ahead = await self._latch.ahead()
                if ahead is None:
                    return
                await self._await_end(Incarnation(ahead))
                pause_s = RETRY_BACKOFF_S
            except (OSError, TimeoutError) as error:
                self._tell(f"cannot stand in line: {str(error) or 'the backend does not answer'}")
                await asyncio.sleep(self._jitter.uniform(pause_s, 2 * pause_s))
                pause_s = min(2 * pause_s, RETRY_BACKOFF_MAX_S)

    async def _await_end(self, ahead: Incarnation) -> None:
        """Return when who is just ahead may have gone; at once where its death is proved."""
        record = LeaderRecord(holder=ahead, term=0, session="")
        death = asyncio.ensure_future(self._deaths.proof(record))
        moved = asyncio.ensure_future(self._latch.moved())
        try:
            await asyncio.wait({death, moved}, return_when=asyncio.FIRST_COMPLETED)
            died_at = death.result() if death.done() else None
            # The last wake counts: those before it may have been about something else.
            self._died_at[ahead] = self._clock.now() if died_at is None else died_at
            if death.done():
                await self._latch.dismiss(ahead)
            if moved.done():
                moved.result()
        finally:
            for waiting in (death, moved):
                waiting.cancel()
            await asyncio.gather(death, moved, return_exceptions=True)

    async def _look(self) -> None:
        await super()._look()
        seen = self._state.observed
        if seen and not self._state.leading and seen.record.holder not in {"", self._me.holder}:
            # Nobody stands before us: whoever holds the record has lost its session.
            self._state = lease.proven_dead(self._state, seen.record.holder)

    async def _put(self, write: lease.Write) -> None:
        held = self._state.leading
        await super()._put(write)
        # By which session it was written is not told: only our place in line says that it lives.
        self._state = replace(self._state, leading=held)
        await self._confirm(write.record.term)

    async def _confirm(self, term: Term) -> None:
        """Have it acknowledged that this process stands in line, and lead on from that."""
        try:
            sent_at = await self._latch.renew()
        except LeadershipLost as error:
            self._state = replace(self._state, leading=None)
            raise OSError(str(error)) from error
        deadline = sent_at + self._timing.renew_deadline_s
        self._state = replace(self._state, leading=lease.Leading(term, deadline))

    async def _renew(self, leadership: Leadership) -> str:
        if leadership.published != leadership.addresses or self._version is None:
            return await super()._renew(leadership)
        try:
            async with asyncio.timeout(self._left_s()):
                await self._confirm(leadership.term)
                entry = await self._register.load(LEADER_KEY)
        except DataError as error:
            # Whom nobody can find does not lead, however well it stands in line.
            self._state = replace(self._state, leading=None)
            return str(error)
        except (OSError, TimeoutError) as error:
            return f"the backend does not answer: {str(error) or 'timeout'}"
        if entry is None or entry.version != self._version:
            # Somebody else wrote or removed the record by which we are found: put it right, or go.
            self._version = None
            leadership.changed.set()
        return ""

    async def _lost(self) -> str:
        return await self._latch.lost()

    async def _release(self, term: Term, *, for_good: bool) -> None:
        await super()._release(term, for_good=for_good)
        await self._leave()

    async def _leave(self) -> None:
        """Give up the place in line, if the backend answers; the end of the session does too."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._patience_s):
                await self._latch.leave()
