from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from understudy.core import reaching
from understudy.core.reaching import BeginJobs, Command, GiveWay, ReachingState
from understudy.model import JobId

A, B, C, X, Y = (JobId(name) for name in "ABCXY")
GRACE_S = 5.0


def started(*running: JobId) -> ReachingState:
    return reaching.main_started(ReachingState(GRACE_S), frozenset(running))


def test_where_nothing_runs_every_job_begins_at_once() -> None:
    expected = (ReachingState(GRACE_S), [BeginJobs((X,))])

    actual = reaching.reached(started(), X, known=False, now=0.0)

    assert expected == actual


def test_a_job_that_the_last_execution_had_submitted_begins_at_once() -> None:
    expected = (ReachingState(GRACE_S, frozenset({B})), [BeginJobs((A,))])

    actual = reaching.reached(started(A, B), A, known=True, now=0.0)

    assert expected == actual


def test_a_job_of_another_path_is_held_for_a_grace() -> None:
    expected: reaching.Step = (ReachingState(GRACE_S, frozenset({A}), held=(X,), deadline=15.0), [])

    actual = reaching.reached(started(A), X, known=False, now=10.0)

    assert expected == actual


def test_held_jobs_begin_in_their_order_when_the_last_unreached_is_reached() -> None:
    expected = (ReachingState(GRACE_S), [BeginJobs((A,)), BeginJobs((X, Y))])

    state, _ = reaching.reached(started(A), X, known=False, now=10.0)
    state, _ = reaching.reached(state, Y, known=False, now=12.0)
    actual = reaching.reached(state, A, known=True, now=14.0)

    assert expected == actual


def test_held_jobs_begin_when_the_last_unreached_ends_by_itself() -> None:
    expected = (ReachingState(GRACE_S), [BeginJobs((X,))])

    state, _ = reaching.reached(started(A), X, known=False, now=10.0)
    actual = reaching.stopped(state, A)

    assert expected == actual


def test_after_the_grace_the_unreached_give_way_and_held_jobs_begin_once_all_are_dead() -> None:
    state, _ = reaching.reached(started(B, A, C), X, known=False, now=10.0)
    state, _ = reaching.reached(state, C, known=True, now=11.0)
    expected: list[list[Command]] = [[], [GiveWay((A, B))], [], [], [BeginJobs((X,))]]

    actual = []
    state, early = reaching.expired(state, 14.9)
    actual.append(early)
    state, late = reaching.expired(state, 15.0)
    actual.append(late)
    state, again = reaching.expired(state, 99.0)
    actual.append(again)
    state, first = reaching.stopped(state, B)
    actual.append(first)
    state, last = reaching.stopped(state, A)
    actual.append(last)

    assert expected == actual
    assert ReachingState(GRACE_S) == state


def test_the_grace_is_counted_from_the_first_who_waits() -> None:
    expected = 15.0

    state, _ = reaching.reached(started(A), X, known=False, now=10.0)
    state, _ = reaching.reached(state, Y, known=False, now=13.0)
    state = reaching.no_slot(state, Y, 14.0)

    assert expected == state.deadline


def test_a_reached_job_without_a_slot_lets_the_unreached_give_way_too() -> None:
    expected = (ReachingState(GRACE_S, giving_way=frozenset({B})), [GiveWay((B,))])

    state, _ = reaching.reached(started(A, B), A, known=True, now=10.0)
    actual = reaching.expired(reaching.no_slot(state, A, 10.0), 15.0)

    assert expected == actual


def test_without_unreached_jobs_nobody_has_to_give_way_for_a_slot() -> None:
    expected = started()

    actual = reaching.no_slot(started(), X, 10.0)

    assert expected == actual


def test_a_job_that_comes_while_others_give_way_waits_for_their_death_only() -> None:
    expected = ReachingState(GRACE_S, giving_way=frozenset({A}), held=(Y,))

    state = reaching.no_slot(started(A), X, 0.0)
    state, _ = reaching.expired(state, 5.0)
    actual, commands = reaching.reached(state, Y, known=False, now=6.0)

    assert (expected, []) == (actual, commands)
    assert (ReachingState(GRACE_S), [BeginJobs((Y,))]) == reaching.stopped(actual, A)


def test_a_job_that_is_reached_while_it_gives_way_is_still_waited_for() -> None:
    expected = (ReachingState(GRACE_S, giving_way=frozenset({A}), held=(X,)), [BeginJobs((A,))])

    state, _ = reaching.reached(started(A), X, known=False, now=0.0)
    state, _ = reaching.expired(state, 5.0)
    actual = reaching.reached(state, A, known=True, now=6.0)

    assert expected == actual


def test_a_new_execution_of_main_holds_nobody_and_counts_anew() -> None:
    expected = ReachingState(GRACE_S, frozenset({B}), giving_way=frozenset({A}))

    state, _ = reaching.reached(started(A), X, known=False, now=0.0)
    state, _ = reaching.expired(state, 5.0)
    state, _ = reaching.reached(state, Y, known=False, now=6.0)
    actual = reaching.main_started(state, frozenset({B}))

    assert expected == actual


def test_nobody_gives_way_once_all_are_reached() -> None:
    expected: reaching.Step = (ReachingState(GRACE_S), [])

    state = reaching.no_slot(started(A), X, 0.0)
    state, _ = reaching.reached(state, A, known=True, now=4.0)
    actual = reaching.expired(state, 5.0)

    assert expected == actual


def test_nobody_gives_way_for_a_held_job_that_has_ended() -> None:
    expected: list[Command] = []

    state, _ = reaching.reached(started(A), X, known=False, now=0.0)
    state, _ = reaching.stopped(state, X)
    _, actual = reaching.expired(state, 5.0)

    assert expected == actual


def test_the_others_still_give_way_for_who_waits_beside_one_that_has_ended() -> None:
    expected = ReachingState(GRACE_S, frozenset({A}), held=(Y,), deadline=5.0)

    state, _ = reaching.reached(started(A), X, known=False, now=0.0)
    state, _ = reaching.reached(state, Y, known=False, now=1.0)
    actual, commands = reaching.stopped(state, X)

    assert (expected, []) == (actual, commands)
    assert [GiveWay((A,))] == reaching.expired(actual, 5.0)[1]


def test_a_held_job_that_has_ended_does_not_begin() -> None:
    expected = (ReachingState(GRACE_S), [BeginJobs((Y,))])

    state, _ = reaching.reached(started(A), X, known=False, now=0.0)
    state, _ = reaching.reached(state, Y, known=False, now=1.0)
    state, _ = reaching.stopped(state, X)
    actual = reaching.stopped(state, A)

    assert expected == actual


@pytest.mark.parametrize("how", ["found a slot", "ended"])
def test_nobody_gives_way_for_a_job_that_does_not_wait_for_a_slot_any_more(how: str) -> None:
    expected = started(A)

    state = reaching.no_slot(started(A), X, 0.0)
    actual = (
        reaching.found_slot(state, X) if how == "found a slot" else reaching.stopped(state, X)[0]
    )

    assert expected == actual


def test_who_waits_for_a_slot_goes_on_waiting_when_another_gets_one() -> None:
    expected = ReachingState(GRACE_S, frozenset({A}), slotless=frozenset({Y}), deadline=5.0)

    state = reaching.no_slot(started(A), X, 0.0)
    state = reaching.no_slot(state, Y, 1.0)
    actual = reaching.found_slot(state, X)

    assert expected == actual


def test_a_slot_found_ends_no_wait_of_a_held_job() -> None:
    expected = ReachingState(GRACE_S, frozenset({A}), held=(Y,), deadline=5.0)

    state = reaching.no_slot(started(A), X, 0.0)
    state, _ = reaching.reached(state, Y, known=False, now=1.0)
    actual = reaching.found_slot(state, X)

    assert expected == actual


def test_who_waits_anew_waits_a_whole_grace() -> None:
    expected = ReachingState(GRACE_S, frozenset({A}), slotless=frozenset({X}), deadline=9.0)

    state = reaching.found_slot(reaching.no_slot(started(A), X, 0.0), X)
    actual = reaching.no_slot(state, X, 4.0)

    assert expected == actual


def test_a_new_execution_of_main_forgets_who_waited_for_a_slot() -> None:
    expected = started(B)

    actual = reaching.main_started(reaching.no_slot(started(A), X, 0.0), frozenset({B}))

    assert expected == actual


class ReachingExplored(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = ReachingState(GRACE_S)
        self.now = 0.0
        self.alive: set[JobId] = set()
        """Attempts that live, of this execution or the last."""
        self.unreached: set[JobId] = set()
        self.stopping: set[JobId] = set()
        self.asked: set[JobId] = set()
        self.begun: set[JobId] = set()
        self.held: list[JobId] = []
        self.slotless: set[JobId] = set()
        self.waits_since: float | None = None

    def take(self, step: reaching.Step) -> None:
        self.state, commands = step
        for command in commands:
            if isinstance(command, GiveWay):
                assert set(command.jobs) == self.unreached, "all unreached, and nobody else"
                assert self.waits_since is not None
                assert self.now >= self.waits_since + GRACE_S, "not before the grace is over"
                self.stopping |= self.unreached
                self.unreached, self.slotless = set(), set()
                self.waits_since = None
                continue
            for job_id in command.jobs:
                assert job_id in self.asked, "only who was reached begins"
                assert job_id not in self.begun, "nobody begins twice"
                if job_id in self.held:
                    assert not (self.unreached | self.stopping), "the others live yet"
                    assert job_id == self.held.pop(0), "in their order"
                self.begun.add(job_id)
                self.alive.add(job_id)

    @initialize(running=st.sets(st.sampled_from("ABCDE")))
    def begin_after_a_failover(self, running: set[str]) -> None:
        self.alive = {JobId(name) for name in running}
        self.main_starts()

    def main_starts(self) -> None:
        self.unreached = set(self.alive)
        self.asked, self.begun, self.held, self.waits_since = set(), set(), [], None
        self.slotless = set()
        self.state = reaching.main_started(self.state, frozenset(self.alive))

    @rule()
    def main_is_executed_again(self) -> None:
        self.main_starts()

    @precondition(lambda self: self.unreached - self.stopping)
    @rule(data=st.data())
    def main_reaches_a_running_one(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.unreached - self.stopping)))
        self.unreached.discard(job_id)
        self.asked.add(job_id)
        self.take(reaching.reached(self.state, job_id, known=True, now=self.now))
        assert job_id in self.begun, "a known job begins at once"

    @rule(name=st.sampled_from("UVWXYZ"), known=st.booleans())
    def main_reaches_one_that_does_not_run(self, name: str, known: bool) -> None:
        job_id = JobId(name)
        if job_id in self.asked or job_id in self.alive:
            return
        self.asked.add(job_id)
        if not known and (self.unreached or self.stopping):
            self.held.append(job_id)
            if self.unreached and self.waits_since is None:
                self.waits_since = self.now
        self.take(reaching.reached(self.state, job_id, known=known, now=self.now))
        assert (job_id in self.begun) != (job_id in self.held), "it begins, or is held"

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def one_finds_no_slot(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.begun)))
        if self.unreached:
            self.slotless.add(job_id)
            if self.waits_since is None:
                self.waits_since = self.now
        self.state = reaching.no_slot(self.state, job_id, self.now)

    @precondition(lambda self: self.slotless)
    @rule(data=st.data())
    def one_finds_a_slot(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.slotless)))
        self.slotless.discard(job_id)
        self.state = reaching.found_slot(self.state, job_id)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.alive)))
        self.end(job_id)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def a_held_one_is_cancelled(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(self.held))
        self.held.remove(job_id)
        self.asked.discard(job_id)
        self.end(job_id)

    def end(self, job_id: JobId) -> None:
        self.alive.discard(job_id)
        self.slotless.discard(job_id)
        self.unreached.discard(job_id)
        self.stopping.discard(job_id)
        self.take(reaching.stopped(self.state, job_id))

    @rule(seconds=st.sampled_from([0.1, 2.0, 4.9, 5.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.take(reaching.expired(self.state, self.now))

    @invariant()
    def the_grace_runs_while_somebody_waits_for_the_unreached_and_only_then(self) -> None:
        if not self.unreached:
            self.slotless = set()
        if not (self.unreached and (self.held or self.slotless)):
            self.waits_since = None
        expected = None if self.waits_since is None else self.waits_since + GRACE_S

        assert expected == self.state.deadline
        assert self.held == list(self.state.held)
        assert self.slotless == self.state.slotless

    @invariant()
    def who_gives_way_is_waited_for(self) -> None:
        assert self.stopping == self.state.giving_way
        assert self.unreached == self.state.unreached

    def teardown(self) -> None:
        # Whatever happened: after the grace, and the death of those who give way, all begin.
        self.time_passes(GRACE_S)
        for job_id in sorted(self.stopping):
            self.end(job_id)

        assert self.asked == self.begun


ReachingExplored.TestCase.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None, derandomize=True
)
TestReachingExplored = ReachingExplored.TestCase
