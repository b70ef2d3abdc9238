"""Leader election with a backend that keeps a line of contenders by their sessions.

The first in line leads without waiting for a lease: its predecessor has left, lost its session, or
is proved dead. Safety is the same as with a lease: the term is minted by compare-and-swap and
fences every document. The line adds that the last leader has stopped by then: a leader counts its
deadline from the sending of its last acknowledged write, and the deadline passes before the backend
can end the session.
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
from understudy.ha.retrieval import LEADER_KEY, RETRY_BACKOFF
from understudy.model import Incarnation, LeaderRecord, Term


def open_election(latch: Latch | None, *parts: Any) -> Election:
    """Return an election by the line of contenders; by a lease if there is no ``latch``.

    ``parts``: the arguments of `Election`.
    """
    return Election(*parts) if latch is None else LatchElection(latch, *parts)


class LatchElection(Election):
    """One contender in line."""

    def __init__(self, latch: Latch, *parts: Any) -> None:
        """``parts``: the arguments of `Election`; the session's timing replaces theirs."""
        super().__init__(*parts)
        self._latch = latch

    @property
    def _patience_s(self) -> float:
        return self._timing.lease_s / 2

    async def run(self, body: Callable[[Leadership], Awaitable[None]]) -> None:
        """Contend and lead as `Election.run` does; leave the line at the end."""
        try:
            await super().run(body)
        finally:
            await self._leave()

    async def _acquire(self) -> Leadership:
        failures = 0
        while True:
            await self._come_first()
            self._keep_time(Timing.of_session(self._latch.session_s))
            seen = await self._try_to_acquire()
            if isinstance(seen, Leadership):
                return seen
            failures += 1
            await self._rest(failures)

    async def _come_first(self) -> None:
        """Return once this contender is first in line."""
        failures = 0
        while True:
            try:
                ahead = await self._latch.ahead()
                if ahead is None:
                    return
                await self._await_end(Incarnation(ahead))
                failures = 0
            except (OSError, TimeoutError) as error:
                self._tell(f"cannot stand in line: {str(error) or 'the backend does not answer'}")
                failures += 1
                await self._rest(failures)

    async def _rest(self, failures: int) -> None:
        pause_s = RETRY_BACKOFF.pause_s(failures)
        await asyncio.sleep(self._jitter.uniform(pause_s, 2 * pause_s))

    async def _await_end(self, ahead: Incarnation) -> None:
        """Return once the contender ahead may have left; dismiss it if its death is proved."""
        record = LeaderRecord(holder=ahead, term=0, session="")
        death = asyncio.ensure_future(self._deaths.proof(record))
        moved = asyncio.ensure_future(self._latch.moved())
        try:
            await asyncio.wait({death, moved}, return_when=asyncio.FIRST_COMPLETED)
            died_at = death.result() if death.done() else None
            # The last wake-up counts: earlier ones may have had other causes.
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
            # We are first in line, so the holder of the record has lost its session.
            self._state = lease.proven_dead(self._state, seen.record.holder)

    async def _put(self, write: lease.Write) -> None:
        held = self._state.leading
        await super()._put(write)
        # The write may come from an older session: only our place in line proves that ours lives.
        self._state = replace(self._state, leading=held)
        await self._confirm(write.record.term)

    async def _confirm(self, term: Term) -> None:
        """Have the backend confirm our place in line, and extend the deadline from that time."""
        try:
            sent_at = await self._latch.renew()
        except LeadershipLost as error:
            self._state = replace(self._state, leading=None)
            raise OSError(str(error)) from error
        deadline = sent_at + self._timing.renew_deadline_s
        self._state = replace(self._state, leading=lease.HeldTerm(term, deadline))

    async def _renew(self, leadership: Leadership) -> str:
        if leadership.published != leadership.addresses or self._version is None:
            return await super()._renew(leadership)
        try:
            async with asyncio.timeout(self._left_s()):
                await self._confirm(leadership.term)
                entry = await self._register.load(LEADER_KEY)
        except DataError as error:
            # A leader without a record steps down, even if it is first in line.
            self._state = replace(self._state, leading=None)
            return str(error)
        except (OSError, TimeoutError) as error:
            return f"the backend does not answer: {str(error) or 'timeout'}"
        if entry is None or entry.version != self._version:
            # Another process wrote or removed our record: write it again, or step down.
            self._version = None
            leadership.changed.set()
        return ""

    async def _lost(self) -> str:
        return await self._latch.lost()

    async def _release(self, term: Term, *, for_good: bool) -> None:
        await super()._release(term, for_good=for_good)
        await self._leave()

    async def _leave(self) -> None:
        """Leave the line if the backend answers; otherwise the session's end removes us."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._patience_s):
                await self._latch.leave()
