"""Retrieval on virtual time: who serves, told once a change."""

from __future__ import annotations

from tests.ha.electorate import TIMING, Contender, Electorate, two
from understudy.ha.retrieval import retrieve
from understudy.model import LeaderRecord

LEASE_S, DEADLINE_S = TIMING.lease_s, TIMING.renew_deadline_s


def follow(them: Electorate, at: Contender) -> list[LeaderRecord | None]:
    """Follow the leader on a contender's machine; return what is seen, as it grows."""
    seen: list[LeaderRecord | None] = []

    async def work() -> None:
        async for leader in retrieve(at.line, at.machine.clock, LEASE_S):
            seen.append(leader)

    at.machine.spawn(work())
    return seen


def test_a_follower_sees_each_leader_once_and_nobody_in_between(them: Electorate) -> None:
    watcher = them.contender("watcher")
    watcher.line.cut = True
    leader = them.contender("leader")
    watcher.line.cut = False
    watcher.task.cancel()
    seen = follow(them, watcher)
    them.until_led(leader)
    them.later(60)

    assert [None, "leader"] == [record and record.name for record in seen]

    leader.task.cancel()
    them.later(5)

    assert [None, "leader", None] == [record and record.name for record in seen]


def test_a_leader_that_begins_anew_is_a_change(them: Electorate) -> None:
    leader, standby = two(them)
    standby.task.cancel()
    seen = follow(them, standby)
    them.later(5)
    leader.machine.pause()
    them.later(DEADLINE_S + 1)
    leader.machine.resume()
    them.later(30)

    assert [1, 2] == [record.term for record in seen if record]


def test_a_backend_that_fails_is_no_leader_once_its_last_answer_is_older_than_a_lease(
    them: Electorate,
) -> None:
    leader, standby = two(them)
    standby.task.cancel()
    seen = follow(them, standby)
    them.later(5)
    standby.line.cut = True
    them.later(LEASE_S - 1)

    assert ["leader"] == [record and record.name for record in seen]

    them.later(LEASE_S)

    assert ["leader", None] == [record and record.name for record in seen]

    standby.line.cut = False
    them.later(LEASE_S)

    assert ["leader", None, "leader"] == [record and record.name for record in seen]
    assert leader.leads
