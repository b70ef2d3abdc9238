"""Stories of a job's life, from submission or recovery to its result."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.job_words import (
    CANCELED,
    J,
    P,
    Q,
    after,
    failed,
    finished,
    kept,
    killed,
    live,
    lost,
    raised,
    source,
)
from understudy.core import job
from understudy.core.job import (
    Begin,
    Cancel,
    Command,
    DeployAttempt,
    Displace,
    EndAttempt,
    Event,
    Forgotten,
    IntentStored,
    JobState,
    Looked,
    LookForOutcome,
    Offered,
    Pause,
    Phase,
    Reached,
    RecordDisplaced,
    Recorded,
    RecordResult,
    RequestSlot,
    ReturnSlot,
    Running,
    StoreIntent,
)
from understudy.core.restart import Strategy
from understudy.model import Intent, JobEntry, JobResultEntry, JobStatus, Restarts

NONE = Strategy("none", 0)
NO_COUNT = Restarts()


def begun(*, attempt: int = 1) -> list[Event]:
    """Return what brings a job that waits for a slot to a running attempt."""
    return [Offered(P), IntentStored(), Running(attempt)]


def running() -> JobState:
    return after(job.submitted(J), Begin(), *begun())


def entry(attempt: int = 0, *, placed: bool = True) -> JobEntry:
    intent = Intent(
        attempt=attempt, taskmanager=P.taskmanager, driver=P.driver, term=1, staged="staged"
    )
    return JobEntry(
        job_id=J,
        name="J",
        occurrence=0,
        plan=source(0),
        submitted_at=0.0,
        attempt=attempt,
        intent=intent if placed and attempt else None,
        restarts=Restarts(failures=2, losses=1),
    )


def test_a_job_is_submitted_placed_run_and_recorded() -> None:
    expected = (
        Phase.DONE,
        [
            [RequestSlot()],
            [StoreIntent(1, P, NO_COUNT)],
            [DeployAttempt(1, P)],
            [],
            [ReturnSlot(), kept(1)],
            [],
        ],
    )

    actual = live(job.submitted(J), Begin(), *begun(), finished(1), Recorded())

    assert expected == actual


def test_a_job_that_has_a_slot_as_it_is_submitted_waits_only_for_its_first_intent() -> None:
    expected = after(job.submitted(J), Begin(), Offered(P))

    actual = job.submitted(J, P)

    assert expected == actual
    assert (Phase.DEPLOYING, [[], [DeployAttempt(1, P)]]) == live(actual, Begin(), IntentStored())


def test_an_attempt_that_an_earlier_leader_stopped_for_another_job_cancels_nothing() -> None:
    expected = (Phase.WAITING, [[ReturnSlot(), RecordDisplaced()], [], [RequestSlot()]])

    actual = live(job.recovered(entry(1)), killed(1), Reached(), Recorded())

    assert expected == actual


def test_a_job_may_end_before_anybody_heard_that_it_runs() -> None:
    expected = (
        Phase.RECORDING,
        [[StoreIntent(1, P, NO_COUNT)], [DeployAttempt(1, P)], [ReturnSlot(), kept(1)]],
    )

    actual = live(after(job.submitted(J), Begin()), Offered(P), IntentStored(), finished(1))

    assert expected == actual


def test_a_function_that_raises_is_tried_again_and_given_up_in_the_end() -> None:
    reason = "its function raised an exception"
    expected: list[list[Command]] = [
        [ReturnSlot(), Pause(1.0, reason)],
        [RequestSlot()],
        [StoreIntent(2, Q, Restarts(failures=1))],
        [DeployAttempt(2, Q)],
        [],
        [
            ReturnSlot(),
            RecordResult(
                JobStatus.FAILED,
                source(2),
                "not restarted: the restart strategy allows one restart",
            ),
        ],
    ]

    _, actual = live(
        running(),
        raised(1),
        job.BackoffOver(),
        Offered(Q),
        IntentStored(),
        Running(2),
        raised(2),
        strategy=Strategy(attempts=1),
    )

    assert expected == actual


def test_a_failure_that_would_come_again_is_final() -> None:
    expected = [[ReturnSlot(), RecordResult(JobStatus.FAILED, source(1), "")]]

    _, actual = live(running(), failed(1))

    assert expected == actual


def test_after_a_loss_the_job_starts_anew_once_nothing_was_found() -> None:
    expected: list[list[Command]] = [
        [ReturnSlot(), LookForOutcome(1)],
        [ReturnSlot(), Pause(0.0, "gone")],
        [RequestSlot()],
        [StoreIntent(2, P, Restarts(losses=1))],
    ]

    _, actual = live(running(), lost(1), Looked(None), job.BackoffOver(), Offered(P))

    assert expected == actual


@pytest.mark.parametrize(("advanced", "expected"), [(True, 1), (False, 8)])
def test_a_loss_is_the_first_again_where_the_attempt_had_brought_the_job_further(
    advanced: bool, expected: int
) -> None:
    state = replace(running(), restarts=Restarts(losses=7))

    actual = after(state, lost(1), Looked(None, advanced))

    assert expected == actual.restarts.losses


@pytest.mark.parametrize("strategy", [Strategy(), Strategy("none", 0), Strategy("fixed-delay", 1)])
def test_an_attempt_that_is_handed_over_is_followed_at_once_and_does_not_count(
    strategy: Strategy,
) -> None:
    state = replace(running(), restarts=Restarts(losses=7))

    for event in (job.Lost(1, "drained", 5.0, handed_over=True), Looked(None)):
        state, commands = job.step(state, event, strategy, 0.5)

    assert [ReturnSlot(), Pause(0.0, "drained")] == commands
    assert Restarts(losses=7) == state.restarts


def test_an_attempt_that_is_handed_over_before_it_was_sent_does_not_count_either() -> None:
    state, strategy = after(job.submitted(J), Begin(), Offered(P)), Strategy("none", 0)

    for event in (job.Lost(1, "drained", 0.0, handed_over=True), IntentStored(), Looked(None)):
        state, commands = job.step(state, event, strategy, 0.5)

    assert [ReturnSlot(), Pause(0.0, "drained")] == commands
    assert NO_COUNT == state.restarts


def test_after_a_loss_a_staged_result_is_taken_and_nothing_runs_again() -> None:
    expected = (
        Phase.DONE,
        [[ReturnSlot(), LookForOutcome(1)], [ReturnSlot(), kept(1)], []],
    )

    actual = live(running(), lost(1), Looked(finished(1)), Recorded())

    assert expected == actual


def test_a_staged_exception_that_was_found_counts_as_one() -> None:
    expected = Restarts(failures=1)

    actual = after(running(), lost(1), Looked(raised(1)))

    assert expected == actual.restarts


def test_a_loss_that_is_not_restarted_says_why() -> None:
    reason = "gone; not restarted: the restart strategy is 'none'"
    expected = [ReturnSlot(), RecordResult(JobStatus.FAILED, None, reason)]

    _, actual = live(running(), lost(1), Looked(None), strategy=NONE)

    assert expected == actual[-1]


def test_a_report_that_comes_twice_is_judged_once() -> None:
    expected: tuple[Phase, list[list[Command]]] = (Phase.BACKING_OFF, [[], [], []])
    state = after(running(), lost(1))

    once = after(state, Looked(raised(1)))
    actual = live(once, raised(1), Looked(raised(1)), lost(1))

    assert expected == actual


def test_an_attempt_whose_taskmanager_died_before_it_was_sent_is_never_sent() -> None:
    expected = [
        [StoreIntent(1, P, NO_COUNT)],
        [],
        [ReturnSlot(), LookForOutcome(1)],
        [ReturnSlot(), Pause(0.0, "gone")],
    ]

    events: list[Event] = [Offered(P), lost(1, 9.0), IntentStored(), Looked(None)]
    _, actual = live(after(job.submitted(J), Begin()), *events)
    unsent = after(job.submitted(J), Begin(), *events)

    assert expected == actual
    assert unsent.ran_s == 0.0


# --- cancelling -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "events", "expected"),
    [
        ([], [], [ReturnSlot(), CANCELED]),
        ([Begin()], [], [ReturnSlot(), CANCELED]),
        (
            [Begin(), Offered(P)],
            [IntentStored()],
            [
                ReturnSlot(),
                RecordResult(JobStatus.CANCELED, None, "cancelled before it started"),
            ],
        ),
        ([Begin(), Offered(P), IntentStored()], [killed(1)], [ReturnSlot(), CANCELED]),
        ([Begin(), *begun()], [killed(1)], [ReturnSlot(), CANCELED]),
        ([Begin(), *begun()], [raised(1)], [ReturnSlot(), CANCELED]),
        ([Begin(), *begun()], [failed(1)], [ReturnSlot(), CANCELED]),
        ([Begin(), *begun()], [lost(1), Looked(None)], [ReturnSlot(), CANCELED]),
        ([Begin(), *begun()], [lost(1), Looked(killed(1))], [ReturnSlot(), CANCELED]),
        ([Begin(), *begun()], [finished(1)], [ReturnSlot(), kept(1)]),
        ([Begin(), *begun(), lost(1)], [Looked(None)], [ReturnSlot(), CANCELED]),
        ([Begin(), *begun(), lost(1)], [Looked(finished(1))], [ReturnSlot(), kept(1)]),
        ([Begin(), *begun(), raised(1)], [], [ReturnSlot(), CANCELED]),
    ],
)
def test_a_cancelled_job_ends_once_its_attempt_is_dead(
    before: list[Event], events: list[Event], expected: list[Command]
) -> None:
    state = after(job.submitted(J), *before)

    phase, said = live(state, Cancel(), *events)
    done = after(state, Cancel(), *events, Recorded())

    assert expected == said[-1]
    assert Phase.RECORDING is phase
    assert Phase.DONE is done.phase


def test_a_running_attempt_is_stopped_and_stopped_again_if_it_starts_late() -> None:
    expected: list[list[Command]] = [[EndAttempt(1)], [EndAttempt(1)], []]

    state = after(job.submitted(J), Begin(), Offered(P), IntentStored())
    _, actual = live(state, Cancel(), Running(1), Cancel())

    assert expected == actual


@pytest.mark.parametrize("before", [[finished(1)], [finished(1), Recorded()]])
def test_cancelling_comes_too_late_for_what_has_ended(before: list[Event]) -> None:
    expected = JobStatus.FINISHED

    state = after(running(), *before)
    phase, said = live(state, Cancel())
    actual = after(state, Cancel(), Recorded())

    assert (state.phase, [[]]) == (phase, said)
    assert expected is actual.status


# --- giving way -----------------------------------------------------------------------------------


def unreached(*events: Event) -> JobState:
    return after(job.submitted(J), *events, Forgotten())


def test_a_job_gives_way_with_proof_of_death_and_goes_on_as_the_next_attempt() -> None:
    expected: list[list[Command]] = [
        [EndAttempt(1)],
        [ReturnSlot(), RecordDisplaced()],
        [],
        [],
        [RequestSlot()],
        [StoreIntent(2, Q, NO_COUNT)],
    ]

    _, actual = live(
        unreached(Begin(), *begun()),
        Displace(),
        killed(1),
        Recorded(),
        Reached(),
        Begin(),
        Offered(Q),
    )

    assert expected == actual


@pytest.mark.parametrize(
    ("before", "events", "expected"),
    [
        ([], [], [ReturnSlot(), RecordDisplaced()]),
        ([Begin(), *begun()], [lost(1), Looked(None)], [RecordDisplaced()]),
        ([Begin(), *begun()], [lost(1), Looked(raised(1))], [ReturnSlot(), RecordDisplaced()]),
        ([Begin(), *begun()], [raised(1)], [ReturnSlot(), RecordDisplaced()]),
        ([Begin(), *begun(), lost(1)], [Looked(None)], [RecordDisplaced()]),
        ([Begin(), Offered(P)], [IntentStored()], [ReturnSlot(), RecordDisplaced()]),
        ([Begin(), Offered(P)], [lost(1), IntentStored()], [ReturnSlot(), RecordDisplaced()]),
    ],
)
def test_what_gives_way_is_set_aside_and_not_counted(
    before: list[Event], events: list[Event], expected: list[Command]
) -> None:
    state = unreached(*before)

    phase, said = live(state, Displace(), *events)
    aside = after(state, Displace(), *events)

    assert expected == said[-1]
    assert Phase.SUSPENDED is phase
    assert (None, NO_COUNT) == (aside.placement, aside.restarts)


def test_a_job_that_finished_while_it_was_to_give_way_has_finished() -> None:
    expected = [[EndAttempt(1)], [ReturnSlot(), kept(1)]]

    _, actual = live(unreached(Begin(), *begun()), Displace(), finished(1))

    assert expected == actual


def test_a_job_that_is_reached_while_it_gives_way_begins_again_once_that_is_noted() -> None:
    expected: list[list[Command]] = [
        [EndAttempt(1)],
        [],
        [],
        [ReturnSlot(), RecordDisplaced()],
        [RequestSlot()],
    ]

    _, actual = live(
        unreached(Begin(), *begun()), Displace(), Reached(), Begin(), killed(1), Recorded()
    )

    assert expected == actual


@pytest.mark.parametrize("events", [[killed(1)], [lost(1), Looked(None)]])
def test_a_job_that_is_cancelled_while_it_gives_way_is_cancelled(events: list[Event]) -> None:
    expected = [ReturnSlot(), CANCELED]

    _, actual = live(unreached(Begin(), *begun()), Displace(), Cancel(), *events)

    assert expected == actual[-1]


def test_a_job_that_was_set_aside_may_be_cancelled() -> None:
    expected = [[ReturnSlot(), CANCELED], []]

    actual = live(after(unreached(Begin(), *begun()), Displace(), killed(1)), Cancel(), Recorded())

    assert (Phase.DONE, expected) == actual


def test_a_job_that_began_again_may_give_way_again() -> None:
    expected = [[], [EndAttempt(2)]]
    aside = after(unreached(Begin(), *begun()), Displace(), killed(1), Recorded())

    again = after(aside, Reached(), Begin(), Offered(P), IntentStored(), Running(2))
    _, actual = live(again, Forgotten(), Displace())

    assert expected == actual


# --- after a failover -----------------------------------------------------------------------------

RESULT = JobResultEntry(status=JobStatus.FAILED, attempt=2, source=source(2))
COUNTED = Restarts(failures=2, losses=1)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (entry(), JobState(J, restarts=COUNTED, recovered=True)),
        (entry(2, placed=False), JobState(J, Phase.IDLE, 2, restarts=COUNTED, recovered=True)),
        (entry(2), JobState(J, Phase.RECONCILING, 2, P, COUNTED, recovered=True)),
        (
            replace(entry(2), displaced=True),
            JobState(J, Phase.SUSPENDED, 2, restarts=COUNTED, recovered=True),
        ),
        (
            replace(entry(2), displaced=True, result=RESULT),
            JobState(J, Phase.DONE, 2, restarts=COUNTED, recovered=True, status=JobStatus.FAILED),
        ),
    ],
)
def test_a_new_leader_goes_on_from_what_is_durable(left: JobEntry, expected: JobState) -> None:
    actual = job.recovered(left)

    assert expected == actual


def test_a_submitted_job_was_reached() -> None:
    expected = JobState(J, reached=True)

    actual = job.submitted(J)

    assert expected == actual


@pytest.mark.parametrize(
    "events", [[Running(2), Reached(), Begin()], [Reached(), Begin(), Running(2)]]
)
def test_a_running_attempt_is_adopted_and_not_run_again(events: list[Event]) -> None:
    state = job.recovered(entry(2))
    expected: list[list[Command]] = [[], [], []]

    _, actual = live(state, *events)
    adopted = after(state, *events)

    assert expected == actual
    assert (Phase.RUNNING, True) == (adopted.phase, adopted.adopted)
    assert Phase.DONE is after(adopted, finished(2), Recorded()).phase


@pytest.mark.parametrize("events", [[finished(2)], [lost(2), Looked(finished(2))]])
def test_what_finished_while_nobody_led_is_recorded_before_main_reaches_it(
    events: list[Event],
) -> None:
    expected = [ReturnSlot(), kept(2)]

    _, actual = live(job.recovered(entry(2)), *events)

    assert expected == actual[-1]


@pytest.mark.parametrize("events", [[raised(2)], [lost(2), Looked(None)]])
def test_what_failed_before_main_reached_it_waits_until_it_does(events: list[Event]) -> None:
    expected: list[list[Command]] = [[], [RequestSlot()], [StoreIntent(3, Q, COUNTED)]]
    state = after(job.recovered(entry(2)), *events)

    _, actual = live(state, Reached(), Begin(), Offered(Q))
    stored = actual[-1][0]

    assert Phase.IDLE is state.phase
    assert expected[:2] == actual[:2]
    assert isinstance(stored, StoreIntent)
    assert (3, COUNTED) != (stored.attempt, stored.restarts), "it was counted"


def test_an_attempt_that_main_does_not_reach_again_runs_on_until_it_gives_way() -> None:
    expected: list[list[Command]] = [[], [EndAttempt(2)], [ReturnSlot(), RecordDisplaced()]]

    _, actual = live(job.recovered(entry(2)), Running(2), Displace(), killed(2))

    assert expected == actual


def test_a_job_that_waited_when_main_was_executed_again_waits_for_main_first() -> None:
    expected: list[list[Command]] = [[ReturnSlot()], [], [], [RequestSlot()]]

    _, actual = live(after(job.submitted(J), Begin()), Forgotten(), Begin(), Reached(), Begin())

    assert expected == actual
