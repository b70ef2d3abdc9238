"""Stories of applications that are cancelled, broken, or end with any job."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.application_words import (
    ANY_JOB,
    BAD,
    CANCELED,
    FAILED,
    FINISHED,
    LEFT,
    OOPS,
    STOPPED,
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
    Broken,
    CancelJobs,
    CancelRequested,
    Command,
    Event,
    Execute,
    JobEnded,
    JobReached,
    JobView,
    MainRaised,
    MainReturned,
    StartMain,
    StopMain,
)
from understudy.core.backoff import BackoffOver
from understudy.model import ApplicationStatus, JobStatus

# --- cancelling -----------------------------------------------------------------------------------


def test_a_cancelled_application_stops_main_and_its_jobs() -> None:
    expected: list[list[Command]] = [
        [StopMain(), CancelJobs((A,), "cancelled")],
        [],
        [],
        concluded(CANCELED),
    ]
    state, _ = live(ApplicationState(), Execute(), JobReached(A), JobReached(B), end(B))

    stopping, first = live(state, CancelRequested())
    _, rest = live(stopping, CancelRequested(), cancel(A), STOPPED)

    assert expected == [*first, *rest]
    assert ApplicationStatus.CANCELING is life.status_of(stopping)


@pytest.mark.parametrize("policy", [None, False])
def test_a_cancelled_job_that_main_did_not_catch_cancels_the_application(
    policy: bool | None,
) -> None:
    expected: list[list[Command]] = [
        [CancelJobs((B,), "a job was cancelled")],
        concluded(CANCELED),
    ]
    state, _ = live(
        ApplicationState(), Execute(), JobReached(A), JobReached(B), cancel(A), policy=policy
    )

    ending, first = live(state, MainRaised(OOPS, cancelled=True), policy=policy)
    _, rest = live(ending, cancel(B), policy=policy)

    assert expected == [*first, *rest]
    assert ApplicationStatus.CANCELING is life.status_of(ending)


@pytest.mark.parametrize("heard", [STOPPED, MainReturned(), lost()])
def test_however_a_stopped_main_ends_the_application_is_cancelled(heard: Event) -> None:
    expected = concluded(CANCELED)

    actual = last(Execute(), CancelRequested(), heard)

    assert expected == actual


def test_a_main_that_was_told_to_end_is_not_executed_again() -> None:
    expected: list[Command] = []

    actual = last(Execute(), JobReached(A), CancelRequested(), lost(), BackoffOver())

    assert expected == actual


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], concluded(CANCELED)),
        ([Execute(), lost()], concluded(CANCELED)),
        ([Execute()], [StopMain()]),
        ([Execute(), JobReached(A), lost()], [CancelJobs((A,), "cancelled")]),
        ([Execute(), JobReached(A), MainReturned()], [CancelJobs((A,), "cancelled")]),
    ],
)
def test_an_application_is_cancelled_wherever_main_is(
    before: list[Event], expected: list[Command]
) -> None:
    actual = last(*before, CancelRequested())

    assert expected == actual


def test_a_pause_that_ends_after_cancelling_executes_nothing() -> None:
    expected: list[Command] = []

    actual = last(Execute(), JobReached(A), lost(), CancelRequested(), BackoffOver())

    assert expected == actual


def test_a_job_that_main_submits_while_it_is_stopped_is_cancelled_too() -> None:
    expected: list[list[Command]] = [
        [CancelJobs((A,), "cancelled")],
        [],
        concluded(CANCELED),
    ]

    _, actual = live(
        ApplicationState(), Execute(), CancelRequested(), JobReached(A), STOPPED, cancel(A)
    )

    assert expected == actual[2:]


def test_a_job_that_main_submits_while_the_application_fails_is_cancelled_too() -> None:
    expected = [CancelJobs((A,), "the application failed")]

    actual = last(Execute(), Broken(OOPS), JobReached(A))

    assert expected == actual


def test_a_job_that_has_ended_is_not_cancelled_when_it_is_reached_then() -> None:
    expected: list[Command] = []

    state, _ = live(
        ApplicationState(jobs={A: JobView(reached=False, status=JobStatus.FINISHED)}), Execute()
    )
    _, actual = live(state, CancelRequested(), JobReached(A))

    assert expected == actual[-1]


def test_a_new_leader_goes_on_with_cancelling_and_does_not_execute_main() -> None:
    expected: list[list[Command]] = [[], [], concluded(CANCELED)]

    _, actual = live(replace(LEFT, cancelled=True), Execute(), cancel(A), cancel(B))

    assert expected == actual


def test_main_is_executed_once_at_a_time() -> None:
    expected: list[Command] = []

    actual = last(Execute(), Execute())

    assert expected == actual


# --- no driver can be started ---------------------------------------------------------------------


def test_an_application_that_cannot_go_on_stops_main_and_fails() -> None:
    expected: list[list[Command]] = [
        [StopMain(), CancelJobs((A,), "the application failed")],
        [],
        concluded(FAILED, OOPS),
    ]
    state, _ = live(ApplicationState(), Execute(), JobReached(A))

    _, actual = live(state, Broken(OOPS), STOPPED, cancel(A))

    assert expected == actual


def test_the_first_failure_is_told_and_stopping_is_not_repeated() -> None:
    expected: list[list[Command]] = [[StopMain()], [], concluded(FAILED, OOPS)]
    state, _ = live(ApplicationState(), Execute())

    _, actual = live(state, Broken(OOPS), Broken(BAD), STOPPED)

    assert expected == actual


def test_a_failed_application_that_is_cancelled_too_has_failed() -> None:
    expected = concluded(FAILED, OOPS)

    actual = last(Execute(), Broken(OOPS), CancelRequested(), STOPPED)

    assert expected == actual


def test_a_cancelled_application_that_cannot_continue_either_is_cancelled() -> None:
    expected = concluded(CANCELED)

    actual = last(Execute(), CancelRequested(), Broken(OOPS), STOPPED)

    assert expected == actual


# --- terminate-application-on-any-job-terminated-exceptionally ------------------------------------


def test_true_a_failed_job_fails_the_application_at_once() -> None:
    expected: list[list[Command]] = [
        [StopMain(), CancelJobs((B,), "the application failed")],
        [],
        concluded(FAILED, BAD),
    ]
    state, _ = live(ApplicationState(), Execute(), JobReached(A), JobReached(B), policy=True)

    _, actual = live(state, fail(A), STOPPED, cancel(B), policy=True)

    assert expected == actual


def test_true_a_cancelled_job_cancels_the_application_at_once() -> None:
    expected: list[list[Command]] = [
        [StopMain(), CancelJobs((B,), "a job was cancelled")],
        [],
        concluded(CANCELED),
    ]
    state, _ = live(ApplicationState(), Execute(), JobReached(A), JobReached(B), policy=True)

    _, actual = live(state, cancel(A), cancel(B), STOPPED, policy=True)

    assert expected == actual


def test_true_a_finished_job_ends_nothing() -> None:
    expected: list[Command] = []

    actual = last(Execute(), JobReached(A), end(A), policy=True)

    assert expected == actual


def test_true_a_failed_job_without_a_reason_gives_one() -> None:
    expected = concluded(FAILED, ANY_JOB)

    actual = last(
        Execute(), JobReached(A), JobEnded(A, JobStatus.FAILED, None), STOPPED, policy=True
    )

    assert expected == actual


def test_true_what_main_dropped_is_not_held_against_it() -> None:
    expected = concluded(FINISHED)

    _, actual = live(LEFT, Execute(), JobReached(A), end(A), MainReturned(), cancel(B), policy=True)

    assert expected == actual[-1]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (JobView(reached=False, status=JobStatus.FAILED), concluded(FAILED, ANY_JOB)),
        (JobView(reached=False, status=JobStatus.FAILED, failure=BAD), concluded(FAILED, BAD)),
        (JobView(reached=False, status=JobStatus.CANCELED), concluded(CANCELED)),
        (JobView(reached=False, status=JobStatus.CANCELED, dropped=True), [StartMain()]),
        (JobView(reached=False, status=JobStatus.FINISHED), [StartMain()]),
    ],
)
def test_true_a_new_leader_draws_the_conclusion_that_the_last_could_not(
    view: JobView, expected: list[Command]
) -> None:
    _, actual = live(ApplicationState(jobs={A: view}), Execute(), policy=True)

    assert expected == actual[-1]


@pytest.mark.parametrize("policy", [None, False])
def test_otherwise_main_is_executed_whatever_became_of_earlier_jobs(policy: bool | None) -> None:
    expected = [StartMain()]

    _, actual = live(
        ApplicationState(jobs={A: JobView(reached=False, status=JobStatus.FAILED)}),
        Execute(),
        policy=policy,
    )

    assert expected == actual[-1]


def test_false_jobs_that_still_run_are_cancelled_when_main_has_returned() -> None:
    expected: list[list[Command]] = [
        [
            CancelJobs((B,), "main ended without reaching it again"),
            CancelJobs((A,), "main has ended"),
        ],
        [],
        concluded(FINISHED),
    ]
    state, _ = live(LEFT, Execute(), JobReached(A), policy=False)

    _, actual = live(state, MainReturned(), cancel(A), cancel(B), policy=False)

    assert expected == actual


def test_false_a_failed_job_that_nobody_awaited_does_not_count() -> None:
    expected = concluded(FINISHED)

    actual = last(Execute(), JobReached(A), fail(A), MainReturned(), policy=False)

    assert expected == actual


@pytest.mark.parametrize("policy", [None, True, False])
def test_what_main_raises_fails_the_application_in_any_case(policy: bool | None) -> None:
    expected = concluded(FAILED, OOPS)

    actual = last(Execute(), MainRaised(OOPS), policy=policy)

    assert expected == actual
