"""An application among jobs, losses and people: what must hold whatever happens, in any order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from understudy.core import application as life
from understudy.core.application import ApplicationState, Command, Event, JobView, Main, status_of
from understudy.core.backoff import BackoffOver
from understudy.core.restart import Strategy
from understudy.model import ApplicationStatus, Failure, JobId, JobStatus, Restarts

JOBS = st.sampled_from([JobId(name) for name in "ABC"])
FINALS = st.sampled_from([JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED])
OOPS = Failure(type="ValueError", message="oops")


class ApplicationExplored(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.policy: bool | None = None
        self.state = ApplicationState()
        self.main_lives = False
        self.main_stops = False
        self.pausing = False
        self.living: set[JobId] = set()
        self.ended: dict[JobId, JobStatus] = {}
        self.cancelling: set[JobId] = set()
        self.wished = False
        self.conclusions: list[ApplicationStatus] = []

    @initialize(policy=st.sampled_from([None, True, False]), left=st.sets(JOBS), done=st.sets(JOBS))
    def begin(self, policy: bool | None, left: set[JobId], done: set[JobId]) -> None:
        self.policy = policy
        self.living = left - done
        self.ended = dict.fromkeys(done, JobStatus.FINISHED)
        views = {job_id: JobView(reached=False) for job_id in sorted(self.living)}
        for job_id in sorted(done):
            views[job_id] = JobView(reached=False, status=JobStatus.FINISHED)
        self.state = ApplicationState(jobs=views)
        self.take(life.Execute())

    def take(self, event: Event) -> None:
        ended = self.state.ended
        self.state, commands = life.step(self.state, event, Strategy(attempts=1), self.policy, 0.5)
        assert not (ended and commands), "something happens after the end"
        for command in commands:
            self.obey(command)

    def obey(self, command: Command) -> None:
        match command:
            case life.StartMain():
                assert not self.main_lives, "main is executed twice at once"
                assert not self.wished, "main is executed though somebody cancelled"
                self.main_lives, self.main_stops = True, False
            case life.PauseMain():
                self.pausing = True
            case life.StopMain():
                assert self.main_lives
                self.main_stops = True
            case life.CancelJobs():
                assert command.jobs
                assert set(command.jobs) <= self.living, "what has ended is cancelled"
                self.cancelling |= set(command.jobs)
            case life.Conclude():
                assert not self.main_lives, "concluded while main lives"
                assert not self.living, "concluded before every job has a result"
                assert (command.failure is None) == (command.status is not ApplicationStatus.FAILED)
                self.conclusions.append(command.status)

    # --- main -------------------------------------------------------------------------------------

    @precondition(lambda self: self.main_lives)
    @rule(job_id=JOBS)
    def main_submits(self, job_id: JobId) -> None:
        if job_id not in self.ended:
            self.living.add(job_id)
        self.take(life.JobReached(job_id))

    @precondition(lambda self: self.main_lives and self.ended)
    @rule(data=st.data())
    def main_receives(self, data: st.DataObject) -> None:
        self.take(life.ResultDelivered(data.draw(st.sampled_from(sorted(self.ended)))))

    @precondition(lambda self: self.main_lives)
    @rule(how=st.sampled_from(["returns", "raises", "is cancelled", "is lost"]))
    def main_ends(self, how: str) -> None:
        self.main_lives = False
        match how:
            case "returns":
                self.take(life.MainReturned())
            case "raises":
                self.take(life.MainRaised(OOPS))
            case "is cancelled":
                self.take(life.MainRaised(OOPS, cancelled=True))
            case _:
                self.take(life.MainLost(OOPS, 0.0))

    @precondition(lambda self: self.pausing)
    @rule()
    def the_pause_is_over(self) -> None:
        self.pausing = False
        self.take(BackoffOver())

    # --- jobs, and people -------------------------------------------------------------------------

    @precondition(lambda self: self.living)
    @rule(data=st.data(), status=FINALS)
    def a_job_ends(self, data: st.DataObject, status: JobStatus) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.living))), status)

    def end(self, job_id: JobId, status: JobStatus) -> None:
        self.living.discard(job_id)
        self.ended[job_id] = status
        self.take(life.JobEnded(job_id, status, None))

    @rule()
    def somebody_cancels(self) -> None:
        self.wished = self.wished or self.state.ended is None
        self.take(life.CancelRequested())

    @rule()
    def no_driver_can_be_started(self) -> None:
        self.take(life.Broken(OOPS))

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def it_ends_once_and_as_it_says(self) -> None:
        expected = [self.state.ended] if self.state.ended else []

        assert expected == self.conclusions
        assert status_of(self.state).is_terminal == bool(expected)

    @invariant()
    def whoever_gives_up_lets_nothing_run_on(self) -> None:
        if (self.state.cancelled or self.state.failure) and not self.state.ended:
            assert self.living <= self.cancelling, "a job runs on, uncancelled"
            assert self.main_stops or not self.main_lives, "main runs on"

    @invariant()
    def nothing_hangs(self) -> None:
        if not self.state.ended:
            assert self.main_lives or self.pausing or self.living, "nothing will ever end it"

    def teardown(self) -> None:
        # Whatever happened: once all have ended, it has.
        if self.pausing:
            self.the_pause_is_over()
        if self.main_lives:
            self.main_ends("returns")
        for job_id in sorted(self.living):
            self.end(job_id, JobStatus.CANCELED)

        assert self.state.ended
        if self.wished and not self.state.failure:
            assert ApplicationStatus.CANCELED is self.state.ended


ApplicationExplored.TestCase.settings = settings(
    max_examples=120, stateful_step_count=25, deadline=None, derandomize=True
)
TestApplicationExplored = ApplicationExplored.TestCase


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ApplicationState(), ApplicationStatus.CREATED),
        (ApplicationState(Main.RUNNING), ApplicationStatus.RUNNING),
        (ApplicationState(Main.BACKING_OFF), ApplicationStatus.RUNNING),
        (ApplicationState(Main.ENDED), ApplicationStatus.RUNNING),
        (ApplicationState(Main.STOPPING, failure=OOPS), ApplicationStatus.FAILING),
        (ApplicationState(Main.STOPPING, cancelled=True), ApplicationStatus.CANCELING),
        (
            ApplicationState(Main.STOPPING, cancelled=True, failure=OOPS),
            ApplicationStatus.CANCELING,
        ),
        (ApplicationState(cancelled=True), ApplicationStatus.CANCELING),
        (
            ApplicationState(
                Main.ENDED, cancelled=True, failure=OOPS, ended=ApplicationStatus.FAILED
            ),
            ApplicationStatus.FAILED,
        ),
    ],
)
def test_a_state_is_shown_in_flinks_words(
    state: ApplicationState, expected: ApplicationStatus
) -> None:
    actual = status_of(state)

    assert expected is actual


@pytest.mark.parametrize("status", [each for each in ApplicationStatus if each.is_terminal])
def test_nothing_happens_after_the_end(status: ApplicationStatus) -> None:
    state = ApplicationState(Main.ENDED, restarts=Restarts(), ended=status)
    events: list[Event] = [
        life.Execute(),
        life.JobReached(JobId("A")),
        life.MainRaised(OOPS),
        life.MainLost(OOPS, 0.0),
        life.CancelRequested(),
        life.Broken(OOPS),
    ]
    expected: list[life.Step] = [(state, [])] * len(events)

    actual = [life.step(state, event, Strategy(), None, 0.5) for event in events]

    assert expected == actual
