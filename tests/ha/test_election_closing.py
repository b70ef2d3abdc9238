"""Closing a contender at any moment: its work ends first, once, and nothing comes after it."""

from __future__ import annotations

import asyncio

import pytest

from tests.ha.electorate import ANSWER_S, TIMING, Contender, Electorate, two
from understudy.ha.election import Leadership
from understudy.ha.retrieval import LEADER_KEY

LEASE_S, DEADLINE_S, RETRY_S = TIMING.lease_s, TIMING.renew_deadline_s, TIMING.retry_s


def close(them: Electorate, contender: Contender, limit_s: float = DEADLINE_S / 2 + 1) -> float:
    """Close a contender in order; return how long that took."""
    began = them.world.now
    contender.task.cancel()
    them.world.run(contender.task.done, limit_s)

    assert contender.task.cancelled()
    return them.world.now - began


@pytest.mark.parametrize("step", range(14))
def test_closing_at_any_moment_of_a_grant_ends_at_once_and_lets_the_next_one_lead(
    them: Electorate, step: int
) -> None:
    closing = them.contender("closing")
    them.later(step * ANSWER_S / 2)
    closed_s = close(them, closing)
    began, tenures = them.world.now, len(closing.tenures)
    after = them.contender("after")
    waited = them.until_led(after) - began
    them.later(30)

    assert closed_s < 0.5
    assert waited < 0.5, "the lease of one who closed is not waited for"
    assert tenures == len(closing.tenures), "a grant that arrives late begins nothing"
    assert all(tenure.ended_at is not None for tenure in closing.tenures)
    assert closing.held_until is None


class Hasty(Contender):
    """Is closed in the very instant in which it is granted a term."""

    def _hold(self, deadline: float | None) -> None:
        super()._hold(deadline)
        if deadline is not None:
            self.task.cancel()


def test_closing_in_the_instant_of_a_grant_takes_back_what_the_guardian_was_told(
    them: Electorate,
) -> None:
    hasty = Hasty(them, "hasty")
    them.world.run(hasty.task.done, 5)
    after = them.contender("after")

    assert them.until_led(after) < 1
    assert [] == hasty.tenures
    assert hasty.holds[-1] is None


def test_a_leader_that_closes_ends_its_work_once_and_is_named_no_longer(them: Electorate) -> None:
    leader = them.contender("leader")
    ends: list[float] = []

    async def work(_: Leadership) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(them.world.now)

    leader.ends = work
    them.until_led()
    them.later(5)
    close(them, leader)
    record = them.record()
    them.later(60)

    assert record is not None
    assert ("", "", "", 1) == (record.holder, record.rest, record.rpc, record.term)
    assert 1 == len(ends)
    assert None is leader.holds[-1]


def test_the_guardian_is_told_that_nothing_acts_before_the_backend_is_asked(
    them: Electorate,
) -> None:
    """It may not answer: that is no reason to be killed for one who has stopped in time."""
    named: list[str] = []

    class Told(Contender):
        def _hold(self, deadline: float | None) -> None:
            super()._hold(deadline)
            record = them.record()
            if deadline is None and record:
                named.append(record.name)

    leader = Told(them, "leader")
    them.until_led()
    close(them, leader)

    assert "leader" == named[0]


def test_a_leadership_that_is_lost_while_its_leader_closes_is_not_taken_from_the_next_one(
    them: Electorate,
) -> None:
    leader = them.contender("leader")
    ends: list[float] = []

    async def slow(_: Leadership) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(them.world.now)
            await asyncio.sleep(2 * LEASE_S)

    leader.ends = slow
    them.until_led(leader)
    standby = them.contender("standby")
    them.later(5)
    leader.task.cancel()
    them.world.run(lambda: bool(standby.tenures), 60)
    them.world.run(leader.task.done, 60)
    them.later(LEASE_S)
    record = them.record()

    assert record is not None
    assert (2, "standby") == (record.term, record.holder)
    assert standby.leads
    assert 1 == len(ends), "a loss during the end does not end it a second time"


def test_closing_ends_in_half_a_renew_deadline_though_the_register_answers_nothing(
    them: Electorate,
) -> None:
    leader, standby = two(them)
    leader.line.cut = standby.line.cut = True
    standby_s, leader_s = close(them, standby), close(them, leader)

    assert standby_s < 0.5, "who holds nothing has nothing to release"
    assert leader_s <= DEADLINE_S / 2 + 0.1


def test_what_others_write_after_the_end_is_left_as_it_is(them: Electorate) -> None:
    leader, standby = two(them)
    close(them, standby)
    close(them, leader)
    writes = leader.line.writes + standby.line.writes
    del them.register._entries[LEADER_KEY]
    them.later(60)

    assert them.record() is None
    assert writes == leader.line.writes + standby.line.writes
