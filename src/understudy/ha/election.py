"""Leader election over any register, written once.

``Election.run(body)`` contends for ever: it runs ``body`` while this process holds a term, cancels
``body`` on loss, and contends again. Losing the backend is a loss, not an exit. The body recovers
first and then publishes its addresses; only then do retrievers see the new leader. `Turns` says
when a contender may ask for a term, and what keeps it in office.

Promises: a term has one holder, and a leader whose clock runs at the right rate has stopped before
another starts. Not promised: that only one process *believes* it leads.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.core import lease
from understudy.core.backoff import Backoff
from understudy.core.lease import Timing
from understudy.errors import DataError, LeadershipLost, NewerFormatError
from understudy.ha.register import Conflict, Entry, Pushed, Register
from understudy.ha.retrieval import (
    LEADER_KEY,
    RETRY_BACKOFF,
    decode_leader,
    encode_leader,
)
from understudy.ha.turns import Denied, Turns
from understudy.model import Incarnation, LeaderRecord, Term

NOBODY_KNOWN = Incarnation("unreadable")
"""The assumed holder of a lease with a damaged record."""

LEAP = 100
"""How many terms are skipped after a damaged record. Fewer leaders can have been granted a term and
died before they wrote the registry."""

INSTANT_S = 0.001
"""The shortest wait: prevents a busy loop just before a deadline."""

_log = logging.getLogger(__name__)


class Leadership:
    """One grant: the term, and how to publish the addresses under which the leader serves."""

    def __init__(
        self,
        term: Term,
        session: str,
        predecessor: LeaderRecord,
        lost_at: float | None,
        reason: str,
        damage: str = "",
    ) -> None:
        """``lost_at``: when the predecessor died, or was last seen to renew or to release.

        ``damage``: the error in the predecessor's record, if this grant replaced a damaged record.
        """
        self.reason = reason
        self.damage = damage
        self.term = term
        self.session = session
        self.predecessor = predecessor
        self.lost_at = lost_at
        self.addresses: tuple[str, str] = ("", "")
        self.published: tuple[str, str] = ("", "")
        """The addresses that the register last held."""
        self.end = ""
        """Why the term was lost; empty before that, and where this process gives it up."""
        self.acts: Callable[[], bool] = lambda: True
        """Whether the last renewal's deadline is ahead. A busy machine ends the body later."""
        self.changed = asyncio.Event()
        self._published = asyncio.Event()

    async def publish(self, rest: str, rpc: str) -> None:
        """Publish the addresses; returns once the register has them."""
        self.addresses = (rest, rpc)
        self._published.clear()
        self.changed.set()
        await self._published.wait()

    def acknowledged(self, record: LeaderRecord) -> None:
        """Note which record the register now holds."""
        self.published = (record.rest, record.rpc)
        if self.published == self.addresses:
            self._published.set()


class Election:
    """One contender; all components of its process share its grants (FLINK-24038)."""

    def __init__(
        self,
        register: Register,
        me: LeaderRecord,
        turns: Turns,
        clock: Clock,
        floor: Callable[[], Awaitable[Term]],
        hold: Callable[[float | None], None],
    ) -> None:
        """Contend as ``me.holder``.

        ``floor`` returns the highest term that the registry has seen. ``hold`` receives the time
        until which this process may act (None: not at all); the guardian enforces that deadline.
        """
        self._register = register
        self._me = me
        self._turns = turns
        self._clock = clock
        self._floor = floor
        self._hold = hold
        self._state = lease.ContenderState(me.holder, turns.timing)
        self._version: str | None = None
        self._highest: Term = 0
        """The highest term that this process has seen: it never asks for a lower one."""
        self._damage = ""
        """The error in the last record seen, if it was damaged."""
        self._complaint = ""
        self._sent: Term = 0
        """The term that this process last asked for, answered or not."""

    @property
    def timing(self) -> Timing:
        """Return the contender's periods and deadlines."""
        return self._turns.timing

    async def run(self, body: Callable[[Leadership], Awaitable[None]]) -> None:
        """Contend, lead, lose and contend again, until a body returns by itself or raises.

        After a loss the wait for the cancelled body has no deadline: the guardian knows the
        deadline and kills the process.
        """
        try:
            await self._run(body)
        finally:
            await self._turns.leave()

    async def _run(self, body: Callable[[Leadership], Awaitable[None]]) -> None:
        while True:
            try:
                leadership = await self._acquire()
            except asyncio.CancelledError:
                # Closed in the middle of a grant: the next leader need not wait for the lease.
                if self._sent:
                    self._hold(None)
                    await self._release(self._sent, for_good=False)
                raise
            work = asyncio.ensure_future(body(leadership))
            try:
                leadership.end = reason = await self._renew_while(work, leadership)
            finally:
                work.cancel()
                await asyncio.wait({work})
                over = not work.cancelled() and work.exception() is None
                # Nothing acts any more, so the guardian need not kill an unreachable process.
                self._hold(None)
                await self._release(leadership.term, for_good=over)
            if work.cancelled():
                _log.warning("term %d ended: %s", leadership.term, reason)
                continue
            error = work.exception()
            if isinstance(error, LeadershipLost):
                _log.warning("term %d ended: %s", leadership.term, error)
                continue
            if isinstance(error, (OSError, TimeoutError)):
                # Pause: meanwhile another contender may reach the failing backend.
                _log.warning(
                    "term %d ended, unfinished: %s", leadership.term, str(error) or "timeout"
                )
                await asyncio.sleep(self.timing.retry_s)
                continue
            if error is not None:
                raise error
            return

    async def _acquire(self) -> Leadership:
        denied: Denied | None = None
        async with self._turns.contending():
            while True:
                await self._turns.come(denied)
                self._state = replace(self._state, timing=self._turns.timing)
                seen = await self._try_to_acquire()
                if isinstance(seen, Leadership):
                    return seen
                denied = Denied(self._living_holder(), seen.until if seen else None)

    def _living_holder(self) -> LeaderRecord | None:
        """Return the record last seen, if another contender holds it and its name can be read."""
        seen = self._state.observed.record if self._state.observed else None
        return None if seen is None or seen.holder in self._nobody_else else seen

    @property
    def _nobody_else(self) -> set[Incarnation]:
        return {Incarnation(""), NOBODY_KNOWN, self._me.holder}

    async def _try_to_acquire(self) -> Leadership | lease.Wait | None:
        """Read the record and take over if that is due; None if the backend does not answer."""
        try:
            async with asyncio.timeout(self._turns.patience_s):
                await self._look(self._turns.pushed())
                self._heed_deaths()
                action = lease.decide(self._state, self._me, self._clock.now())
                if isinstance(action, lease.Wait):
                    return action
                assert self._state.observed is not None
                floor = await self._highest_term(self._state.observed.record)
                predecessor, seen_at = self._state.observed.record, self._state.observed.at
                self._state = lease.observe(self._state, predecessor, floor, self._clock.now())
                # Without addresses: retrievers must not see this leader before it has recovered.
                session, since = str(uuid.uuid4()), self._clock.wall()
                mine = replace(self._me, session=session, since=since, rest="", rpc="")
                action = lease.decide(self._state, mine, self._clock.now())
                if isinstance(action, lease.Wait):
                    return action
            async with asyncio.timeout(self._turns.patience_s):
                self._sent = action.record.term
                await self._put(action)
        except Conflict:
            return None
        except (OSError, TimeoutError, DataError) as error:
            why = str(error) or "the register does not answer in time"
            self._complain(f"cannot contend: {why}")
            return None
        self._complaint = ""
        assert self._state.leading is not None
        self._hold(self._state.leading.deadline)
        lost_at = self._turns.died_at.get(predecessor.holder, seen_at) if predecessor.term else None
        reason = "its lease ran out"
        if not predecessor.term:
            reason = "its work was done" if floor else "nobody has led before"
        elif not predecessor.holder:
            reason = "it stepped down"
        elif predecessor.holder in self._state.dead:
            reason = "it died"
        if predecessor.holder == NOBODY_KNOWN:
            reason = "its record was damaged"
        term, session = action.record.term, action.record.session
        leadership = Leadership(term, session, predecessor, lost_at, reason, self._damage)
        leadership.acts = lambda: lease.leads(self._state, self._clock.now())
        return leadership

    async def _highest_term(self, seen: LeaderRecord) -> Term:
        """Return the highest known term; a damaged registry is an error only if none is known."""
        known = max(self._highest, seen.term)
        if seen.holder == NOBODY_KNOWN:
            return max(known, await self._floor()) + LEAP
        try:
            return max(known, await self._floor())
        except DataError:
            if not known:
                raise
            return known

    def _complain(self, grievance: str) -> None:
        """Warn why this process cannot contend; log a repeated message at debug level."""
        level = logging.DEBUG if grievance == self._complaint else logging.WARNING
        self._complaint = grievance
        _log.log(level, "%s", grievance)

    async def _renew_while(self, work: asyncio.Future[None], leadership: Leadership) -> str:
        """Renew until the body ends (return "") or the leadership is lost (return why)."""
        backoff = Backoff(RETRY_BACKOFF.first_s, self.timing.retry_s)
        lost, failures = asyncio.ensure_future(self._turns.lost()), 0
        try:
            while not work.done():
                pause_s = backoff.pause_s(failures) or self.timing.retry_s
                changed = asyncio.ensure_future(leadership.changed.wait())
                waits: set[asyncio.Future[Any]] = {work, changed, lost}
                await asyncio.wait(
                    waits,
                    timeout=min(pause_s, self._left_s()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                changed.cancel()
                leadership.changed.clear()
                if work.done():
                    break
                if lost.done():
                    return lost.result()
                reason = await self._renew(leadership)
                if self._state.leading is None:
                    return reason or "a newer term holds the lease"
                if not lease.leads(self._state, self._clock.now()):
                    return reason or "the lease was not renewed in time"
                self._hold(self._state.leading.deadline)
                # What failed is retried soon: the backend may return just before the deadline.
                failures = failures + 1 if reason else 0
        finally:
            lost.cancel()
        return ""

    async def _renew(self, leadership: Leadership) -> str:
        """Renew once; return why it failed, or ""."""
        published = leadership.published == leadership.addresses and self._version is not None
        if published and not self._turns.renews_record:
            return await self._renew_turn(leadership)
        try:
            async with asyncio.timeout(min(self.timing.renew_deadline_s / 2, self._left_s())):
                if self._version is None:
                    # The outcome of the last write is unknown: read before writing again. Standbys
                    # that have seen the record already would not count it as a renewal.
                    await self._look()
                    if self._state.leading is None:
                        return self._what_was_seen()
                rest, rpc = leadership.addresses
                mine = replace(self._me, rest=rest, rpc=rpc)
                action = lease.decide(self._state, mine, self._clock.now())
                assert isinstance(action, lease.Write)
                await self._put(action)
                leadership.acknowledged(action.record)
        except Conflict:
            self._version = None
            return "somebody else wrote the lease"
        except (OSError, TimeoutError, DataError) as error:
            self._version = None
            return f"the register does not answer: {str(error) or 'timeout'}"
        return ""

    async def _renew_turn(self, leadership: Leadership) -> str:
        """Renew without a write: confirm the turn, and look whether the record still stands."""
        try:
            async with asyncio.timeout(self._left_s()):
                proved_at = await self._confirm()
                if proved_at is not None:
                    self._state = lease.confirmed(self._state, proved_at)
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

    def _what_was_seen(self) -> str:
        """Describe what the register holds in place of our own record."""
        if self._version is None:
            return "the record by which it is found is gone"
        return "somebody else wrote the lease"

    def _left_s(self) -> float:
        """Return how long this process may still act; no wait may be longer."""
        assert self._state.leading is not None
        return max(INSTANT_S, self._state.leading.deadline - self._clock.now())

    async def _put(self, write: lease.Write) -> None:
        data = encode_leader(write.record)
        self._version = await self._register.swap(LEADER_KEY, data, self._version)
        self._highest = max(self._highest, write.record.term)
        proved_at = await self._confirm()
        self._state = lease.written(self._state, write)
        if proved_at is not None:
            self._state = lease.confirmed(self._state, proved_at)

    async def _confirm(self) -> float | None:
        """Return `Turns.confirm`; the end of the turn is an error, and ends the leadership."""
        try:
            return await self._turns.confirm()
        except LeadershipLost as error:
            self._state = replace(self._state, leading=None)
            raise OSError(str(error)) from error

    async def _look(self, pushed: Pushed | None = None) -> None:
        """Read the record, unless the backend has sent it."""
        entry = pushed.entry if pushed else await self._register.load(LEADER_KEY)
        self._version = entry.version if entry else None
        record = self._read(entry) if entry else None
        self._highest = max(self._highest, record.term if record else 0)
        self._state = lease.observe(self._state, record, 0, self._clock.now())

    def _heed_deaths(self) -> None:
        """Wait no longer for a holder that leads no more."""
        seen = self._state.observed.record if self._state.observed else None
        if seen and seen.holder not in {"", self._me.holder} and self._turns.has_left(seen.holder):
            self._state = lease.proven_dead(self._state, seen.holder)

    def _read(self, entry: Entry) -> LeaderRecord:
        """Return the record; for a damaged one, a record whose lease must run out.

        A damaged record loses nothing: the registry has the highest term, and a living holder
        writes the record again with the next renewal.
        """
        try:
            record = decode_leader(entry)
        except NewerFormatError:
            raise
        except DataError as error:
            if self._damage != str(error):
                self._damage = str(error)
                _log.warning("%s: it is replaced once its lease must have run out", error)
            return LeaderRecord(holder=NOBODY_KNOWN, term=0, session=entry.version)
        self._damage = ""
        return record

    async def _release(self, term: Term, *, for_good: bool) -> None:
        """Release the term, so that the next leader starts at once; all its work must have ended.

        ``for_good``: the cluster's work is done, and the record is deleted too. The registry keeps
        the highest term.
        """
        try:
            async with asyncio.timeout(self._turns.patience_s):
                await self._vacate(term, for_good=for_good)
        except (Conflict, OSError, TimeoutError, DataError) as error:
            _log.warning(
                "term %d was not released, it will expire: %s", term, str(error) or "timeout"
            )
        finally:
            self._state = lease.ContenderState(self._me.holder, self.timing)
            self._version = None
            self._sent = 0
        await self._turns.leave()

    async def _vacate(self, term: Term, *, for_good: bool) -> None:
        """Give up the record; retry while the register fails: there may be no other contender."""
        while True:
            try:
                await self._look()
                seen = self._state.observed.record if self._state.observed else None
                if seen and seen.holder == self._me.holder and seen.term == term:
                    vacant = LeaderRecord(holder=Incarnation(""), term=term, session=seen.session)
                    data = None if for_good else encode_leader(vacant)
                    await self._register.swap(LEADER_KEY, data, self._version)
            except (OSError, TimeoutError) as error:
                _log.warning("term %d is not released yet: %s", term, str(error) or "timeout")
                await asyncio.sleep(RETRY_BACKOFF.first_s)
            else:
                return
