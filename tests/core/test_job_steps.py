"""Each event in each phase: what is not in the tables changes nothing."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.job_words import (
    CANCELED,
    MIDDLE,
    J,
    P,
    Q,
    ended,
    failed,
    finished,
    kept,
    lost,
    raised,
    source,
)
from understudy.core import job
from understudy.core.job import Command, Event, JobState, Phase, holds_slot, status_of
from understudy.core.restart import Strategy
from understudy.model import JobStatus, Restarts

SECOND = JobState(J, attempt=2, reached=True)
STATES = {
    state.phase: state
    for state in [
        replace(SECOND, phase=Phase.IDLE, attempt=1),
        replace(SECOND, phase=Phase.WAITING, attempt=1),
        replace(SECOND, phase=Phase.PLACING, placement=P),
        replace(SECOND, phase=Phase.DEPLOYING, placement=P),
        replace(SECOND, phase=Phase.RUNNING, placement=P),
        replace(SECOND, phase=Phase.RECONCILING, placement=P, recovered=True),
        replace(SECOND, phase=Phase.CHECKING, lost="gone", ran_s=0.0),
        replace(SECOND, phase=Phase.BACKING_OFF),
        replace(SECOND, phase=Phase.STOPPING, placement=P, cancelled=True),
        replace(SECOND, phase=Phase.SAVING, ends_as=JobStatus.FINISHED),
        replace(SECOND, phase=Phase.RECORDING, status=JobStatus.FINISHED),
        replace(SECOND, phase=Phase.SUSPENDED, displaced=True),
        replace(SECOND, phase=Phase.DONE, status=JobStatus.FINISHED),
    ]
}

EVENTS: dict[str, Event] = {
    "reached": job.Reached(),
    "forgotten": job.Forgotten(),
    "begin": job.Begin(),
    "offered": job.Offered(Q),
    "intent stored": job.IntentStored(),
    "running": job.Running(2),
    "refused": job.Refused(2, "full"),
    "finished": finished(2),
    "raised": raised(2),
    "failed": failed(2),
    "lost": lost(2, 0.3),
    "found finished": job.Looked(finished(2)),
    "found raised": job.Looked(raised(2)),
    "found nothing": job.Looked(None),
    "backoff over": job.BackoffOver(),
    "cancel": job.Cancel(),
    "stop": job.Stop(JobStatus.FINISHED),
    "saved": job.Saved(durable=True),
    "not saved": job.Saved(durable=False),
    "unrestorable": job.Unrestorable("damaged"),
    "displace": job.Displace(),
    "recorded": job.Recorded(),
}

Cell = tuple[dict[str, Any], list[Command]]

ALIVE = [Phase.DEPLOYING, Phase.RUNNING, Phase.RECONCILING]
PENDING = [Phase.IDLE, Phase.WAITING, Phase.BACKING_OFF, Phase.SUSPENDED]
PLACED = {"phase": Phase.PLACING, "attempt": 2, "placement": Q}
OVER = {"phase": Phase.RECORDING, "placement": None}
CHECKED = {"phase": Phase.CHECKING, "placement": None}
AGAIN: Cell = (
    {"phase": Phase.BACKING_OFF, "placement": None, "restarts": Restarts(failures=1)},
    [job.ReturnSlot(), job.Pause(1.0, "its function raised an exception")],
)
LOOK: list[Command] = [job.ReturnSlot(), job.LookForOutcome(2)]
WANT: list[Command] = [job.RequestSlot()]
FINISHED: Cell = ({**OVER, "status": JobStatus.FINISHED}, [job.ReturnSlot(), kept(2)])
FAILED: Cell = (
    {**OVER, "status": JobStatus.FAILED},
    [job.ReturnSlot(), job.RecordResult(JobStatus.FAILED, source(2), "")],
)
GIVEN_UP: Cell = ({**OVER, "status": JobStatus.CANCELED}, [job.ReturnSlot(), CANCELED])

SAVE: list[Command] = [job.ReturnSlot(), job.TakeSavepoint()]
DAMAGED = job.RecordResult(JobStatus.FAILED, None, "damaged")
STOPPED = job.RecordResult(JobStatus.FINISHED, None, "stopped with a savepoint")

CELLS: dict[tuple[str, Phase], Cell] = {
    **{("forgotten", phase): ({"reached": False}, []) for phase in Phase},
    ("forgotten", Phase.WAITING): ({"reached": False, "phase": Phase.IDLE}, [job.ReturnSlot()]),
    ("forgotten", Phase.BACKING_OFF): ({"reached": False, "phase": Phase.IDLE}, [job.ReturnSlot()]),
    ("begin", Phase.IDLE): ({"phase": Phase.WAITING}, WANT),
    ("begin", Phase.SUSPENDED): ({"phase": Phase.WAITING, "displaced": False}, WANT),
    **{("offered", phase): ({}, [job.ReturnSlot()]) for phase in Phase},
    ("offered", Phase.WAITING): (PLACED, [job.StoreIntent(2, Q, Restarts())]),
    ("intent stored", Phase.PLACING): ({"phase": Phase.DEPLOYING}, [job.DeployAttempt(2, P)]),
    ("running", Phase.DEPLOYING): ({"phase": Phase.RUNNING}, []),
    ("running", Phase.RECONCILING): ({"phase": Phase.RUNNING, "adopted": True}, []),
    ("running", Phase.STOPPING): ({}, [job.EndAttempt(2)]),
    **{
        ("refused", phase): ({**CHECKED, "lost": "full"}, LOOK)
        for phase in [*ALIVE, Phase.PLACING, Phase.STOPPING]
    },
    **{("finished", phase): FINISHED for phase in [*ALIVE, Phase.STOPPING]},
    **{("raised", phase): AGAIN for phase in ALIVE},
    ("raised", Phase.STOPPING): GIVEN_UP,
    **{("failed", phase): FAILED for phase in ALIVE},
    ("failed", Phase.STOPPING): GIVEN_UP,
    ("lost", Phase.PLACING): ({"lost": "gone"}, []),
    **{
        ("lost", phase): ({**CHECKED, "lost": "gone", "ran_s": 0.3}, LOOK)
        for phase in [*ALIVE, Phase.STOPPING]
    },
    ("found finished", Phase.CHECKING): FINISHED,
    ("found raised", Phase.CHECKING): AGAIN,
    ("found nothing", Phase.CHECKING): (
        {"phase": Phase.BACKING_OFF, "restarts": Restarts(losses=1)},
        [job.ReturnSlot(), job.Pause(0.0, "gone")],
    ),
    ("backoff over", Phase.BACKING_OFF): ({"phase": Phase.WAITING}, WANT),
    **{("cancel", phase): ({"cancelled": True}, []) for phase in Phase},
    **{
        ("cancel", phase): ({"cancelled": True, "phase": Phase.STOPPING}, [job.EndAttempt(2)])
        for phase in ALIVE
    },
    **{("cancel", phase): ({"cancelled": True, **GIVEN_UP[0]}, GIVEN_UP[1]) for phase in PENDING},
    **{("stop", phase): ({"ends_as": JobStatus.FINISHED}, []) for phase in Phase},
    **{
        ("stop", phase): (
            {"ends_as": JobStatus.FINISHED, "phase": Phase.STOPPING},
            [job.EndAttempt(2)],
        )
        for phase in ALIVE
    },
    ("stop", Phase.STOPPING): ({}, []),  # It is being cancelled.
    **{
        ("stop", phase): ({"ends_as": JobStatus.FINISHED, "phase": Phase.SAVING}, SAVE)
        for phase in PENDING
    },
    ("saved", Phase.SAVING): (
        {**OVER, "status": JobStatus.FINISHED},
        [job.ReturnSlot(), STOPPED],
    ),
    **{
        ("unrestorable", phase): ({**OVER, "status": JobStatus.FAILED}, [job.ReturnSlot(), DAMAGED])
        for phase in (Phase.IDLE, Phase.SUSPENDED)
    },
    ("not saved", Phase.SAVING): ({"ends_as": None, "phase": Phase.WAITING}, WANT),
    ("recorded", Phase.RECORDING): ({"phase": Phase.DONE}, []),
    ("recorded", Phase.SUSPENDED): ({"phase": Phase.WAITING, "displaced": False}, WANT),
}


@pytest.mark.parametrize(("event", "phase"), list(product(EVENTS, Phase)), ids=str)
def test_each_event_does_in_each_phase_what_the_table_says(event: str, phase: Phase) -> None:
    state = STATES[phase]
    changes, commands = CELLS.get((event, phase), ({}, []))
    expected = (replace(state, **changes), commands)

    actual = job.step(state, EVENTS[event], Strategy(), MIDDLE)

    assert expected == actual


ASIDE: list[Command] = [job.ReturnSlot(), job.RecordDisplaced()]
UNREACHED: dict[tuple[str, Phase], Cell] = {
    **{("reached", phase): ({"reached": True}, []) for phase in Phase},
    **{("displace", phase): ({"displaced": True}, []) for phase in Phase},
    **{
        ("displace", phase): ({"displaced": True, "phase": Phase.STOPPING}, [job.EndAttempt(2)])
        for phase in ALIVE
    },
    **{
        ("displace", phase): ({"displaced": True, "phase": Phase.SUSPENDED}, ASIDE)
        for phase in [Phase.IDLE, Phase.WAITING, Phase.BACKING_OFF]
    },
    ("displace", Phase.SUSPENDED): ({}, []),
}


@pytest.mark.parametrize(
    ("event", "phase"), list(product(["reached", "begin", "displace", "forgotten"], Phase)), ids=str
)
def test_a_job_that_main_has_not_reached_does_not_begin_but_may_give_way(
    event: str, phase: Phase
) -> None:
    state = replace(STATES[phase], reached=False)
    if event == "forgotten" and phase in {Phase.WAITING, Phase.BACKING_OFF}:
        return
    changes, commands = UNREACHED.get((event, phase), ({}, []))
    expected = (replace(state, **changes), commands)

    actual = job.step(state, EVENTS[event], Strategy(), MIDDLE)

    assert expected == actual


STOPPING = replace(STATES[Phase.STOPPING], cancelled=False, ends_as=JobStatus.FINISHED)
SAVING = replace(STATES[Phase.SAVING], placement=None)


@pytest.mark.parametrize(
    ("state", "event", "phase", "commands"),
    [
        # Once the attempt is known dead, however it ended, the savepoint is taken.
        (STOPPING, raised(2), Phase.SAVING, SAVE),
        (STOPPING, failed(2), Phase.SAVING, SAVE),
        (STOPPING, finished(2), Phase.SAVING, SAVE),
        (STOPPING, lost(2), Phase.CHECKING, LOOK),
        (STOPPING, job.Cancel(), Phase.STOPPING, []),
        (
            replace(STATES[Phase.CHECKING], ends_as=JobStatus.FINISHED),
            job.Looked(None),
            Phase.SAVING,
            SAVE,
        ),
        (
            replace(STATES[Phase.PLACING], ends_as=JobStatus.FINISHED),
            job.IntentStored(),
            Phase.SAVING,
            SAVE,
        ),
        # Then it ends as it was to end, or as it had ended by itself.
        (
            replace(SAVING, ends_as=JobStatus.CANCELED),
            job.Saved(durable=True),
            Phase.RECORDING,
            [
                job.ReturnSlot(),
                job.RecordResult(JobStatus.CANCELED, None, "stopped with a savepoint"),
            ],
        ),
        (
            replace(SAVING, source=source(2)),
            job.Saved(durable=False),
            Phase.RECORDING,
            FINISHED[1],
        ),
        (replace(SAVING, cancelled=True), job.Saved(durable=True), Phase.RECORDING, GIVEN_UP[1]),
        (replace(SAVING, reached=False), job.Saved(durable=False), Phase.IDLE, []),
        (
            replace(SAVING, displaced=True),
            job.Saved(durable=False),
            Phase.SUSPENDED,
            [job.RecordDisplaced()],
        ),
        # What it was to begin with cannot be had: it never begins.
        (
            JobState(J, reached=True),
            job.Unrestorable("damaged"),
            Phase.RECORDING,
            [job.ReturnSlot(), job.RecordResult(JobStatus.FAILED, None, "damaged")],
        ),
    ],
    ids=str,
)
def test_a_job_ends_with_a_savepoint(
    state: JobState, event: Event, phase: Phase, commands: list[Command]
) -> None:
    actual, said = job.step(state, event, Strategy(), MIDDLE)

    assert (phase, commands) == (actual.phase, said)


@pytest.mark.parametrize(
    ("event", "phase"),
    list(
        product(
            [
                job.Running(1),
                job.Running(3),
                job.Refused(1, "full"),
                job.Refused(3, "full"),
                finished(1),
                finished(3),
                lost(1),
                lost(3),
            ],
            Phase,
        )
    ),
    ids=str,
)
def test_what_is_said_of_another_attempt_changes_nothing(event: Event, phase: Phase) -> None:
    state = replace(STATES[phase], attempt=2)
    expected: job.Step = (state, [])

    actual = job.step(state, event, Strategy(), MIDDLE)

    assert expected == actual


@pytest.mark.parametrize(
    ("state", "event", "expected"),
    [
        (STATES[Phase.RUNNING], job.Reached(), False),
        (replace(STATES[Phase.RUNNING], recovered=True), job.Reached(), True),
        (STATES[Phase.RECONCILING], job.Reached(), False),
        (replace(STATES[Phase.RUNNING], recovered=True, adopted=True), job.Forgotten(), False),
        (replace(STATES[Phase.RECONCILING], reached=False), job.Running(2), False),
        (replace(STATES[Phase.DEPLOYING], recovered=False), job.Running(2), False),
        (replace(STATES[Phase.WAITING], recovered=True, adopted=True), job.Offered(P), False),
    ],
)
def test_adopted_is_what_an_earlier_leader_started_and_main_reached(
    state: JobState, event: Event, expected: bool
) -> None:
    actual, _ = job.step(state, event, Strategy(), MIDDLE)

    assert expected is actual.adopted


def test_a_new_attempt_is_not_one_of_an_earlier_leader() -> None:
    actual, _ = job.step(
        replace(STATES[Phase.WAITING], recovered=True, lost="gone"),
        job.Offered(P),
        Strategy(),
        MIDDLE,
    )

    assert not actual.recovered
    assert actual.lost == ""


@pytest.mark.parametrize(
    ("chance", "expected"), [(0.0, job.Pause(0.9, "its function raised an exception"))]
)
def test_the_jitter_of_a_pause_is_drawn(chance: float, expected: Command) -> None:
    _, commands = job.step(STATES[Phase.RUNNING], raised(2), Strategy(), chance)

    assert expected == commands[-1]


FIRST = replace(STATES[Phase.PLACING], attempt=1)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (JobState(J), JobStatus.CREATED),
        (JobState(J, Phase.WAITING), JobStatus.CREATED),
        (FIRST, JobStatus.CREATED),
        (replace(FIRST, phase=Phase.DEPLOYING), JobStatus.CREATED),
        (STATES[Phase.IDLE], JobStatus.RESTARTING),
        (STATES[Phase.WAITING], JobStatus.RESTARTING),
        (STATES[Phase.PLACING], JobStatus.RESTARTING),
        (STATES[Phase.DEPLOYING], JobStatus.RESTARTING),
        (STATES[Phase.RUNNING], JobStatus.RUNNING),
        (STATES[Phase.RECONCILING], JobStatus.RECONCILING),
        (STATES[Phase.CHECKING], JobStatus.RESTARTING),
        (STATES[Phase.BACKING_OFF], JobStatus.RESTARTING),
        (STATES[Phase.STOPPING], JobStatus.CANCELING),
        (replace(STATES[Phase.STOPPING], cancelled=False), JobStatus.SUSPENDED),
        (STOPPING, JobStatus.RUNNING),
        (STATES[Phase.SAVING], JobStatus.RUNNING),
        (STATES[Phase.RECORDING], JobStatus.RUNNING),
        (replace(STATES[Phase.RECORDING], cancelled=True), JobStatus.CANCELING),
        (STATES[Phase.SUSPENDED], JobStatus.SUSPENDED),
        (STATES[Phase.DONE], JobStatus.FINISHED),
        (replace(STATES[Phase.DONE], cancelled=True), JobStatus.FINISHED),
        (replace(STATES[Phase.DONE], status=JobStatus.FAILED), JobStatus.FAILED),
    ],
)
def test_a_phase_is_shown_in_flinks_words(state: JobState, expected: JobStatus) -> None:
    actual = status_of(state)

    assert expected is actual


@pytest.mark.parametrize("phase", Phase)
def test_a_slot_is_held_while_an_attempt_may_live_in_it(phase: Phase) -> None:
    expected = phase in {*ALIVE, Phase.PLACING, Phase.STOPPING}

    actual = holds_slot(STATES[phase])

    assert expected is actual


def test_a_job_without_a_placement_holds_no_slot() -> None:
    actual = holds_slot(replace(STATES[Phase.RUNNING], placement=None))

    assert not actual


def test_an_attempt_that_ran_for_long_is_judged_by_how_long_it_ran() -> None:
    strategy = Strategy(reset_s=100.0, attempts=1)
    state = replace(STATES[Phase.RUNNING], restarts=Restarts(failures=1, losses=10))
    longer = replace(raised(2), ran_s=100.0)
    expected = Phase.BACKING_OFF

    by_exception, _ = job.step(state, longer, strategy, MIDDLE)
    died, _ = job.step(state, lost(2, 100.0), strategy, MIDDLE)
    by_loss, _ = job.step(died, job.Looked(None), strategy, MIDDLE)

    assert (expected, expected) == (by_exception.phase, by_loss.phase)


def test_what_ended_otherwise_than_it_should_is_recorded_as_it_ended() -> None:
    expected = job.RecordResult(JobStatus.CANCELED, source(2), "")

    _, commands = job.step(STATES[Phase.RUNNING], ended(2, JobStatus.CANCELED), Strategy(), MIDDLE)

    assert expected == commands[-1]


ALIVE_STILL = {
    "failed": ended(2, JobStatus.FAILED, dead=False),
    "raised": ended(2, JobStatus.FAILED, retryable=True, dead=False),
    "cancelled": ended(2, JobStatus.CANCELED, dead=False),
}


@pytest.mark.parametrize("how", ALIVE_STILL)
@pytest.mark.parametrize("phase", [*ALIVE, Phase.STOPPING])
def test_an_end_is_not_taken_for_a_death(phase: Phase, how: str) -> None:
    expected = STATES[phase], [job.EndAttempt(2)]

    actual = job.step(STATES[phase], ALIVE_STILL[how], Strategy(), MIDDLE)

    assert expected == actual


def test_what_has_finished_is_recorded_though_it_left_something_alive() -> None:
    _, commands = job.step(STATES[Phase.RUNNING], finished(2, dead=False), Strategy(), MIDDLE)

    assert kept(2) == commands[-1]


def test_a_savepoint_of_what_has_finished_waits_for_its_death() -> None:
    stopping = replace(STATES[Phase.STOPPING], cancelled=False, ends_as=JobStatus.FINISHED)

    _, asked = job.step(stopping, finished(2, dead=False), Strategy(), MIDDLE)
    _, proved = job.step(stopping, finished(2), Strategy(), MIDDLE)

    assert [job.EndAttempt(2)] == asked
    assert job.TakeSavepoint() == proved[-1]
