"""Retrieval where the backend fails, the record is damaged, or the follower goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.ha.electorate import TIMING, Contender, Electorate, Line, two
from tests.ha.test_retrieval import follow
from understudy.clock import SystemClock
from understudy.errors import ConfigurationError
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.election import LEAP
from understudy.ha.format import Format
from understudy.ha.register import Entry
from understudy.ha.retrieval import LEADER_KEY, retrieve
from understudy.model import Incarnation, LeaderRecord

LEASE_S = TIMING.lease_s


class Silent(Line):
    """Fails twice, and then answers; never tells of a change."""

    failures = 2

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        if self.failures:
            self.failures -= 1
            raise OSError(5, "the network is gone")
        return await super().load(key)

    async def changes(self, key: str) -> AsyncIterator[None]:
        """See `Register.changes`."""
        yield
        await asyncio.Event().wait()


def names(seen: list[LeaderRecord | None]) -> list[str | None]:
    """Return the names of those who were seen."""
    return [record.name if record else None for record in seen]


def damage(them: Electorate, value: bytes) -> None:
    """Let a third party damage the leader's record, in whatever state it is."""
    person = them.world.machine("person")

    async def write() -> None:
        entry = await them.register.load(LEADER_KEY)
        await them.register.swap(LEADER_KEY, value, entry.version if entry else None)

    writing = person.spawn(write())
    them.world.run(writing.done)
    writing.result()


def watcher(them: Electorate) -> Contender:
    """Return a process that only follows."""
    found = them.contender("watcher")
    found.task.cancel()
    them.world.run(found.task.done, 5)
    return found


def test_a_follower_that_begins_while_the_backend_fails_sees_nobody_after_a_lease(
    them: Electorate,
) -> None:
    at = watcher(them)
    leader = them.contender("leader")
    them.until_led(leader)
    them.later(5)
    at.line.cut = True
    seen = follow(them, at)
    them.later(LEASE_S - 1)

    assert [] == names(seen)

    them.later(LEASE_S)

    assert [None] == names(seen)

    at.line.cut = False
    them.later(LEASE_S)

    assert [None, "leader"] == names(seen)


def test_a_leader_that_changed_during_an_outage_is_told_after_it(them: Electorate) -> None:
    leader, standby = two(them)
    at = watcher(them)
    seen = follow(them, at)
    them.later(5)
    at.line.cut = True
    leader.crash(proof=True)
    them.until_led(standby)
    them.later(5)
    at.line.cut = False
    them.later(LEASE_S)

    assert ["leader", "standby"] == [name for name in names(seen) if name]
    assert [1, 2] == [record.term for record in seen if record]


def test_an_outage_much_shorter_than_a_lease_is_not_told_at_all(them: Electorate) -> None:
    two(them)
    at = watcher(them)
    seen = follow(them, at)
    them.later(5)
    at.line.cut = True
    them.later(LEASE_S / 3)
    at.line.cut = False
    them.later(60)

    assert ["leader"] == names(seen)


@pytest.mark.parametrize("value", [b"", b"garbage", b"{}"])
def test_a_follower_outlives_a_damaged_record_and_sees_who_leads_after(
    them: Electorate, value: bytes
) -> None:
    two(them)
    at = watcher(them)
    seen = follow(them, at)
    them.later(5)
    damage(them, value)
    them.later(4 * LEASE_S)
    last = seen[-1]

    assert last is not None
    assert ("leader", 2 + LEAP) == (names(seen)[0], last.term)


def test_a_follower_outlives_a_record_of_a_later_version_until_it_is_removed(
    them: Electorate,
) -> None:
    leader, standby = two(them)
    at = watcher(them)
    seen = follow(them, at)
    them.later(5)
    later: Format[LeaderRecord] = Format("leader", LeaderRecord, version=2)
    damage(them, later.dump(LeaderRecord(Incarnation("new"), 7, "session")))
    them.later(4 * LEASE_S)

    assert ["leader", None] == names(seen)
    assert not leader.leads
    assert not standby.leads

    del them.register._entries[LEADER_KEY]
    them.until_led()
    them.later(LEASE_S)

    assert seen[-1] is not None


def test_nothing_comes_after_a_follower_was_closed(them: Electorate) -> None:
    leader, standby = two(them)
    at = watcher(them)
    seen = follow(them, at)
    them.later(5)
    following = next(task for task in at.machine.tasks() if not task.done())
    following.cancel()
    them.world.run(following.done, 5)
    at.line.cut = True
    leader.crash(proof=True)
    them.until_led(standby)
    them.later(2 * LEASE_S)

    assert ["leader"] == names(seen)
    assert [] == at.machine.tasks()


def test_a_backend_that_failed_once_is_asked_again_though_it_tells_of_no_change(
    them: Electorate,
) -> None:
    leader = them.contender("leader")
    them.until_led(leader)
    them.later(5)
    at = watcher(them)
    at.line = Silent(them.register, at.machine)
    seen = follow(them, at)
    them.later(2)

    assert ["leader"] == names(seen)


class Refused(EmbeddedRegister):
    """Answers, but does not let anybody follow a key: its rights were taken meanwhile."""

    async def changes(self, key: str) -> AsyncIterator[None]:
        """See `Register.changes`."""
        yield
        raise ConfigurationError("who we say we are is refused")


def test_what_retrying_cannot_cure_is_raised_also_by_who_only_follows() -> None:
    async def main() -> None:
        async with asyncio.timeout(10):
            async for _ in retrieve(Refused(), SystemClock(), LEASE_S):
                pass

    with pytest.raises(ConfigurationError, match="is refused"):
        asyncio.run(main())
