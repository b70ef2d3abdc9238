"""JobMaster: drives one job through its attempts, as ``core.job`` decides.

One inbox, one task. Everything that happens to the job arrives as an event; its commands are
executed in order, durable ones to their end, before the next event is taken.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.config.options.jobs import JOBS_LIMIT
from understudy.core import checkpoints, failing, job
from understudy.core.failing import Failed
from understudy.core.job import JobState, Phase
from understudy.core.recovery import chosen_directory, lineage
from understudy.core.restart import Strategy
from understudy.core.slots import Placement
from understudy.errors import (
    CheckpointError,
    ConfigurationError,
    DataError,
    ForeignDataError,
    NotFoundError,
)
from understudy.ha import layout
from understudy.ha.checkpoint_store import CheckpointStore
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.format import digest
from understudy.ha.register import Register
from understudy.ha.result_store import ResultStore, outcomes
from understudy.ha.storage import Storage
from understudy.jobmanager.attention import REPAIR_LOOK_S
from understudy.jobmanager.checkpoint_coordinator import (
    Audience,
    CheckpointCoordinator,
    CheckpointSettings,
)
from understudy.jobmanager.failure_history import HISTORY_MAX, LOST, TIMED_OUT, FailureHistory
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.jobmanager.retained import retain
from understudy.jobmanager.savepoint_coordinator import About, SavepointCoordinator
from understudy.jobmanager.savepoint_files import Directories
from understudy.model import (
    ApplicationId,
    ApplicationRecord,
    Failure,
    Incarnation,
    Intent,
    JobEntry,
    JobId,
    JobResultEntry,
    JobStatus,
    Outcome,
    Pointer,
    Restarts,
    RunId,
    StartFrom,
    Term,
)
from understudy.process.persist import once, persist
from understudy.process.reporter import Reporter
from understudy.rpc import messages
from understudy.rpc.messages import AttemptMessage

AttemptEvent = (
    messages.AttemptRunning | messages.AttemptEnded | messages.AttemptLost | messages.AttemptRefused
)
"""A message that changes the state of the job."""

_log = logging.getLogger(__name__)

_TIMED = {
    JobStatus.RECONCILING,
    JobStatus.RESTARTING,
    JobStatus.CANCELING,
    JobStatus.SUSPENDED,
}
"""States whose times `JobEntry.timestamps` has; submission, intent and result time the others."""


@dataclass(frozen=True)
class JobMasterContext:
    """What the JobMasters of one application share."""

    term: Term
    application_id: ApplicationId
    run_id: RunId
    cluster: str
    directory: str
    deployment: int
    """Number of the deployment whose code is executed."""
    result_size_max: int
    strategy: Strategy
    plans: ExecutionPlanStore
    results: ResultStore
    storage: Storage
    resources: ResourceManager
    clock: Clock
    chance: random.Random
    register: Register
    checkpoints: CheckpointSettings
    record: ApplicationRecord
    """The submission of the application."""
    reporter: Reporter
    incarnation: str = ""
    """Incarnation of the cluster: unique, also among clusters with the same id."""
    priority: int = 0
    """Priority of the application's jobs for a slot; higher comes first."""
    jobs_max: int = JOBS_LIMIT
    """How many jobs the application may have."""
    history: int = HISTORY_MAX
    """Most failures of a job that are kept."""
    no_retry: tuple[str, ...] = ()
    """Exceptions that are not retried: names of classes."""
    ended_runs: Callable[[], tuple[RunId, ...]] = tuple
    """Returns the runs of the cluster that have ended lately."""
    attention: dict[str, str] = field(default_factory=dict)
    """Problems that need a person, by job."""


class Supervisor(Protocol):
    """Receiver of a job's state changes."""

    def job_changed(self, master: JobMaster, before: JobState) -> None:
        """The job's state has changed."""
        ...

    def no_slot(self, master: JobMaster) -> None:
        """The job waits for a slot."""
        ...

    def attempt_failed(self, master: JobMaster, end: Failed, failure: Failure) -> None:
        """An attempt of the job has failed."""
        ...

    def audience(self, master: JobMaster) -> Audience:
        """Return the receiver of the news about the job's checkpoints."""
        ...


class JobMaster:
    """One job of one application, in one term."""

    def __init__(
        self, state: JobState, entry: JobEntry, context: JobMasterContext, supervisor: Supervisor
    ) -> None:
        self.state = state
        self.name = entry.name
        self.job_id: JobId = entry.job_id
        self.progress: messages.Progress | None = None
        self.began: float | None = None
        self.timestamps = {**entry.timestamps}
        """Times of states, as those of `JobEntry`; the next write stores them."""
        self.failures: deque[Failure] = deque(maxlen=context.history)
        """Why attempts were lost in this term."""
        self._history = FailureHistory(
            context.storage, context.cluster, context.directory, context.history
        )
        self._keeping: set[asyncio.Task[None]] = set()
        """Writes and reports of failures; only the job's end waits for them."""
        self.checkpoints = CheckpointCoordinator(
            CheckpointStore(context.register, context.plans, context.application_id, entry.job_id),
            context.term,
            context.checkpoints,
            context.resources,
            context.clock,
            supervisor.audience(self),
        )
        self.savepoints = SavepointCoordinator(
            About(
                entry.job_id,
                entry.name,
                context.record.name,
                context.application_id,
                context.run_id,
                context.cluster,
                start_from(context.record, entry),
            ),
            Directories(
                context.storage.url,
                _checkpoint_directory(context, entry.job_id),
                f"{layout.tables_path(context.cluster, context.directory)}/{entry.job_id}",
            ),
            self.checkpoints,
            context.clock,
            self.enqueue,
            self._note_stop,
        )
        self._context = context
        self._supervisor = supervisor
        self._inbox: asyncio.Queue[job.Event] = asyncio.Queue()
        self._times = (entry.submitted_at, entry.submitted_at)
        self.done: asyncio.Event = asyncio.Event()
        self._waiting: asyncio.Task[None] | None = None
        """Waits for the repair of the last attempt's staged outcome."""
        self._lost_driver = ""  # Driver of the previous attempt, if that ran in this term.
        self._enter(job.status_of(state))

    @property
    def entry(self) -> JobEntry:
        """Return the job as it is stored."""
        return self._context.plans.entries[self.job_id]

    @property
    def _strategy(self) -> Strategy:
        return replace(self._context.strategy, retries=self.entry.limits.retries)

    @property
    def checkpoint_directory(self) -> str:
        """Return the directory of the job's checkpoints."""
        return _checkpoint_directory(self._context, self.job_id)

    def ran_s(self) -> float:
        """Return how long the attempt has run, as observed by this process.

        Never measured with another machine's clock: too short a time is safe.
        """
        return 0.0 if self.began is None else self._context.clock.now() - self.began

    def enqueue(self, event: job.Event) -> None:
        """Put an event into the inbox."""
        if isinstance(event, job.Cancel):
            self.checkpoints.give_up()
        self._inbox.put_nowait(event)

    def receive(self, taskmanager: Incarnation, message: AttemptMessage) -> None:
        """Put a TaskManager's message about the job's attempt into the inbox.

        Checkpoints have an inbox of their own: a slow write of theirs does not delay the job.
        """
        match message:
            case messages.CheckpointsTaken():
                self.checkpoints.taken(taskmanager, message)
            case messages.Progress():
                self._progressed(message)
            case _:
                self.enqueue(_event(message))

    def _progressed(self, progress: messages.Progress) -> None:
        """Show the progress, which no decision depends on."""
        self.progress = progress
        self._context.reporter.event(
            "job-progress",
            job_id=self.job_id,
            name=self.name,
            attempt=progress.attempt,
            tasks_done=progress.tasks_done,
            tasks_total=progress.tasks_total,
            stage=progress.stage,
        )

    async def run(self) -> None:
        """Drive the job until it has a durable result."""
        await self.checkpoints.recover(self.entry.attempt)
        try:
            if self.entry.intent is None:
                await self._begin_with_savepoint()
            elif self.state.phase is Phase.PLACING:
                self.enqueue(job.IntentStored())  # Together with the job.
            while self.state.phase is not Phase.DONE:
                await self._take(await self._inbox.get())
        finally:
            if self._waiting:
                self._waiting.cancel()
            self.checkpoints.close()
            if self.state.phase is Phase.DONE:
                self.savepoints.close("the job has ended")
            else:
                self.savepoints.leave()
                for task in self._keeping:
                    task.cancel()
        await asyncio.gather(*self._keeping)
        self.done.set()

    async def _take(self, event: job.Event) -> None:
        before = self.state
        self.state, commands = job.step(
            before, event, self._strategy, self._context.chance.random()
        )
        self._note(before, event)
        if (status := job.status_of(self.state)) is not job.status_of(before):
            self._enter(status)
        self._supervisor.job_changed(self, before)
        if end := failing.failed(before, event, self.state, commands, self._strategy):
            self._aside(once("tell why an attempt failed", lambda: self._report_failure(end)))
        for command in commands:
            await self._obey(command)

    def _enter(self, status: JobStatus) -> None:
        """Note the time of a state; a cancellation begins once, whoever leads meanwhile."""
        if status in _TIMED:
            at = self._context.clock.wall()
            begun = self.timestamps.get(status.value, at)
            self.timestamps[status.value] = begun if status is JobStatus.CANCELING else at

    async def _begin_with_savepoint(self) -> None:
        """Lay out the savepoint that the job begins with, if any, before its first attempt."""
        try:
            await self.savepoints.begin()
        except (CheckpointError, ConfigurationError) as error:
            _log.error("job %r cannot begin: %s", self.name, error)
            await self._take(job.Unrestorable(str(error)))

    def _note(self, before: JobState, event: job.Event) -> None:
        if isinstance(event, job.Running) and event.attempt == self.state.attempt:
            self.began = self._context.clock.now()
        elif isinstance(event, job.IntentStored):
            self.began = None  # The value was the previous attempt's.
        elif isinstance(event, job.Ended):
            self._times = (event.start_time, event.end_time)
        elif isinstance(event, job.Looked) and event.found:
            self._times = (event.found.start_time, event.found.end_time)
        elif isinstance(event, job.Looked) and not _is_wanted(before):
            self._note_loss(before)

    def _note_loss(self, state: JobState) -> None:
        failure = Failure(
            type=LOST, message=state.lost, time=self._context.clock.wall(), attempt=state.attempt
        )
        self.failures.append(failure)
        self._aside(
            once("keep why an attempt was lost", lambda: self._history.keep(self.job_id, failure))
        )

    async def _report_failure(self, end: Failed) -> None:
        now = self._context.clock.wall()
        if end.lost:
            failure: Failure | None = Failure(type=LOST, message=end.lost, time=now)
        else:
            failure = await self._history.of(self.job_id, end.attempt)
        missing = Failure(type="Exception", message="what it raised cannot be read", time=now)
        if failure and failure.type == TIMED_OUT:
            end = replace(end, reason=failing.TIMEOUT)
        self._supervisor.attempt_failed(self, end, failure or missing)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what no decision waits for."""
        task = asyncio.create_task(work)
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _obey(self, command: job.Command) -> None:
        context = self._context
        match command:
            case job.RequestSlot():
                if not context.resources.request(context.application_id, self.job_id):
                    self._supervisor.no_slot(self)
            case job.ReturnSlot():
                context.resources.release(self.job_id)
            case job.StoreIntent():
                await self._store_intent(command.attempt, command.placement, command.restarts)
                self.enqueue(job.IntentStored())
            case job.DeployAttempt():
                self._deploy(command.attempt, command.placement)
            case job.EndAttempt():
                self._stop(command.attempt)
            case job.LookForOutcome():
                await self._look_for_outcome(command.attempt)
            case job.Pause():
                self._pause(command)
            case job.TakeSavepoint():
                self.savepoints.stands_still()
            case job.RecordResult():
                await self._record(command)
                self.enqueue(job.Recorded())
            case job.RecordDisplaced():
                await self._update("note that a job gave way", _displaced)
                self.enqueue(job.Recorded())

    # --- attempts ---------------------------------------------------------------------------------

    async def _store_intent(self, attempt: int, place: Placement, restarts: Restarts) -> None:
        context = self._context
        before = self.entry.intent
        # An attempt that never ran proves nothing about its assigned driver.
        self._lost_driver = before.driver if before and self.began is not None else ""
        intent = intent_of(context, self.entry, attempt, place)

        def change(entry: JobEntry) -> JobEntry:
            return replace(
                entry, attempt=attempt, intent=intent, restarts=restarts, displaced=False
            )

        before = self.entry.intent
        await self._update("store an intent", change)
        if before:
            self._forget(before)
        await self.checkpoints.begin(attempt)

    def _deploy(self, attempt: int, place: Placement) -> None:
        entry = self.entry
        assert entry.intent is not None
        self.progress = None
        sent = self._context.resources.send(
            place.taskmanager,
            messages.Deploy(
                application_id=self._context.application_id,
                run_id=self._context.run_id,
                job_id=self.job_id,
                name=self.name,
                attempt=attempt,
                driver=place.driver,
                plan=entry.plan,
                staged=entry.intent.staged,
                # Ids may be reused once their tombstone is gone; the directory's name never is.
                writer=f"understudy-{lineage(entry)}-{self._context.directory}",
                result_size_max=self._context.result_size_max,
                checkpoints=self.checkpoint_directory,
                tables=layout.tables_path(self._context.cluster, self._context.directory),
                restored=self.checkpoints.given,
                accept_found=self._context.checkpoints.accept_found,
                cluster=self._context.incarnation,
                application_name=self._context.record.name,
                slots=self._context.resources.slots(),
                lost_driver=self._lost_driver,
                ended_runs=self._context.ended_runs(),
                no_retry=self._context.no_retry,
                timeout_s=entry.limits.timeout_s,
                whole=entry.limits.whole,
            ),
        )
        if not sent:
            # Disconnected: if the TaskManager registers again without this attempt, the attempt is
            # dead. If it was given up while the intent was stored, it is given up once more.
            self._context.resources.expect(place.taskmanager)
            _log.info("job %r: its TaskManager is away, the attempt was not sent", self.name)

    def _stop(self, attempt: int) -> None:
        if self.state.placement:
            self._context.resources.send(
                self.state.placement.taskmanager,
                messages.StopAttempt(job_id=self.job_id, attempt=attempt),
            )

    def _pause(self, pause: job.Pause) -> None:
        _log.info("job %r: %s; next attempt in %.1f s", self.name, pause.reason, pause.delay_s)
        loop = asyncio.get_running_loop()
        loop.call_later(pause.delay_s, self.enqueue, job.BackoffOver())

    async def _look_for_outcome(self, attempt: int) -> None:
        """Enqueue the outcome that a dead attempt has staged, once it is known.

        A damaged outcome proves that its attempt ended, perhaps FINISHED: the job is not run again,
        but waits until a person repairs or removes the file, or cancels the job.
        """
        try:
            self._looked(attempt, await self._look(attempt))
        except DataError as error:
            self._context.attention[self.job_id] = (
                f"job {self.name!r} waits: attempt {attempt} has ended, but how cannot be read: "
                f"{error}: put a sound copy in its place; or remove it, and the job runs again; "
                "or cancel the job"
            )
            _log.error("%s", self._context.attention[self.job_id])
            self._waiting = asyncio.create_task(self._await_repair(attempt))

    async def _await_repair(self, attempt: int) -> None:
        found = None
        while not self.state.cancelled:
            try:
                found = await self._look(attempt)
            except DataError:
                await asyncio.sleep(REPAIR_LOOK_S)
            else:
                break
        self._context.attention.pop(self.job_id, None)
        self._looked(attempt, found)

    def _looked(self, attempt: int, found: job.Ended | None) -> None:
        self.enqueue(job.Looked(found, self.checkpoints.has_advanced(attempt)))

    async def _look(self, attempt: int) -> job.Ended | None:
        """Return the outcome that a dead attempt has staged; None without one.

        Raises `DataError` for an outcome that is unreadable or of another attempt.
        """
        context = self._context
        path = layout.staged_path(context.cluster, context.directory, self.job_id, attempt)

        async def read() -> bytes | None:
            try:
                return await context.storage.read(path)
            except NotFoundError:
                return None

        data = await persist("look for a staged outcome", read)
        if data is None:
            return None
        place = context.storage.place(path)
        outcome = outcomes.load(data, place)
        if (outcome.job_id, outcome.attempt) != (self.job_id, attempt):
            raise ForeignDataError(
                f"{place}: is of attempt {outcome.attempt} of job {outcome.job_id}"
            )
        return job.Ended(
            attempt,
            outcome.status,
            outcome.retryable,
            Pointer(path=path, digest=digest(data), size=len(data)),
            max(0.0, outcome.end_time - outcome.start_time),
            outcome.start_time,
            outcome.end_time,
            dead=True,
        )

    # --- results ----------------------------------------------------------------------------------

    async def _record(self, command: job.RecordResult) -> None:
        """Commit the result: the job is never run again. Its cleanup publishes the file."""
        await self.checkpoints.finish()
        source = command.source or await self._stage(command)
        start_time, end_time = self._times
        storage, retention = self._context.storage, self._context.checkpoints.retention
        body = self.checkpoints.body
        checkpoint = await retain(
            storage, retention, self.entry, command.status, body, self.savepoints.manifest()
        )
        result = JobResultEntry(
            status=command.status,
            attempt=self.state.attempt,
            source=source,
            reason=command.reason,
            start_time=start_time,
            end_time=end_time,
            checkpoint=checkpoint,
            savepoint=self.savepoints.last,
            counts=tuple(checkpoints.counts(body, over=True)) if body.counter else (),
        )
        await self._update("commit a result", lambda entry: replace(entry, result=result))
        if intent := self.entry.intent:
            self._forget(intent)
        _log.info("job %r: %s in attempt %d", self.name, command.status.value, result.attempt)

    def _forget(self, intent: Intent) -> None:
        """Let a TaskManager keep no end of an attempt, which is recorded or followed by another."""
        forget = messages.Forget(job_id=self.job_id, attempt=intent.attempt)
        self._context.resources.send(intent.taskmanager, forget)

    async def _stage(self, command: job.RecordResult) -> Pointer:
        """Stage the outcome of a job for which no attempt has: cancelled, stopped, or lost."""
        context = self._context
        entry = self.entry
        now = context.clock.wall()
        self._times = (entry.intent.placed_at if entry.intent else entry.submitted_at, now)
        failure = None
        if command.status is JobStatus.FAILED:
            kind = LOST if entry.intent else "CheckpointError"  # Its savepoint could not be used.
            failure = Failure(type=kind, message=command.reason, time=now)
        outcome = Outcome(
            job_id=self.job_id,
            job_name=self.name,
            application_id=context.application_id,
            run_id=context.run_id,
            status=command.status,
            attempt=self.state.attempt,
            start_time=self._times[0],
            end_time=now,
            failure=failure,
            # Without an outcome of an attempt, a job is FINISHED only by ``stop --savepoint``.
            stopped=command.status is JobStatus.FINISHED,
        )
        data = outcomes.dump(outcome, pretty=True)
        path = layout.staged_by_leader_path(
            context.cluster,
            context.directory,
            self.job_id,
            self.state.attempt,
            context.term,
            command.status.value.lower(),
        )
        await persist("stage an outcome", lambda: context.storage.publish(path, data))
        return Pointer(path=path, digest=digest(data), size=len(data))

    async def _note_stop(self, status: JobStatus | None) -> None:
        if self.entry.stop_requested is not status:
            await self._update(
                "note how a job is to end", lambda entry: replace(entry, stop_requested=status)
            )

    async def _update(self, what: str, change: Callable[[JobEntry], JobEntry]) -> None:
        plans = self._context.plans

        def timed(entry: JobEntry) -> JobEntry:
            return replace(change(entry), timestamps={**entry.timestamps, **self.timestamps})

        await persist(what, lambda: plans.update(self._context.term, self.job_id, timed))


def _event(message: AttemptEvent) -> job.Event:
    match message:
        case messages.AttemptRunning():
            return job.Running(message.attempt)
        case messages.AttemptEnded():
            return job.Ended(
                message.attempt,
                message.status,
                message.retryable,
                message.source,
                message.ran_s,
                message.start_time,
                message.end_time,
                dead=message.reaped,
            )
        case messages.AttemptLost():
            return job.Lost(message.attempt, message.reason, message.ran_s, message.handed_over)
        case messages.AttemptRefused():
            return job.Refused(message.attempt, message.reason)


def _is_wanted(state: JobState) -> bool:
    """Return whether a request is ending the attempt whose outcome is looked for."""
    checking = state.phase is Phase.CHECKING
    return not checking or state.cancelled or state.displaced or state.ends_as is not None


def intent_of(context: JobMasterContext, entry: JobEntry, attempt: int, place: Placement) -> Intent:
    """Return what an attempt will do, and where."""
    return Intent(
        attempt=attempt,
        taskmanager=place.taskmanager,
        driver=place.driver,
        term=context.term,
        staged=layout.staged_path(context.cluster, context.directory, entry.job_id, attempt),
        placed_at=context.clock.wall(),
        deployment=context.deployment,
        checkpoints=chosen_directory(context.checkpoints.directory, entry),
    )


def start_from(record: ApplicationRecord, entry: JobEntry) -> StartFrom | None:
    """Return the savepoint that a job begins with: only the first job of a name has one."""
    if entry.occurrence:
        return None
    return next((one for one in record.savepoints if one.job_name == entry.name), None)


def _checkpoint_directory(context: JobMasterContext, job_id: JobId) -> str:
    entry = context.plans.entries[job_id]
    usual = layout.checkpoints_path(context.cluster, context.directory, lineage(entry))
    return chosen_directory(context.checkpoints.directory, entry) or usual


def _displaced(entry: JobEntry) -> JobEntry:
    return replace(entry, displaced=True)
