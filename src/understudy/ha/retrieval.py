"""Leader retrieval over any register, written once: the serving leader, and each change.

Without a register (``high-availability.type: NONE``), TaskManagers and clients see one leader at a
fixed address of the configuration, running or not, and retry that address. All other state is in
the JobManager's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncIterator

from understudy.clock import Clock
from understudy.core.backoff import Backoff
from understudy.errors import DataError
from understudy.ha.format import Format
from understudy.ha.register import Entry, Pushed, Register
from understudy.model import Incarnation, LeaderRecord

LEADER_KEY = "leader"

RETRY_BACKOFF = Backoff(0.1, 5.0)
"""The pauses between tries with a failing backend."""

VERSION = "configured"

WHOEVER = Incarnation("configured")
"""The process at the configured address leads, whichever it is."""

_log = logging.getLogger(__name__)
_format: Format[LeaderRecord] = Format("leader", LeaderRecord)


async def retrieve(
    register: Register, clock: Clock, lease_s: float
) -> AsyncIterator[LeaderRecord | None]:
    """Yield the serving leader now and after each change; None while no leader serves.

    After an error of the backend, or a damaged record, the read is repeated with backoff. The
    result is "no leader" once the last sound answer is older than a lease.
    """
    last: tuple[str, ...] | bool | None = False
    answered_at, failures = clock.now(), 0
    news = WakeUps()
    following = asyncio.ensure_future(wake_at_changes(register, clock, news))
    following.add_done_callback(lambda _: news.ring(None))
    try:
        while True:
            pushed = news.take()
            try:
                async with asyncio.timeout(lease_s / 2):
                    entry = pushed.entry if pushed else await register.load(LEADER_KEY)
                leader = _serving(entry)
                answered_at, failures = clock.now(), 0
            except (OSError, TimeoutError, DataError) as error:
                if not failures:
                    _log.warning("the leader cannot be retrieved: %s", str(error) or "timeout")
                failures += 1
                leader = None
            seen = (leader.holder, str(leader.term), leader.rest, leader.rpc) if leader else None
            if seen != last and (not failures or clock.now() - answered_at >= lease_s):
                last = seen
                yield leader
            if following.done():
                following.result()  # Raises: a retry cannot help, and no wake-up would come.
            await news.within(RETRY_BACKOFF.pause_s(failures) or None)
    finally:
        following.cancel()


async def serving_leader(register: Register) -> LeaderRecord | None:
    """Return the serving leader, freshly read from the register; None if there is none."""
    return _serving(await register.load(LEADER_KEY))


def _serving(entry: Entry | None) -> LeaderRecord | None:
    record = decode_leader(entry) if entry else None
    return record if record and record.holder and record.rpc else None


def encode_leader(record: LeaderRecord) -> bytes:
    """Return the bytes of a leader record."""
    return _format.dump(record)


def decode_leader(entry: Entry) -> LeaderRecord:
    """Read a leader record; raises `DataError`, which names the entry."""
    source = f"register entry {LEADER_KEY}" + (entry.place and f" ({entry.place})")
    return _format.load(entry.value, source)


class WakeUps:
    """The wake-ups of one follower, and the entry that came with the last one, if one did."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._pushed: Pushed | None = None

    def ring(self, pushed: Pushed | None) -> None:
        """Wake the follower; a later wake-up replaces an earlier one."""
        self._pushed = pushed
        self._event.set()

    def take(self) -> Pushed | None:
        """Return the entry of the last wake-up, once; None: the follower has to load."""
        pushed, self._pushed = self._pushed, None
        self._event.clear()
        return pushed

    async def within(self, timeout_s: float | None) -> None:
        """Wait for a wake-up, but no longer than ``timeout_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()


async def _patient_changes(register: Register, clock: Clock) -> AsyncIterator[Pushed | None]:
    """Yield at each wake-up of the backend; after an error start again with backoff."""
    failures, reported = 0, ""
    while True:
        try:
            async for pushed in register.changes(LEADER_KEY):
                failures, reported = 0, ""
                yield pushed
        except (OSError, TimeoutError) as error:
            if reported != str(error):
                reported = str(error)
                _log.warning("following the leader is interrupted: %s", reported or "timeout")
            yield None
            failures += 1
            await asyncio.sleep(RETRY_BACKOFF.pause_s(failures))


async def wake_at_changes(register: Register, clock: Clock, news: WakeUps) -> None:
    """Ring whenever the leader's record may have changed; never returns."""
    async for pushed in _patient_changes(register, clock):
        news.ring(pushed)


class ConfiguredLeader:
    """A read-only register with one entry: the leader record with the configured addresses."""

    def __init__(self, rpc: str, rest: str) -> None:
        record = LeaderRecord(
            holder=WHOEVER,
            term=1,
            session="",
            name="jobmanager",
            rpc=rpc,
            rest=rest,
        )
        self._entry = Entry(encode_leader(record), VERSION)

    async def load(self, key: str) -> Entry | None:
        """Return the leader's entry; None for any other key."""
        return self._entry if key == LEADER_KEY else None

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Raise ``OSError``: there is no shared register to write to."""
        raise OSError(errno.EROFS, "high-availability.type is NONE: there is no shared register")

    async def keys(self, prefix: str) -> list[str]:
        """Return the leader's key if it has the prefix."""
        return [LEADER_KEY] if LEADER_KEY.startswith(prefix) else []

    async def changes(self, key: str) -> AsyncIterator[None]:
        """Wake once: the entry never changes."""
        yield
        await asyncio.Event().wait()
