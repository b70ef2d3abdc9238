"""Retrieval on virtual time: who serves, told once a change."""

from __future__ import annotations

import pytest

from tests.ha.electorate import TIMING, Contender, Electorate, two
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.ha.retrieval import LEADER_KEY, ConfiguredLeader, retrieve, serving_leader
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


RPC, REST = "unix:@here", "http://localhost:8081"


def test_the_leader_is_where_the_configuration_says() -> None:
    async def main() -> None:
        leader = await serving_leader(ConfiguredLeader(RPC, REST))

        assert leader is not None
        assert (RPC, REST) == (leader.rpc, leader.rest)

    run_virtual(main())


def test_it_is_retrieved_once_and_never_changes() -> None:
    async def main() -> None:
        found = retrieve(ConfiguredLeader(RPC, REST), virtual_clock(), 15.0)
        leader = await anext(aiter(found))

        assert leader is not None
        assert RPC == leader.rpc

    run_virtual(main())


def test_nothing_else_is_known_and_nothing_can_be_written() -> None:
    async def main() -> None:
        register = ConfiguredLeader(RPC, REST)
        known = await register.keys("")
        registry = await register.load("registry")
        with pytest.raises(OSError, match="there is no shared register"):
            await register.swap("registry", b"mine", None)

        assert [LEADER_KEY] == known
        assert registry is None

    run_virtual(main())
