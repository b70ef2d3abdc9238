from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from understudy.core.slots import (
    Ledger,
    Offer,
    Placement,
    gone,
    occupy,
    report,
    request,
    withdraw,
)
from understudy.model import Incarnation, JobId

A, B, C, D = (JobId(name) for name in "ABCD")
TM1, TM2 = Incarnation("tm1"), Incarnation("tm2")


def place(name: str) -> Placement:
    taskmanager, _, _ = name.partition("/")
    return Placement(Incarnation(taskmanager), Incarnation(name))


def warm(*names: str) -> tuple[Incarnation, ...]:
    return tuple(Incarnation(name) for name in names)


def ledger(*drivers: str, waiting: tuple[JobId, ...] = (), **given: str) -> Ledger:
    by_manager: dict[Incarnation, tuple[Incarnation, ...]] = {}
    for driver in drivers:
        taskmanager = place(driver).taskmanager
        by_manager[taskmanager] = (*by_manager.get(taskmanager, ()), Incarnation(driver))
    return Ledger(by_manager, {JobId(job): place(driver) for job, driver in given.items()}, waiting)


def offer(job_id: JobId, driver: str) -> Offer:
    return Offer(job_id, place(driver))


@pytest.mark.parametrize(
    ("before", "after", "offers"),
    [
        (ledger(), ledger(waiting=(A,)), []),
        (ledger("tm1/1"), ledger("tm1/1", A="tm1/1"), [offer(A, "tm1/1")]),
        (ledger("tm1/1", "tm1/2"), ledger("tm1/1", "tm1/2", A="tm1/1"), [offer(A, "tm1/1")]),
        (ledger("tm1/1", B="tm1/1"), ledger("tm1/1", waiting=(A,), B="tm1/1"), []),
        (ledger(waiting=(B,)), ledger(waiting=(B, A)), []),
        (ledger(waiting=(A, B)), ledger(waiting=(A, B)), []),
        (ledger("tm1/2", A="tm1/1"), ledger("tm1/2", A="tm1/1"), []),
        (
            ledger("tm1/2", "tm2/1", B="tm1/1"),
            ledger("tm1/2", "tm2/1", A="tm2/1", B="tm1/1"),
            [offer(A, "tm2/1")],
        ),
        (
            ledger("tm1/2", "tm2/3", B="tm1/1", C="tm2/1", D="tm2/2"),
            ledger("tm1/2", "tm2/3", A="tm1/2", B="tm1/1", C="tm2/1", D="tm2/2"),
            [offer(A, "tm1/2")],
        ),
    ],
)
def test_who_asks_gets_a_free_warm_slot_where_least_is_going_on_or_waits(
    before: Ledger, after: Ledger, offers: list[Offer]
) -> None:
    expected = (after, offers)

    actual = request(before, A)

    assert expected == actual


@pytest.mark.parametrize(
    ("before", "after", "offers"),
    [
        (ledger(), ledger(), []),
        (ledger(waiting=(B, A, C)), ledger(waiting=(B, C)), []),
        (ledger("tm1/1", A="tm1/1"), ledger("tm1/1"), []),
        (
            ledger("tm1/1", waiting=(B, C), A="tm1/1"),
            ledger("tm1/1", waiting=(C,), B="tm1/1"),
            [offer(B, "tm1/1")],
        ),
        (ledger(waiting=(B,), A="tm1/1"), ledger(waiting=(B,)), []),
    ],
)
def test_what_is_given_back_goes_to_who_waits_longest(
    before: Ledger, after: Ledger, offers: list[Offer]
) -> None:
    expected = (after, offers)

    actual = withdraw(before, A)

    assert expected == actual


@pytest.mark.parametrize(
    ("before", "drivers", "after", "offers"),
    [
        (ledger(), warm("tm1/1"), ledger("tm1/1"), []),
        (ledger("tm1/1", "tm1/2"), warm("tm1/3"), ledger("tm1/3"), []),
        (ledger("tm1/1", A="tm1/1"), warm("tm1/1"), ledger("tm1/1", A="tm1/1"), []),
        (
            ledger(waiting=(A, B, C)),
            warm("tm1/1", "tm1/2"),
            ledger("tm1/1", "tm1/2", waiting=(C,), A="tm1/1", B="tm1/2"),
            [offer(A, "tm1/1"), offer(B, "tm1/2")],
        ),
    ],
)
def test_a_report_replaces_what_was_warm_there_and_serves_who_waits(
    before: Ledger, drivers: tuple[Incarnation, ...], after: Ledger, offers: list[Offer]
) -> None:
    expected = (after, offers)

    actual = report(before, TM1, drivers)

    assert expected == actual


def test_a_report_does_not_take_back_what_was_given_out_after_it() -> None:
    given = ledger("tm1/1", A="tm1/1")
    expected: tuple[Ledger, list[Offer]] = (Ledger({TM1: ()}, given.given, ()), [])

    actual = report(given, TM1, ())

    assert expected == actual


def test_nothing_is_offered_where_a_taskmanager_is_gone() -> None:
    expected: tuple[Ledger, list[Offer]] = (ledger("tm2/1", waiting=(B,), A="tm1/1", C="tm2/1"), [])

    actual = request(gone(ledger("tm1/1", "tm1/2", "tm2/1", A="tm1/1", C="tm2/1"), TM1), B)

    assert expected == actual


def test_a_slot_in_which_an_attempt_runs_on_is_not_given_out() -> None:
    expected: tuple[Ledger, list[Offer]] = (ledger("tm1/1", waiting=(B,), A="tm1/1"), [])

    actual = request(occupy(ledger("tm1/1"), A, place("tm1/1")), B)

    assert expected == actual


class SlotsExplored(RuleBasedStateMachine):
    jobs = st.sampled_from([JobId(name) for name in "ABCDEF"])
    managers = st.sampled_from([TM1, TM2, Incarnation("tm3")])
    places = st.sampled_from(
        [place(f"tm{tm}/{number}") for tm in (1, 2, 3) for number in (1, 2, 3)]
    )

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.queue: list[JobId] = []
        self.given: dict[JobId, Placement] = {}
        self.warm: dict[Incarnation, set[Incarnation]] = {}

    def take(self, step: tuple[Ledger, list[Offer]]) -> None:
        self.ledger, offers = step
        for each in offers:
            assert self.queue.pop(0) == each.job_id, "who asked first is served first"
            assert each.placement.driver in self.warm.get(each.placement.taskmanager, set())
            assert each.placement not in self.given.values(), "a driver has one job"
            self.given[each.job_id] = each.placement

    @rule(job_id=jobs)
    def ask(self, job_id: JobId) -> None:
        if job_id not in self.queue and job_id not in self.given:
            self.queue.append(job_id)
        self.take(request(self.ledger, job_id))

    @rule(job_id=jobs)
    def give_back(self, job_id: JobId) -> None:
        self.queue = [each for each in self.queue if each != job_id]
        self.given.pop(job_id, None)
        self.take(withdraw(self.ledger, job_id))

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.give_back(data.draw(st.sampled_from(sorted(self.given))))

    @rule(taskmanager=managers, numbers=st.sets(st.integers(1, 3)))
    def tell(self, taskmanager: Incarnation, numbers: set[int]) -> None:
        drivers = [Incarnation(f"{taskmanager}/{number}") for number in sorted(numbers)]
        self.warm[taskmanager] = set(drivers)
        self.take(report(self.ledger, taskmanager, tuple(drivers)))

    @rule(taskmanager=managers)
    def lose(self, taskmanager: Incarnation) -> None:
        self.warm.pop(taskmanager, None)
        self.ledger = gone(self.ledger, taskmanager)

    @rule(job_id=jobs, placement=places)
    def run_on(self, job_id: JobId, placement: Placement) -> None:
        # An attempt that runs on stays where it is, however often its TaskManager registers.
        placement = self.given.get(job_id, placement)
        others = [where for job, where in self.given.items() if job != job_id]
        if job_id not in self.queue and placement not in others:
            self.given[job_id] = placement
            self.ledger = occupy(self.ledger, job_id, placement)

    @invariant()
    def nothing_is_lost(self) -> None:
        assert tuple(self.queue) == self.ledger.waiting
        assert self.given == dict(self.ledger.given)

    @invariant()
    def nobody_waits_beside_a_free_warm_slot(self) -> None:
        taken = {placement.driver for placement in self.ledger.given.values()}
        free = {driver for drivers in self.ledger.warm.values() for driver in drivers} - taken

        assert not (self.ledger.waiting and free)


SlotsExplored.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True
)
TestSlotsExplored = SlotsExplored.TestCase


def test_no_more_slots_are_given_than_the_spark_cluster_carries() -> None:
    drivers = warm("tm1/1", "tm1/2")
    free, _ = report(Ledger(), TM1, drivers, carries=1)

    one, offers = request(free, A)
    assert [Offer(A, place("tm1/1"))] == offers
    two, offers = request(one, B)
    assert offers == []
    grown, offers = report(two, TM1, drivers, carries=2)
    assert [Offer(B, place("tm1/2"))] == offers
    # A TaskManager that knows nothing of it takes nothing back.
    assert report(grown, TM1, drivers)[0].carries == 2
