"""One job in a world of losses and failovers: what must hold whatever happens, in any order."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from msgspec.structs import replace as replace_event

from tests.core.job_words import MIDDLE, J, P, failed, finished, killed, raised, source
from understudy.core import job
from understudy.core.job import Command, Event, JobState, Phase
from understudy.core.restart import Strategy
from understudy.model import Intent, JobEntry, JobResultEntry, JobStatus

STRATEGY = Strategy(attempts=2)

OUTCOMES = {"finished": finished, "raised": raised, "failed": failed}


class JobExplored(RuleBasedStateMachine):
    """The world obeys the commands; each answer may come late, behind anything else."""

    def __init__(self) -> None:
        super().__init__()
        self.state = job.submitted(J)
        # What is durable.
        self.entry = JobEntry(job_id=J, name="J", occurrence=0, plan=source(0), submitted_at=0.0)
        self.staged: dict[int, job.Ended] = {}
        # What the leader waits for; lost with it.
        self.answers: list[Event] = []
        self.wants_slot = False
        self.backing_off = False
        self.stop_wanted = False
        """Durably, until a savepoint has failed."""
        self.stopping: set[int] = set()
        # The TaskManager.
        self.underway: set[int] = set()
        """Attempts that were sent, and may start."""
        self.alive: set[int] = set()
        self.lingering: set[int] = set()
        """Attempts whose function has ended, and processes of which live."""
        # What was seen.
        self.sent: Counter[int] = Counter()
        self.judged: Counter[int] = Counter()
        self.recorded: list[JobStatus] = []

    @property
    def living(self) -> set[int]:
        """Return the attempts of which anything lives, or may."""
        return self.alive | self.underway | self.lingering

    def take(self, event: Event) -> None:
        self.state, commands = job.step(self.state, event, STRATEGY, MIDDLE)
        for command in commands:
            self.obey(command)

    def obey(self, command: Command) -> None:
        match command:
            case job.RequestSlot():
                self.wants_slot = True
            case job.ReturnSlot():
                self.wants_slot = False
                assert not self.alive, "a slot is given back while the attempt lives in it"
            case job.StoreIntent():
                assert command.attempt > self.entry.attempt, "an attempt number is used again"
                intent = Intent(
                    attempt=command.attempt,
                    taskmanager=P.taskmanager,
                    driver=P.driver,
                    term=1,
                    staged="staged",
                )
                self.entry = replace(
                    self.entry,
                    attempt=command.attempt,
                    intent=intent,
                    restarts=command.restarts,
                    displaced=False,
                )
                self.answers.append(job.IntentStored())
            case job.DeployAttempt():
                self.deploy(command.attempt)
            case job.EndAttempt():
                self.stopping.add(command.attempt)
            case job.LookForOutcome():
                assert not self.living, "looked while the attempt may write"
                self.answers.append(job.Looked(self.staged.get(command.attempt)))
            case job.Pause():
                self.judge(self.state.attempt)
                self.backing_off = True
            case job.RecordResult():
                self.record(command)
            case job.TakeSavepoint():
                assert not self.living, "saved while the attempt may write"
                self.answers.append(job.Saved(durable=True))
            case job.RecordDisplaced():
                assert not self.living, "set aside without proof of death"
                self.entry = replace(self.entry, displaced=True)
                self.answers.append(job.Recorded())

    def deploy(self, attempt: int) -> None:
        assert self.entry.intent, "no intent is stored"
        assert self.entry.intent.attempt == attempt, "the intent is that of another attempt"
        assert self.entry.result is None, "it has a result"
        assert not self.living, "two attempts at once"
        assert not any(outcome.status is JobStatus.FINISHED for outcome in self.staged.values()), (
            "it has finished"
        )
        self.sent[attempt] += 1
        assert self.sent[attempt] == 1, "an attempt is sent twice"
        self.underway.add(attempt)

    def record(self, command: job.RecordResult) -> None:
        living = self.alive | self.underway
        if command.status is not JobStatus.FINISHED:
            living |= self.lingering
        assert not living, "recorded without proof of death"
        assert not self.recorded, "a result changes"
        outcome = self.staged.get(self.state.attempt)
        if outcome and outcome.status is JobStatus.FINISHED:
            assert command.status is JobStatus.FINISHED, "what has finished is thrown away"
        if command.source is not None:
            assert outcome is not None
            assert (outcome.source, outcome.status) == (command.source, command.status)
            self.judge(self.state.attempt)
        elif command.status is JobStatus.FINISHED:
            assert self.stop_wanted, "nobody asked for that"
        if command.status is JobStatus.CANCELED:
            assert self.state.cancelled, "nobody asked for that"
        self.recorded.append(command.status)
        result = JobResultEntry(status=command.status, attempt=self.state.attempt, source=source(0))
        self.entry = replace(self.entry, result=result)
        self.answers.append(job.Recorded())

    def judge(self, attempt: int) -> None:
        self.judged[attempt] += 1
        assert self.judged[attempt] == 1, "an outcome is judged twice"

    @initialize(at_work=st.booleans(), slot_is_free=st.booleans())
    def it_may_be_at_work(self, at_work: bool, slot_is_free: bool) -> None:
        """Much of what goes wrong goes wrong from here on: chance alone comes this far seldom."""
        if slot_is_free:  # The job and its first intent are one write.
            self.state = job.submitted(J, P)
            self.obey(job.StoreIntent(1, P, self.state.restarts))
        if at_work and slot_is_free:
            self.an_answer_comes()
            self.an_attempt_starts()
        elif at_work:
            self.main_reaches_it()
            self.a_slot_is_offered()
            self.an_answer_comes()
            self.an_attempt_starts()

    # --- main, and people -------------------------------------------------------------------------

    @rule()
    def main_reaches_it(self) -> None:
        self.take(job.Reached())
        self.take(job.Begin())

    @rule()
    def main_is_executed_again(self) -> None:
        self.take(job.Forgotten())

    @rule()
    def it_must_give_way(self) -> None:
        self.take(job.Displace())

    @rule()
    def somebody_cancels(self) -> None:
        if self.entry.result is None:
            self.entry = replace(self.entry, cancel_requested=True)
        self.take(job.Cancel())

    @rule()
    def somebody_stops_it_with_a_savepoint(self) -> None:
        if self.entry.result is None:
            self.stop_wanted = True
        self.take(job.Stop(JobStatus.FINISHED))

    # --- the leader -------------------------------------------------------------------------------

    @precondition(lambda self: self.answers)
    @rule()
    def an_answer_comes(self) -> None:
        self.take(self.answers.pop(0))

    @precondition(lambda self: self.answers == [job.Saved(durable=True)])
    @rule()
    def the_savepoint_fails(self) -> None:
        self.answers.pop()
        self.stop_wanted = False
        self.take(job.Saved(durable=False))

    @precondition(lambda self: self.wants_slot)
    @rule()
    def a_slot_is_offered(self) -> None:
        self.wants_slot = False
        self.take(job.Offered(P))

    @precondition(lambda self: self.backing_off)
    @rule()
    def the_pause_is_over(self) -> None:
        self.backing_off = False
        self.take(job.BackoffOver())

    @rule()
    def another_leads(self) -> None:
        self.answers, self.wants_slot, self.backing_off, self.stopping = [], False, False, set()
        self.judged = Counter()  # What the last one did not make durable is done again.
        self.state = job.recovered(self.entry)
        if self.entry.cancel_requested:
            self.take(job.Cancel())
        if self.stop_wanted:
            self.take(job.Stop(JobStatus.FINISHED))

    # --- the TaskManager --------------------------------------------------------------------------

    @precondition(lambda self: self.underway)
    @rule()
    def an_attempt_starts(self) -> None:
        self.alive = self.underway
        self.underway = set()

    @precondition(lambda self: self.alive)
    @rule()
    def it_is_told_that_an_attempt_runs(self) -> None:
        self.take(job.Running(max(self.alive)))

    @precondition(lambda self: self.alive)
    @rule(how=st.sampled_from(sorted(OUTCOMES)), lingers=st.booleans())
    def an_attempt_ends(self, how: str, lingers: bool) -> None:
        attempt = self.alive.pop()
        self.staged[attempt] = OUTCOMES[how](attempt)
        self.lingering |= {attempt} if lingers else set()

    @precondition(lambda self: self.alive & self.stopping)
    @rule(lingers=st.booleans())
    def an_attempt_is_stopped(self, lingers: bool) -> None:
        attempt = self.alive.pop()
        self.staged[attempt] = killed(attempt)
        self.lingering |= {attempt} if lingers else set()

    @precondition(lambda self: self.lingering)
    @rule()
    def its_processes_are_reaped(self) -> None:
        self.lingering = set()

    @precondition(lambda self: self.staged)
    @rule(data=st.data())
    def it_is_told_how_an_attempt_ended(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.staged)))
        self.take(replace_event(self.staged[attempt], dead=attempt not in self.lingering))

    @precondition(lambda self: self.underway)
    @rule()
    def an_attempt_is_refused(self) -> None:
        self.take(job.Refused(self.underway.pop(), "full"))

    @precondition(lambda self: self.entry.attempt)
    @rule()
    def the_taskmanager_dies(self) -> None:
        self.alive, self.underway, self.lingering = set(), set(), set()
        self.take(job.Lost(self.state.attempt, "gone", 0.0))

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def one_attempt_lives_at_most(self) -> None:
        assert len(self.alive | self.underway) <= 1

    @invariant()
    def what_was_recorded_stays(self) -> None:
        if self.state.phase is Phase.DONE:
            assert [self.state.status] == self.recorded
            assert job.status_of(self.state).is_terminal

    @invariant()
    def what_lives_is_awaited(self) -> None:
        if self.alive:
            assert job.holds_slot(self.state)

    def teardown(self) -> None:
        # Whatever happened: once main reaches it, the job comes to an end.
        for _ in range(100):
            if self.state.phase is Phase.DONE:
                break
            self.go_on()

        assert Phase.DONE is self.state.phase
        assert len(self.recorded) == 1

    def go_on(self) -> None:
        self.main_reaches_it()
        if self.answers:
            self.an_answer_comes()
        elif self.wants_slot:
            self.a_slot_is_offered()
        elif self.backing_off:
            self.the_pause_is_over()
        elif self.underway:
            self.an_attempt_starts()
        elif self.alive:
            self.an_attempt_ends("finished", lingers=True)
        elif self.lingering:
            self.its_processes_are_reaped()
        elif self.state.attempt in self.staged:
            self.take(self.staged[self.state.attempt])
        else:
            self.the_taskmanager_dies()


JobExplored.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, derandomize=True
)
TestJobExplored = JobExplored.TestCase


def test_a_state_is_not_changed_by_its_step() -> None:
    expected = JobState(J, reached=True)

    actual = job.submitted(J)
    job.step(actual, job.Begin(), STRATEGY, MIDDLE)

    assert expected == actual
