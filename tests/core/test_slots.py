from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from understudy.core import slots
from understudy.core.drivers import ANY, DriverState, Purpose, Seat
from understudy.core.slots import (
    Held,
    Ledger,
    Offer,
    Placement,
    Request,
    Step,
    Workplace,
    gone,
    leave,
    occupy,
    report,
    request,
    serve,
    waiting,
    wanted,
    withdraw,
)
from understudy.model import ApplicationId, Incarnation, JobId

A, B, C, D = (JobId(name) for name in "ABCD")
TM1, TM2 = Incarnation("tm1"), Incarnation("tm2")
RED, BLUE = (Purpose(ApplicationId(name), f"profile of {name}") for name in ("red", "blue"))
WARM, STARTING, BUSY, ENDING = (
    DriverState.WARM,
    DriverState.STARTING,
    DriverState.BUSY,
    DriverState.ENDING,
)


def place(name: str) -> Placement:
    taskmanager, _, _ = name.partition("/")
    return Placement(Incarnation(taskmanager), Incarnation(name))


def workplace(*drivers: str, slots: int | None = None, purpose: Purpose = ANY) -> Workplace:
    """Return a TaskManager all of whose drivers are warm."""
    seats = [
        Seat(Incarnation(name), number, WARM, purpose) for number, name in enumerate(drivers, 1)
    ]
    return Workplace(len(seats) if slots is None else slots, 0, tuple(seats))


def ledger(*drivers: str, queue: str = "", **given: str) -> Ledger:
    """Return a ledger with warm drivers and jobs of one application."""
    by_manager: dict[Incarnation, tuple[str, ...]] = {}
    for driver in (*drivers, *given.values()):
        by_manager.setdefault(place(driver).taskmanager, ())
    for driver in drivers:
        by_manager[place(driver).taskmanager] += (driver,)
    requests = {
        JobId(name): Request(JobId(name), ANY, 0, number) for number, name in enumerate(queue, 1)
    }
    return Ledger(
        {name: workplace(*names, slots=3) for name, names in by_manager.items()},
        {JobId(job): Held(place(driver), ANY) for job, driver in given.items()},
        {ANY.application_id: requests} if requests else {},
        requests=len(queue),
    )


def ask(before: Ledger, job_id: JobId, purpose: Purpose = ANY, priority: int = 0) -> Step:
    return request(before, job_id, purpose, priority)


def shown(step: Step) -> tuple[tuple[JobId, ...], dict[JobId, Placement], list[Offer]]:
    """Return who waits, who holds what, and the offers."""
    after, offers = step
    return waiting(after), {job: held.placement for job, held in after.given.items()}, offers


def offer(job_id: JobId, driver: str) -> Offer:
    return Offer(job_id, place(driver))


@pytest.mark.parametrize(
    ("before", "after", "offers"),
    [
        (ledger(), ledger(queue="A"), []),
        (ledger("tm1/1"), ledger("tm1/1", A="tm1/1"), [offer(A, "tm1/1")]),
        (ledger("tm1/1", "tm1/2"), ledger("tm1/1", "tm1/2", A="tm1/1"), [offer(A, "tm1/1")]),
        (ledger("tm1/1", B="tm1/1"), ledger("tm1/1", queue="A", B="tm1/1"), []),
        (ledger(queue="B"), ledger(queue="BA"), []),
        (ledger(queue="AB"), ledger(queue="AB"), []),
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
    assert shown((after, offers)) == shown(ask(before, A))


@pytest.mark.parametrize(
    ("before", "after", "offers"),
    [
        (ledger(), ledger(), []),
        (ledger(queue="BAC"), ledger(queue="BC"), []),
        (ledger("tm1/1", A="tm1/1"), ledger("tm1/1"), []),
        (
            ledger("tm1/1", queue="BC", A="tm1/1"),
            ledger("tm1/1", queue="C", B="tm1/1"),
            [offer(B, "tm1/1")],
        ),
        (ledger(queue="B", A="tm1/1"), ledger(queue="B"), []),
    ],
)
def test_what_is_given_back_goes_to_who_waits_longest(
    before: Ledger, after: Ledger, offers: list[Offer]
) -> None:
    assert shown((after, offers)) == shown(withdraw(before, A))


@pytest.mark.parametrize(
    ("before", "drivers", "after", "offers"),
    [
        (ledger(), ["tm1/1"], ledger("tm1/1"), []),
        (ledger("tm1/1", "tm1/2"), ["tm1/3"], ledger("tm1/3"), []),
        (ledger("tm1/1", A="tm1/1"), ["tm1/1"], ledger("tm1/1", A="tm1/1"), []),
        (
            ledger(queue="ABC"),
            ["tm1/1", "tm1/2"],
            ledger("tm1/1", "tm1/2", queue="C", A="tm1/1", B="tm1/2"),
            [offer(A, "tm1/1"), offer(B, "tm1/2")],
        ),
    ],
)
def test_a_report_replaces_what_was_warm_there_and_serves_who_waits(
    before: Ledger, drivers: list[str], after: Ledger, offers: list[Offer]
) -> None:
    step = report(before, TM1, workplace(*drivers))

    assert shown((after, offers)) == shown(step)
    assert workplace(*drivers) == step[0].workplaces[TM1]


def test_a_report_does_not_take_back_what_was_given_out_after_it() -> None:
    given = ledger("tm1/1", A="tm1/1")

    assert shown((given, [])) == shown(report(given, TM1, Workplace(1)))


def test_nothing_is_offered_where_a_taskmanager_is_gone() -> None:
    before = gone(ledger("tm1/1", "tm1/2", "tm2/1", A="tm1/1", C="tm2/1"), TM1)

    assert ((B,), []) == shown(ask(before, B))[::2]
    assert [TM2] == list(before.workplaces)


def test_a_slot_in_which_an_attempt_runs_on_is_not_given_out() -> None:
    before = occupy(ledger("tm1/1"), A, place("tm1/1"), ANY)

    assert shown((ledger("tm1/1", queue="B", A="tm1/1"), [])) == shown(ask(before, B))


def test_no_more_slots_are_given_than_the_spark_cluster_carries() -> None:
    two_slots = workplace("tm1/1", "tm1/2")
    free, _ = report(Ledger(), TM1, two_slots, carries=1)

    one, offers = ask(free, A)
    assert [offer(A, "tm1/1")] == offers
    two, offers = ask(one, B)
    assert offers == []
    grown, offers = report(two, TM1, two_slots, carries=2)
    assert [offer(B, "tm1/2")] == offers
    # A TaskManager that knows nothing of it takes nothing back.
    assert report(grown, TM1, two_slots)[0].carries == 2


def seats(*told: str) -> tuple[Seat, ...]:
    """Read "1: warm red": the driver in slot 1; "-: warm red" is a spare, "*" an attempt."""
    found = []
    for number, line in enumerate(told, 1):
        where, state, colour = line.replace(":", "").split()
        purpose = {"red": RED, "blue": BLUE}[colour]
        slot = None if where == "-" else int(where)
        runs = state.endswith("*")
        driver = Incarnation(f"tm1/{number}")
        found.append(Seat(driver, slot, DriverState(state.rstrip("*")), purpose, runs))
    return tuple(found)


def two_apps(*told: str, slots: int = 2, spares: int = 0) -> Ledger:
    """Return a ledger of one TaskManager, where red and then blue were used."""
    both = serve(serve(Ledger(), RED), BLUE)
    return report(both, TM1, Workplace(slots, spares, seats(*told)))[0]


def test_a_driver_is_given_to_jobs_of_its_own_application_and_profile_only() -> None:
    other_code = Purpose(RED.application_id, "other code")
    before = two_apps("1: warm red", "2: warm blue")

    assert [offer(A, "tm1/2")] == ask(before, A, BLUE)[1]
    assert [] == ask(before, A, other_code)[1]


def test_who_holds_fewer_slots_comes_first_and_within_an_application_who_asked_first() -> None:
    now = Ledger()
    for job_id, purpose in (("r1", RED), ("r2", RED), ("r3", RED), ("b1", BLUE), ("b2", BLUE)):
        now, _ = ask(now, JobId(job_id), purpose)
    assert ("r1", "b1", "r2", "b2", "r3") == waiting(now)

    held = occupy(now, JobId("r0"), place("tm1/1"), RED)
    assert ("b1", "r1", "b2", "r2", "r3") == waiting(held)


def test_a_higher_priority_comes_first_whoever_holds_slots() -> None:
    now = occupy(Ledger(), D, place("tm1/1"), BLUE)
    for job_id, purpose, priority in ((A, RED, 0), (B, BLUE, 5), (C, RED, 0)):
        now, _ = ask(now, job_id, purpose, priority)

    assert (B, A, C) == waiting(now)


@pytest.mark.parametrize(
    ("drivers", "expected"),
    [
        (["1: warm red", "2: warm red"], (BLUE, RED)),
        (["1: warm red", "2: starting blue"], (BLUE, RED)),
        (["1: warm red"], (BLUE, RED)),
        (["1: ending red", "2: warm red"], (BLUE, RED)),
        (["1: busy* red", "2: warm red"], (RED, BLUE)),
    ],
    ids=str,
)
def test_a_job_without_a_driver_claims_a_place_for_one(
    drivers: list[str], expected: tuple[Purpose, ...]
) -> None:
    after, offers = ask(two_apps(*drivers), A, BLUE)

    assert [] == offers
    assert expected == wanted(after)[TM1]


def test_a_claimed_place_is_not_given_to_who_came_later_and_has_a_driver() -> None:
    """Else an application with quick jobs would never let another one's drivers start."""
    before = two_apps("1: warm red", slots=1)
    blue, _ = ask(before, A, BLUE)

    after, offers = ask(blue, B, RED)

    assert ([], (A, B)) == (offers, waiting(after))
    assert (BLUE,) == wanted(after)[TM1]


def test_what_idles_is_kept_and_what_is_empty_goes_to_what_was_used_last() -> None:
    assert (BLUE, RED) == wanted(two_apps("1: warm blue", "2: warm red"))[TM1]
    assert (RED, BLUE, BLUE) == wanted(two_apps("1: warm red", spares=1))[TM1]
    assert (BLUE, RED, BLUE, RED) == wanted(two_apps(slots=4))[TM1]
    assert () == wanted(report(Ledger(), TM1, Workplace(2))[0])[TM1]


def test_an_application_that_has_ended_leaves_nothing() -> None:
    now = two_apps("1: warm red", "2: warm blue", slots=2)
    for job_id, purpose in ((A, RED), (B, RED), (C, BLUE)):
        now, _ = ask(now, job_id, purpose)

    after, offers = leave(now, RED.application_id)

    assert ((), {C: place("tm1/2")}, []) == shown((after, offers))
    assert (BLUE, BLUE) == wanted(after)[TM1]


def test_an_attempt_of_nobody_here_keeps_its_slot() -> None:
    """Of an application that cannot be read, say: what it runs goes on."""
    before = two_apps("1: busy* red", "-: warm blue", slots=1, spares=1)

    assert [] == ask(before, A, BLUE)[1]


def test_a_warm_spare_serves_where_a_slot_is_free() -> None:
    before = two_apps("1: warm red", "-: warm blue", slots=1, spares=1)

    assert [offer(A, "tm1/2")] == ask(before, A, BLUE)[1]


def test_a_job_waits_for_the_driver_that_has_just_ended_another_rather_than_for_a_spare() -> None:
    settling = two_apps("1: busy red", "-: warm red", slots=1, spares=1)

    waits, offers = ask(settling, A, RED)
    clean = two_apps("1: warm red", "-: warm red", slots=1, spares=1).workplaces[TM1]
    unclean = two_apps("1: ending red", "-: warm red", slots=1, spares=1).workplaces[TM1]

    assert [] == offers
    assert [offer(A, "tm1/1")] == report(waits, TM1, clean)[1]
    assert [offer(A, "tm1/2")] == report(waits, TM1, unclean)[1]


def test_a_spare_of_another_application_waits_for_no_driver_that_has_just_ended_an_attempt() -> (
    None
):
    before = two_apps("1: busy red", "-: warm blue", slots=1, spares=1)

    assert [offer(A, "tm1/2")] == ask(before, A, BLUE)[1]


def test_where_drivers_of_a_purpose_cannot_start_others_are_asked_first() -> None:
    both = report(two_apps(slots=1), TM2, Workplace(1))[0]
    failing = slots.cannot_start(both, TM1, RED.application_id)

    assert (RED,) == wanted(ask(failing, A, RED)[0])[TM2]
    assert (BLUE,) == wanted(ask(failing, A, BLUE)[0])[TM1]
    warm_again = report(failing, TM1, Workplace(1, 0, seats("1: warm red")))[0]
    assert [offer(A, "tm1/1")] == ask(warm_again, A, RED)[1]
    assert frozenset() == warm_again.failing


class SlotsExplored(RuleBasedStateMachine):
    jobs = st.sampled_from([JobId(name) for name in ("r1", "r2", "r3", "b1", "b2", "b3")])
    managers = st.sampled_from([TM1, TM2])
    places = st.sampled_from([place(f"tm{tm}/{number}") for tm in (1, 2) for number in (1, 2, 3)])

    def __init__(self) -> None:
        super().__init__()
        self.ledger = serve(serve(Ledger(), RED), BLUE)
        self.queues: dict[Purpose, list[JobId]] = {RED: [], BLUE: []}
        self.given: dict[JobId, Placement] = {}

    def purpose(self, job_id: str) -> Purpose:
        return RED if job_id.startswith("r") else BLUE

    def take(self, step: Step) -> None:
        self.ledger, offers = step
        for each in offers:
            purpose = self.purpose(each.job_id)
            assert self.queues[purpose].pop(0) == each.job_id, "first come, first served"
            assert each.placement not in self.given.values(), "a driver has one job"
            workplace = self.ledger.workplaces[each.placement.taskmanager]
            (seat,) = (one for one in workplace.seats if one.driver == each.placement.driver)
            assert (WARM, purpose) == (seat.state, seat.purpose)
            self.given[each.job_id] = each.placement

    @rule(job_id=jobs, priority=st.sampled_from([0, 0, 0, 1]))
    def ask(self, job_id: JobId, priority: int) -> None:
        purpose = self.purpose(job_id)
        if job_id not in self.queues[purpose] and job_id not in self.given:
            self.queues[purpose].append(job_id)
        self.take(request(self.ledger, job_id, purpose, priority))

    @rule(job_id=jobs)
    def give_back(self, job_id: JobId) -> None:
        purpose = self.purpose(job_id)
        self.queues[purpose] = [each for each in self.queues[purpose] if each != job_id]
        self.given.pop(job_id, None)
        self.take(withdraw(self.ledger, job_id))

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.give_back(data.draw(st.sampled_from(sorted(self.given))))

    @rule(
        taskmanager=managers,
        told=st.lists(
            st.tuples(
                st.sampled_from([WARM, WARM, STARTING, ENDING]), st.sampled_from([RED, BLUE])
            ),
            max_size=3,
        ),
    )
    def tell(self, taskmanager: Incarnation, told: list[tuple[DriverState, Purpose]]) -> None:
        drivers = [
            Seat(Incarnation(f"{taskmanager}/{number}"), number if number < 3 else None, *each)
            for number, each in enumerate(told, 1)
        ]
        self.take(report(self.ledger, taskmanager, Workplace(2, 1, tuple(drivers))))

    @rule(taskmanager=managers)
    def lose(self, taskmanager: Incarnation) -> None:
        self.ledger = gone(self.ledger, taskmanager)

    @rule(job_id=jobs, placement=places)
    def run_on(self, job_id: JobId, placement: Placement) -> None:
        # An attempt that runs on stays where it is, however often its TaskManager registers.
        placement = self.given.get(job_id, placement)
        others = [where for job, where in self.given.items() if job != job_id]
        if job_id not in self.queues[self.purpose(job_id)] and placement not in others:
            self.given[job_id] = placement
            self.ledger = occupy(self.ledger, job_id, placement, self.purpose(job_id))

    @invariant()
    def nothing_is_lost(self) -> None:
        for purpose, queue in self.queues.items():
            found = self.ledger.queues.get(purpose.application_id, {})
            assert queue == [one.job_id for one in found.values()] == list(found)
        assert self.given == {job: held.placement for job, held in self.ledger.given.items()}

    @invariant()
    def no_taskmanager_has_more_than_it_has_room_for(self) -> None:
        for name, found in wanted(self.ledger).items():
            held = sum(place.taskmanager == name for place in self.given.values())

            assert len(found) <= max(3, held)

    @invariant()
    def the_first_in_line_does_not_wait_beside_a_warm_driver(self) -> None:
        line = waiting(self.ledger)
        taken = {placement.driver for placement in self.given.values()}
        held = [placement.taskmanager for placement in self.given.values()]
        fitting = [
            seat.driver
            for name, workplace in self.ledger.workplaces.items()
            for seat in workplace.seats
            if line
            and held.count(name) < workplace.slots
            and seat.state is WARM
            and seat.purpose == self.purpose(line[0])
        ]

        assert not {*fitting} - taken

    @invariant()
    def the_first_in_line_gets_a_driver_where_a_slot_is_free(self) -> None:
        line = waiting(self.ledger)
        held = [placement.taskmanager for placement in self.given.values()]
        for name, workplace in self.ledger.workplaces.items():
            if line and held.count(name) < workplace.slots:
                purposes = [one for found in wanted(self.ledger).values() for one in found]
                running = sum(
                    self.purpose(job_id) == self.purpose(line[0])
                    and placement.taskmanager in self.ledger.workplaces
                    for job_id, placement in self.given.items()
                )

                assert purposes.count(self.purpose(line[0])) > running


SlotsExplored.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True
)
TestSlotsExplored = SlotsExplored.TestCase
