"""Stories of an application's life: how ``main`` and the jobs end it."""

from __future__ import annotations

from tests.core.application_words import (
    ANY_JOB,
    BAD,
    FAILED,
    FINISHED,
    LEFT,
    OOPS,
    A,
    B,
    cancel,
    concluded,
    end,
    fail,
    last,
    live,
    lost,
)
from understudy.core import application as life
from understudy.core.application import (
    ApplicationState,
    CancelJobs,
    Command,
    Conclude,
    Execute,
    JobEnded,
    JobReached,
    JobView,
    Main,
    MainRaised,
    MainReturned,
    PauseMain,
    ResultDelivered,
    StartMain,
)
from understudy.core.backoff import BackoffOver
from understudy.core.restart import Strategy
from understudy.model import ApplicationStatus, Failure, JobStatus, Restarts

# --- main alone -----------------------------------------------------------------------------------


def test_an_application_without_jobs_ends_with_main() -> None:
    expected: list[list[Command]] = [[StartMain()], concluded(FINISHED)]

    state, actual = live(ApplicationState(), Execute(), MainReturned())

    assert expected == actual
    assert FINISHED is state.ended


def test_what_main_raises_fails_the_application() -> None:
    expected: list[list[Command]] = [[StartMain()], concluded(FAILED, OOPS)]

    _, actual = live(ApplicationState(), Execute(), MainRaised(OOPS))

    assert expected == actual


def test_a_main_that_is_lost_is_executed_again_at_once() -> None:
    expected: list[list[Command]] = [[StartMain()], [PauseMain(0.0)], [StartMain()]]

    state, actual = live(ApplicationState(), Execute(), lost(), BackoffOver())

    assert expected == actual
    assert (Main.RUNNING, Restarts(losses=1)) == (state.main, state.restarts)


def test_a_main_that_is_lost_early_again_and_again_waits_and_is_given_up() -> None:
    strategy = Strategy(attempts=1)
    pauses = [0.0, 1.0, 1.5, 2.25]
    message = (
        "the process of main was killed; not executed again: its process was lost 11 times in a row"
    )
    expected = concluded(FAILED, Failure(type="MainLost", message=message, time=7.0))

    state, _ = live(ApplicationState(), Execute())
    seen: list[list[Command]] = []
    for _ in range(11):
        state, said = live(state, lost(0.0), BackoffOver(), strategy=strategy)
        seen.append(said[0])

    assert [[PauseMain(pause)] for pause in pauses] == seen[:4]
    assert expected == seen[-1]


def test_a_main_that_was_lost_is_not_executed_again_without_a_restart_strategy() -> None:
    strategy = Strategy("none", 0)

    _, actual = live(ApplicationState(), Execute(), lost(), strategy=strategy)

    assert isinstance(actual[-1][0], Conclude)


def test_the_losses_of_an_earlier_leader_are_counted_on() -> None:
    expected = [PauseMain(1.5)]

    _, actual = live(ApplicationState(restarts=Restarts(losses=2)), Execute(), lost(0.0))

    assert expected == actual[-1]


# --- jobs -----------------------------------------------------------------------------------------


def test_the_application_goes_on_until_every_job_has_ended() -> None:
    expected: list[list[Command]] = [[StartMain()], [], [], [], [], concluded(FINISHED)]

    _, actual = live(
        ApplicationState(), Execute(), JobReached(A), JobReached(B), end(A), MainReturned(), end(B)
    )

    assert expected == actual


def test_a_failed_job_that_nobody_awaited_fails_the_application() -> None:
    expected = concluded(FAILED, BAD)

    actual = last(Execute(), JobReached(A), fail(A), MainReturned())

    assert expected == actual


def test_a_failed_job_that_main_caught_does_not() -> None:
    expected = concluded(FINISHED)

    actual = last(Execute(), JobReached(A), fail(A), ResultDelivered(A), MainReturned())

    assert expected == actual


def test_a_job_that_fails_after_main_has_returned_fails_the_application() -> None:
    expected = concluded(FAILED, BAD)

    actual = last(Execute(), JobReached(A), MainReturned(), fail(A))

    assert expected == actual


def test_a_cancelled_job_that_nobody_awaited_fails_nothing() -> None:
    expected = concluded(FINISHED)

    actual = last(Execute(), JobReached(A), cancel(A), MainReturned())

    assert expected == actual


def test_a_failed_job_without_a_reason_gives_one() -> None:
    expected = concluded(FAILED, ANY_JOB)

    actual = last(Execute(), JobReached(A), JobEnded(A, JobStatus.FAILED, None), MainReturned())

    assert expected == actual


def test_a_result_that_is_delivered_of_no_known_job_changes_nothing() -> None:
    state, _ = live(ApplicationState(), Execute())
    expected: life.Step = (state, [])

    actual = life.step(state, ResultDelivered(A), Strategy(), None, 0.5)

    assert expected == actual


def test_when_main_fails_its_jobs_are_cancelled_before_the_end() -> None:
    expected: list[list[Command]] = [
        [CancelJobs((A, B), "the application failed")],
        [],
        concluded(FAILED, OOPS),
    ]
    state, _ = live(ApplicationState(), Execute(), JobReached(A), JobReached(B))

    ending, actual = live(state, MainRaised(OOPS))
    assert ApplicationStatus.FAILING is life.status_of(ending)
    _, rest = live(ending, cancel(A), end(B))

    assert expected == [*actual, *rest]


def test_what_fails_first_is_told_at_the_end() -> None:
    expected = concluded(FAILED, OOPS)

    actual = last(Execute(), JobReached(A), MainRaised(OOPS), fail(A))

    assert expected == actual


# --- jobs of an earlier execution -----------------------------------------------------------------


def test_a_job_that_main_does_not_reach_again_is_cancelled_when_main_has_ended() -> None:
    expected: list[list[Command]] = [
        [CancelJobs((B,), "main ended without reaching it again")],
        [],
        concluded(FINISHED),
    ]
    state, _ = live(LEFT, Execute(), JobReached(A))

    dropping, first = live(state, MainReturned())
    _, rest = live(dropping, cancel(B), end(A))

    assert expected == [*first, *rest]
    assert dropping.jobs[B].dropped
    assert not dropping.jobs[A].dropped


def test_a_failed_job_that_this_main_did_not_reach_fails_nothing() -> None:
    expected = concluded(FINISHED)

    _, actual = live(LEFT, Execute(), fail(A), fail(B), MainReturned())

    assert expected == actual[-1]


def test_each_execution_of_main_begins_with_nothing_reached_and_nothing_awaited() -> None:
    expected = {A: JobView(reached=False, status=JobStatus.FAILED, failure=BAD)}

    state, _ = live(
        ApplicationState(),
        Execute(),
        JobReached(A),
        fail(A),
        ResultDelivered(A),
        lost(),
        BackoffOver(),
    )

    assert expected == state.jobs


def test_a_failure_that_the_last_execution_received_must_be_received_again() -> None:
    expected = concluded(FAILED, BAD)

    actual = last(
        Execute(),
        JobReached(A),
        fail(A),
        ResultDelivered(A),
        lost(),
        BackoffOver(),
        JobReached(A),
        MainReturned(),
    )

    assert expected == actual
