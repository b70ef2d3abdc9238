"""Workers: how many TaskManagers are asked for, which are let go, and what a failure costs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from understudy.core.backoff import Backoff
from understudy.core.drivers import DriverState, Purpose, Seat
from understudy.core.slots import Ledger, Workplace, report, request
from understudy.core.workers import (
    Command,
    Create,
    Demand,
    Event,
    Load,
    Pool,
    PoolLimits,
    SeenWorker,
    TimePassed,
    WorkerId,
    WorkerRefused,
    WorkersListed,
    WorkerState,
    WorkersUnseen,
    dead,
    demand_of,
    going,
    next_look,
    step,
    why_none,
)
from understudy.model import ApplicationId, Incarnation, JobId

EXPLORE = settings(max_examples=150, deadline=None, derandomize=True)

IDLE_S, REGISTRATION_S, RECOVERY_S, RETRY_S = 30.0, 300.0, 40.0, 3.0
LIMITS = PoolLimits(
    2, 0, 100, 0, IDLE_S, REGISTRATION_S, RECOVERY_S, Backoff(RETRY_S, 300.0)
)  # Two slots each.
TERM = 7
NOBODY = WorkersListed(())
COMING, RUNNING, ENDING, DEAD = WorkerState
Story = list[tuple[float, Event]]


def pool(**limits: float) -> Pool:
    """Return the pool of a new leader."""
    return Pool(TERM, replace(LIMITS, **limits))


def seen(number: int, state: WorkerState = RUNNING, problem: str = "") -> SeenWorker:
    return SeenWorker(WorkerId(f"{TERM}-{number}"), tm(number), state, problem)


def left(number: int, state: WorkerState) -> SeenWorker:
    """Return what an earlier leader has asked for."""
    return replace(seen(number, state), worker=WorkerId(f"6-{number}"))


def tm(number: int) -> Incarnation:
    return Incarnation(f"tm{number}")


def demand(waiting: int, *busy: int, numbers: Iterable[int] = ()) -> Demand:
    """Return what jobs need, with so many busy slots on each registered TaskManager."""
    names = numbers or range(1, len(busy) + 1)
    return Demand(waiting, {tm(number): Load(2, each) for number, each in zip(names, busy)})  # noqa: B905


def told(one: Pool, *story: tuple[float, Event]) -> tuple[Pool, list[str]]:
    """Return the pool after a story, and what was done with the workers in the last step."""
    commands: list[Command] = []
    for at, event in story:
        one, commands = step(one, event, at)
    return one, [_short(command) for command in commands]


def _short(command: Command) -> str:
    return f"{'+' if isinstance(command, Create) else '-'}{command.worker.partition('-')[2]}"


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        # What is needed, in whole workers of two slots.
        ([(0, NOBODY), (1, demand(0))], []),
        ([(0, NOBODY), (1, demand(1))], ["+1"]),
        ([(0, NOBODY), (1, demand(2))], ["+1"]),
        ([(0, NOBODY), (1, demand(3))], ["+1", "+2"]),
        # Not before it is known which workers there are; then those count.
        ([(0, demand(3))], []),
        ([(0, demand(3)), (1, NOBODY)], ["+1", "+2"]),
        ([(0, demand(3)), (1, WorkersListed((seen(9),)))], ["+1"]),
        ([(0, demand(3)), (1, WorkersListed((seen(8), seen(9, COMING))))], []),
        # What was asked for counts, seen or not.
        ([(0, NOBODY), (1, demand(1)), (2, demand(2))], []),
        ([(0, NOBODY), (1, demand(1)), (2, demand(3))], ["+2"]),
        ([(0, NOBODY), (1, demand(1)), (2, NOBODY)], []),
        ([(0, NOBODY), (1, demand(1)), (2, WorkersListed((seen(1, COMING),)))], []),
        # Free slots count, those of TaskManagers that nobody asked for here, too.
        ([(0, NOBODY), (1, demand(1, 1))], []),
        ([(0, NOBODY), (1, demand(1, 2))], ["+1"]),
        ([(0, WorkersListed((seen(1),))), (1, demand(1, 2))], ["+1"]),
        # One that ends gives no slot, and its jobs need others.
        ([(0, WorkersListed((seen(1, ENDING),))), (1, demand(0, 2))], ["+1"]),
        ([(0, WorkersListed((seen(1, ENDING), seen(2)))), (1, demand(0, 2, 0))], []),
        ([(0, WorkersListed((seen(1, DEAD),))), (1, demand(0, 1))], ["+1"]),
    ],
)
def test_workers_are_asked_for_as_jobs_need_them(story: Story, expected: list[str]) -> None:
    _, actual = told(pool(), *story)

    assert expected == actual


@pytest.mark.parametrize(
    ("limits", "story", "expected"),
    [
        # There is a most, of whole workers; none is asked for beyond it.
        ({"slots_max": 4}, [(0, NOBODY), (1, demand(99))], ["+1", "+2"]),
        ({"slots_max": 5}, [(0, NOBODY), (1, demand(99))], ["+1", "+2"]),
        ({"slots_max": 4}, [(0, NOBODY), (1, demand(9, 2))], ["+1"]),
        ({"slots_max": 1}, [(0, NOBODY), (1, demand(9))], []),
        # There is a least, used or not.
        ({"slots_min": 3}, [(0, NOBODY)], ["+1", "+2"]),
        ({"slots_min": 3}, [(0, NOBODY), (1, demand(0, 2))], []),
        # More than is needed, while anything is.
        ({"redundant": 1}, [(0, NOBODY), (1, demand(0))], []),
        ({"redundant": 1}, [(0, NOBODY), (1, demand(1))], ["+1", "+2"]),
        ({"redundant": 1}, [(0, NOBODY), (1, demand(0, 1))], ["+1"]),
    ],
)
def test_how_many_there_are_is_limited(
    limits: dict[str, float], story: Story, expected: list[str]
) -> None:
    _, actual = told(pool(**limits), *story)

    assert expected == actual


BOTH = WorkersListed((seen(1), seen(2)))


@pytest.mark.parametrize(
    ("limits", "story", "expected"),
    [
        # Idle for long enough, since its last job.
        ({}, [(0, BOTH), (1, demand(0, 1, 0)), (30.9, TimePassed())], []),
        ({}, [(0, BOTH), (1, demand(0, 1, 0)), (31, TimePassed())], ["-2"]),
        ({}, [(0, BOTH), (1, demand(0, 0, 0)), (31, TimePassed())], ["-1", "-2"]),
        (
            {},
            [(0, BOTH), (1, demand(0, 0, 0)), (9, demand(0, 1, 0)), (31, demand(0, 0, 0))],
            ["-2"],
        ),
        # Not while its slots are needed.
        ({}, [(0, BOTH), (1, demand(0, 2, 0)), (31, demand(1, 2, 0))], []),
        ({"slots_min": 4}, [(0, BOTH), (1, demand(0, 0, 0)), (31, TimePassed())], []),
        ({"slots_min": 2}, [(0, BOTH), (1, demand(0, 0, 0)), (31, TimePassed())], ["-1"]),
        ({"redundant": 1}, [(0, BOTH), (1, demand(0, 1, 0)), (31, TimePassed())], []),
        # One that nobody needs any more is let go before it has come.
        (
            {},
            [(0, NOBODY), (1, demand(1)), (2, WorkersListed((seen(1, COMING),))), (31, demand(0))],
            ["-1"],
        ),
        # Once.
        ({}, [(0, BOTH), (1, demand(0, 1, 0)), (31, TimePassed()), (32, TimePassed())], []),
    ],
)
def test_who_is_idle_and_not_needed_is_let_go(
    limits: dict[str, float], story: Story, expected: list[str]
) -> None:
    _, actual = told(pool(**limits), *story)

    assert expected == actual


def test_who_is_let_go_gets_no_job_and_is_missed_when_one_comes() -> None:
    story: Story = [(0, WorkersListed((seen(1),))), (1, demand(0, 0)), (31, TimePassed())]
    one, _ = told(pool(), *story)

    assert {tm(1)} == going(one)
    _, actual = told(one, (32, demand(1, 0)))
    assert ["+1"] == actual


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        # One that does not come is replaced after its time; one that ran before has less of it.
        ([(2, WorkersListed((seen(1, COMING),))), (300, TimePassed())], []),
        ([(2, WorkersListed((seen(1, COMING),))), (301, TimePassed())], ["-1"]),
        (
            [(2, WorkersListed((seen(1, COMING),))), (301, TimePassed()), (304, TimePassed())],
            ["+2"],
        ),
        # One that was refused, that ended, or that somebody removed.
        ([(2, WorkerRefused(WorkerId("7-1"), "quota"))], []),
        ([(2, WorkerRefused(WorkerId("7-1"), "quota")), (5, TimePassed())], ["+2"]),
        ([(2, WorkersListed((seen(1, DEAD),)))], []),
        ([(2, WorkersListed((seen(1, DEAD),))), (5, TimePassed())], ["+2"]),
        ([(2, WorkersListed((seen(1),))), (3, NOBODY)], []),
        ([(2, WorkersListed((seen(1),))), (3, NOBODY), (6, TimePassed())], ["+2"]),
        # What is left of the dead goes later.
        ([(2, WorkersListed((seen(1, DEAD),))), (31, demand(0)), (32, TimePassed())], ["-1"]),
    ],
)
def test_who_does_not_come_is_replaced_after_a_pause(story: Story, expected: list[str]) -> None:
    _, actual = told(pool(), (0, NOBODY), (1, demand(1)), *story)

    assert expected == actual


def test_a_failure_of_many_is_one_and_then_one_is_tried_at_a_time() -> None:
    one, asked = told(pool(), (0, NOBODY), (1, demand(5)))
    assert ["+1", "+2", "+3"] == asked
    for number in (1, 2, 3):
        one, asked = told(one, (2, WorkerRefused(WorkerId(f"7-{number}"), "quota")))
        assert [] == asked
    assert 1 == one.failures

    one, asked = told(one, (5, TimePassed()))
    assert ["+4"] == asked
    one, asked = told(one, (5, WorkerRefused(WorkerId("7-4"), "quota")), (10.9, TimePassed()))
    assert [] == asked
    one, asked = told(one, (11, TimePassed()))
    assert ["+5"] == asked

    one, asked = told(one, (12, WorkersListed((seen(5),))), (13, demand(5, 0, numbers=(5,))))
    assert ["+6", "+7"] == asked
    assert "" == why_none(one)


def test_pauses_are_bounded() -> None:
    one, now, asked = told(pool(), (0, NOBODY), (0, demand(1)))[0], 0.0, 0
    while now < 86_400.0:
        one, _ = step(one, WorkerRefused(WorkerId(f"7-{one.asked}"), "quota"), now)
        look = next_look(one, now)
        assert look is not None
        assert look - now <= 300.0
        now = look
        one, commands = step(one, TimePassed(), now)
        asked += len(commands)

    assert 280 < asked < 300


QUOTA = WorkerRefused(WorkerId("7-1"), "quota")


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        ([], ""),
        ([demand(1)], ""),
        ([demand(1), WorkersListed((seen(1, COMING, "no room"),))], "TaskManager 7-1: no room"),
        ([demand(1), QUOTA], "quota"),
        (
            [demand(1), WorkersListed((seen(1, DEAD, "exit code 3"),))],
            "TaskManager 7-1 ended before it registered: exit code 3",
        ),
        (
            [demand(1), WorkersListed((seen(1),)), NOBODY],
            "TaskManager 7-1 was removed before it registered",
        ),
        ([demand(999)], "slotmanager.number-of-slots.max is 100"),
        ([WorkersUnseen("pods are forbidden")], "pods are forbidden"),
        ([WorkersUnseen("pods are forbidden"), NOBODY], ""),
        # Past once one has come.
        ([demand(1), QUOTA, WorkersListed((seen(2),)), demand(1, 0, numbers=(2,))], ""),
    ],
)
def test_why_none_comes_is_said(story: list[Event], expected: str) -> None:
    one, _ = told(pool(), (0, NOBODY), *enumerate(story, 1))

    assert expected == why_none(one)


def test_a_pod_of_an_earlier_leader_that_ran_is_awaited_for_the_adoption_grace() -> None:
    one, _ = told(pool(), (0, WorkersListed((seen(1),))), (1, demand(1)))
    one, actual = told(one, (40, TimePassed()))

    assert ["-1"] == actual
    assert ["+1"] == told(one, (43, TimePassed()))[1]


def test_one_that_was_given_up_is_removed_and_replaced() -> None:
    story: Story = [(0, WorkersListed((seen(1),))), (1, demand(0, 1))]

    _, actual = told(pool(), *story, (2, demand(1)))

    assert ["-1", "+1"] == actual


def test_the_dead_are_known_by_what_is_seen() -> None:
    one, _ = told(pool(), (0, WorkersListed((seen(1, DEAD), seen(2, ENDING), seen(3)))))

    assert {tm(1)} == dead(one)
    assert {tm(1), tm(2)} == going(one)


def test_a_death_is_final_whatever_is_seen_later() -> None:
    one, _ = told(pool(), (0, WorkersListed((seen(1, DEAD),))), (1, WorkersListed((seen(1),))))

    assert {tm(1)} == dead(one)


RED = Purpose(ApplicationId("red"), "profile")


@pytest.mark.parametrize(
    ("carries", "jobs", "seats", "expected"),
    [
        (None, 0, (), demand(0, 0)),
        (None, 3, (), demand(3, 0)),
        (1, 3, (), demand(1, 0)),
        # An attempt of an application that is parked keeps its TaskManager.
        (None, 0, (Seat(Incarnation("d"), 1, DriverState.BUSY, RED, True),), demand(0, 1)),
        (None, 1, (Seat(Incarnation("d"), 1, DriverState.WARM, RED, False),), demand(0, 1)),
    ],
)
def test_what_jobs_need_is_what_waits_and_could_run(
    carries: int | None, jobs: int, seats: tuple[Seat, ...], expected: Demand
) -> None:
    ledger, _ = report(Ledger(), tm(1), Workplace(2, 0, seats), carries)
    for number in range(jobs):
        ledger, _ = request(ledger, JobId(f"job {number}"), RED)

    assert expected == demand_of(ledger)


@EXPLORE
@given(
    st.lists(
        st.one_of(
            st.builds(
                lambda waiting, busy: demand(waiting, *busy),
                st.integers(0, 9),
                st.lists(st.integers(0, 2), max_size=4),
            ),
            st.builds(
                lambda states: WorkersListed(tuple(left(n, s) for n, s in enumerate(states, 1))),
                st.lists(st.sampled_from(WorkerState), max_size=5),
            ),
            st.builds(lambda n: WorkerRefused(WorkerId(f"7-{n}"), "no"), st.integers(1, 9)),
            st.just(TimePassed()),
        ),
        max_size=12,
    )
)
def test_a_name_is_given_once_none_that_works_is_let_go_and_the_most_is_kept(
    events: list[Event],
) -> None:
    one, now = pool(slots_max=8), 0.0
    created: list[WorkerId] = []
    for event in events:
        now += 20.0
        before = one
        one, commands = step(one, event, now)
        for command in commands:
            if isinstance(command, Create):
                created.append(command.worker)
            else:
                worker = before.workers.get(command.worker)
                known = worker.seen.incarnation if worker and worker.seen else Incarnation("")
                load = one.taskmanagers.get(known)
                assert load is None or not load.busy or known in dead(one)
        coming = [w for w in one.workers.values() if w.seen is None]
        assert 2 * len(coming) <= 8
        assert len(set(created)) == len(created)
        assert [] == step(one, TimePassed(), now)[1]
