"""One application in one term: executes ``main``, serves its requests, commits its result.

``core.application`` decides the states of the application; this module carries out its commands.
The application's jobs live in ``jobmanager.application_jobs``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from understudy.core import application as life
from understudy.core import matching, recovery, values
from understudy.core.backoff import BackoffOver
from understudy.core.matching import Assignment
from understudy.core.restart import Strategy
from understudy.errors import EnvironmentFailed, InvalidValueError, ResultUnavailable
from understudy.ha import layout
from understudy.ha.application_store import StoredApplication
from understudy.ha.format import digest
from understudy.ha.result_store import application_results
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.application_jobs import ApplicationJobs
from understudy.jobmanager.job_master import JobMasterContext
from understudy.jobmanager.job_requests import JobRequests
from understudy.jobmanager.job_slots import JobSlots
from understudy.jobmanager.main_desk import MainDesk
from understudy.jobmanager.main_process import MainProcess
from understudy.jobmanager.main_queue import MainQueue, Turn
from understudy.model import (
    ApplicationDocument,
    ApplicationRecord,
    ApplicationResult,
    ApplicationResultEntry,
    ApplicationStatus,
    Failure,
    JobId,
    JobStatus,
    Pointer,
)
from understudy.process import code, environments, given_files
from understudy.process.environments import Ground
from understudy.process.failures import storable
from understudy.process.persist import once, persist
from understudy.process.reporter import log_name
from understudy.rpc import messages

MAIN_GRACE_S = 5.0
"""How long the process of ``main`` may live after SIGTERM, or after it reported its end."""

EXCEEDED = "LimitExceeded"
"""Type of the failure of an application whose ``main`` has used more than an option allows."""

_THROUGH = {
    ApplicationStatus.FAILED: ApplicationStatus.FAILING,
    ApplicationStatus.CANCELED: ApplicationStatus.CANCELING,
}
"""The state passed through before a final state, as in Flink."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ApplicationSettings:
    """The options that govern how an application is executed."""

    strategy: Strategy
    policy: bool | None
    unreached_grace_s: float
    redacted_keys: tuple[str, ...]
    lay_out: Callable[[], Awaitable[Ground]]
    """Unpacks the code on this host, and gets its interpreter. Raises `EnvironmentFailed`."""


class Application:
    """One application, executed by this leader."""

    def __init__(
        self,
        stored: StoredApplication,
        context: JobMasterContext,
        settings: ApplicationSettings,
        services: HighAvailabilityServices,
        queue: MainQueue,
        lost_at: float | None,
    ) -> None:
        self.stored = stored
        self.record = context.record
        self.context = context
        self._timestamps = dict(stored.body.timestamps)
        self._settings = settings
        self._services = services
        self._queue = queue
        self._turn: Turn | None = None
        """Held while ``main`` has a process, and while it waits for its first one."""
        self.served = asyncio.Event()
        """Set once TaskManagers' reports of its attempts can be judged."""
        self._reporter = context.reporter
        self._state = life.ApplicationState(restarts=stored.body.restarts)
        self._inbox: asyncio.Queue[life.Event] = asyncio.Queue()
        self._main: MainProcess | None = None
        self._starting: asyncio.Task[None] | None = None
        """Set while ``main`` waits for its process."""
        self._failure: Failure | None = None
        self._group = asyncio.TaskGroup()
        self.jobs = ApplicationJobs(
            context, settings.unreached_grace_s, lost_at, self._spawn, self.enqueue
        )
        self.requests = JobRequests(self.jobs)
        self.slots = JobSlots(self.jobs)

    @property
    def status(self) -> ApplicationStatus:
        """Return the application's status."""
        return life.status_of(self._state)

    @property
    def timestamps(self) -> dict[str, float]:
        """Return when the application first entered each of its states."""
        return {ApplicationStatus.CREATED.value: self.stored.body.created_at, **self._timestamps}

    @property
    def failure(self) -> Failure | None:
        """Return the cause of the application's failure, while it is failing and afterwards."""
        return self._state.failure if self._state.ended is None else self._failure

    @property
    def waits(self) -> str:
        """Return why it waits to execute ``main``; empty if it does not."""
        return self._turn.waits if self._turn else ""

    @property
    def has_recorded(self) -> bool:
        """Return whether a job has recorded checkpoints, which a cancellation would remove."""
        return any(entry.checkpoints for entry in self.jobs.entries.values())

    def enqueue(self, event: life.Event) -> None:
        """Put an event into the inbox."""
        self._inbox.put_nowait(event)

    async def run(self) -> None:
        """Execute the application until its result is durable. Raises `LeadershipLost`."""
        try:
            async with self._group:
                self._recover()
                # Not before: what TaskManagers tell of a job is for its JobMaster.
                self.context.resources.serve(self.slots)
                self.served.set()
                turn = self._spawn(self._hold_turn())
                while not self._state.ended:
                    event = await self._inbox.get()
                    before = self.status
                    self._state, commands = life.step(
                        self._state,
                        event,
                        self._settings.strategy,
                        self._settings.policy,
                        self.context.chance.random(),
                    )
                    if self.status is not before and not self._state.ended:
                        self._entered(self.status)
                        self._report_status()
                    for command in commands:
                        await self._obey(command)
                turn.cancel()
        finally:
            await self._end_main()

    async def _hold_turn(self) -> None:
        """Begin once ``main`` may have a process, and at once where it is not to be executed."""
        if self._state.cancelled:
            self.enqueue(life.Execute())
            return
        body = self.stored.body
        rank = recovery.rank(self.context.priority, body.created_at, self.jobs.entries.values())
        self._turn = self._queue.turn(rank)
        async with self._turn:
            self.enqueue(life.Execute())
            await asyncio.Future()

    def _entered(self, status: ApplicationStatus) -> float:
        """Record when the application first entered a state, under this or an earlier leader."""
        return self._timestamps.setdefault(status.value, self.context.clock.wall())

    def _recover(self) -> None:
        views = self.jobs.recover()
        body = self.stored.body
        self._state = life.ApplicationState(
            jobs=views, restarts=body.restarts, cancelled=body.cancel_requested
        )
        if body.cancel_requested:
            self.jobs.cancel(tuple(self.jobs.masters))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._group.create_task(work)

    # --- main -------------------------------------------------------------------------------------

    async def _obey(self, command: life.Command) -> None:
        match command:
            case life.StartMain():
                await self._execute_main()
            case life.PauseMain():
                _log.info("main is executed again in %.1f s", command.delay_s)
                loop = asyncio.get_running_loop()
                loop.call_later(command.delay_s, self.enqueue, BackoffOver())
            case life.StopMain():
                self._stop_main()
            case life.CancelJobs():
                self.jobs.cancel(command.jobs, command.reason)
            case life.Conclude():
                await self._end_main()
                self._failure = command.failure
                await self._commit(command.status, command.failure)

    async def _execute_main(self) -> None:
        self.jobs.main_started()
        restarts = self._state.restarts
        self._entered(ApplicationStatus.RUNNING)
        timestamps = dict(self._timestamps)

        def change(body: ApplicationDocument) -> ApplicationDocument:
            return replace(
                body,
                status=ApplicationStatus.RUNNING,
                executions=body.executions + 1,
                timestamps=timestamps,
                restarts=restarts,
            )

        body = await persist(
            "note that main is executed", lambda: self.stored.update(self.context.term, change)
        )
        self._starting = self._spawn(self._start_main(body))

    async def _start_main(self, body: ApplicationDocument) -> None:
        """Wait for a process, and let it execute ``main``; events are handled meanwhile."""
        assert self._turn is not None
        if self.record.plan:
            self._turn.leave()  # It needs no process.
            await self._have_job(self.record.plan)
            return
        if environments.brings_python(self.record.artifacts, self.record.profile.conf):
            self._turn.started()  # A build may take minutes, for which others do not wait.
        try:
            ground = await self._settings.lay_out()
        except EnvironmentFailed as error:
            self._starting = None
            self._turn.leave()
            self.enqueue(life.MainRaised(self._failed_with(error)))
            return
        try:
            self._main = await self._turn.take(ground.python)
        except EnvironmentFailed as error:  # It may have been killed from outside.
            self._starting = None
            self._turn.leave()
            self.enqueue(life.MainLost(self._failed_with(error), 0.0))
            return
        self._starting = None
        self._main.listen(self._printed)
        began = self.context.clock.now()
        assignment = matching.resumed(
            self.record.application_id, self.record.first_job_id, self.jobs.entries.values()
        )
        order = self._run_main(body, assignment, ground.directory)
        self._main.link.send(order, self.context.term)
        _log.info("main of %s is executed, for the %d. time", self.record.name, body.executions)
        self._spawn(self._attend_main(self._main, assignment, began))

    def _failed_with(self, error: EnvironmentFailed) -> Failure:
        _log.error("%s: %s", self.record.name, error)
        return Failure(
            type=type(error).__name__, message=storable(str(error)), time=self.context.clock.wall()
        )

    async def _have_job(self, plan: Pointer) -> None:
        """Do what a ``main`` would that submits one job and returns once it has the result."""
        job_id, name = JobId(self.record.first_job_id), self.record.job_name
        submit = messages.Submit(request=0, job_id=job_id, name=name, occurrence=0, plan=plan)
        await self.requests.submit(submit)
        now = self.context.clock.wall()
        try:
            outcome = await self.requests.outcome(job_id)
        except ResultUnavailable as error:
            failure = Failure(type=type(error).__name__, message=str(error), time=now)
            self.enqueue(life.MainRaised(replace(failure, job_id=job_id)))
            return
        finally:
            self._starting = None
        self.requests.result_delivered(job_id)
        if outcome.status is JobStatus.FINISHED:
            self.enqueue(self._returned())
            return
        unknown = Failure(type="JobFailed", message=f"job {name!r} has ended", time=now)
        failure = replace(outcome.failure or unknown, job_id=job_id)
        canceled = outcome.status is JobStatus.CANCELED
        self.enqueue(life.MainRaised(failure, cancelled=canceled))

    def _stop_main(self) -> None:
        if self._main:
            self._main.process.stop(MAIN_GRACE_S)
        elif self._starting:
            self._starting.cancel()
            self._starting = None
            if self._turn:
                self._turn.leave()
            message = "main was stopped before its process had started"
            failure = Failure(type="MainLost", message=message, time=self.context.clock.wall())
            self.enqueue(life.MainLost(failure, 0.0))

    def _run_main(
        self, body: ApplicationDocument, assignment: Assignment, root: str
    ) -> messages.RunMain:
        record = self.record
        return messages.RunMain(
            application_id=record.application_id,
            run_id=record.run_id,
            target=record.target,
            script=_script_in(root, record),
            args=record.args,
            cwd=record.cwd,
            code=root,
            python_path=code.python_path(root, record.artifacts),
            conf=given_files.resolved(record.profile.conf, root, record.artifacts),
            redacted_keys=self._settings.redacted_keys,
            storage=self._services.storage.url,
            plans=f"{self.context.cluster}/applications/{body.directory}/plans",
            term=self.context.term,
            execution=body.executions,
            first_job_id=assignment.first_job_id,
            first_job_name=assignment.first_job_name,
            as_job=record.as_job,
        )

    async def _attend_main(self, main: MainProcess, assignment: Assignment, began: float) -> None:
        """Serve one execution, and enqueue how it ended once its process is reaped."""
        desk = MainDesk(main.link, self.requests, assignment, self._spawn, self._record_once)
        ended = await desk.serve()
        if ended is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAIN_GRACE_S):
                    await asyncio.shield(main.process.death)
            main.process.kill("main has ended")
        death = await asyncio.shield(main.process.death)
        main.link.close()
        self.requests.settled.set()
        if self._main is main:
            self._main = None
        if self._turn:
            self._turn.leave()
        if ended is not None and ended.failure is None:
            self.enqueue(self._returned())
        elif ended is not None and ended.failure is not None:
            # The job that ``main`` names is checked: ``main`` may have built the exception itself.
            status = self.jobs.ended_as(ended.job_id)
            failure = ended.failure
            if ended.job_id and status is JobStatus.FAILED:
                failure = replace(failure, job_id=ended.job_id)
            self.enqueue(life.MainRaised(failure, cancelled=status is JobStatus.CANCELED))
        elif death.reason == "ended" and not death.signal and death.code == 0:
            self.enqueue(self._returned())
        else:
            message = f"the process of main {death}"
            failure = Failure(type="MainLost", message=message, time=self.context.clock.wall())
            if death.exceeded:  # The next execution would exceed it, too.
                self.enqueue(life.MainRaised(replace(failure, type=EXCEEDED)))
            elif death.reason == "ended" and not death.signal:
                failure = replace(failure, type="SystemExit")
                self.enqueue(life.MainRaised(failure))
            else:
                _log.warning("%s", message)
                self.enqueue(life.MainLost(failure, max(0.0, death.at - began)))

    async def _record_once(self, name: str, value: str) -> str:
        """Record a value of ``main`` unless one is recorded; return the recorded one."""
        if not value or name in self.stored.body.once:
            return self.stored.body.once.get(name, "")
        size = sum(len(one.encode()) for one in (*self.stored.body.once.values(), value))
        if size > values.ONCE_BYTES_MAX:
            raise InvalidValueError(
                f"env.once({name!r}): the values of this run would take {size:,} bytes, and at "
                f"most {values.ONCE_BYTES_MAX:,} are recorded: let a job return what is large"
            )

        def change(body: ApplicationDocument) -> ApplicationDocument:
            return replace(body, once={name: value, **body.once})

        body = await persist(
            "record a value of main", lambda: self.stored.update(self.context.term, change)
        )
        return body.once[name]

    def _returned(self) -> life.Event:
        """Return the event for a normal return of ``main``.

        A failure if savepoints are unused, or the one job is missing.
        """
        if self.record.single_job and not self.jobs.entries:
            message = (
                "main has ended without a job: this application was submitted as one of exactly "
                "one job (/run); /run-application takes any number"
            )
            now = self.context.clock.wall()
            return life.MainRaised(Failure(type="SubmissionError", message=message, time=now))
        names = {entry.name for entry in self.jobs.entries.values()}
        missing = [
            one
            for one in self.record.savepoints
            if one.job_name not in names and not one.may_be_left
        ]
        if not missing:
            return life.MainReturned()
        left = ", ".join(f"{one.path} (of job {one.job_name!r})" for one in missing)
        message = (
            f"main has ended without a job for what it was started from: {left}; give the job that "
            "name, or add --allow-non-restored-state"
        )
        failure = Failure(type="CheckpointError", message=message, time=self.context.clock.wall())
        return life.MainRaised(failure)

    def _printed(self, text: str) -> None:
        log = log_name(self.record.run_id, self.record.application_id)
        self._reporter.line(log, "main", text)

    async def _end_main(self) -> None:
        """Kill and reap the process of ``main`` before another leader may execute ``main``."""
        if self._main:
            self._main.process.kill("its JobManager does not lead any more")
            await asyncio.shield(self._main.process.death)

    async def _commit(self, status: ApplicationStatus, failure: Failure | None) -> None:
        """Make the result durable: the application is never executed again."""
        body = self.stored.body
        if status in _THROUGH:
            self._entered(_THROUGH[status])
        end_time = self._entered(status)
        result = ApplicationResult(
            application_id=body.application_id,
            application_name=body.name,
            run_id=body.run_id,
            status=status,
            start_time=body.created_at,
            end_time=end_time,
            failure=failure,
            timestamps=self.timestamps,
            unreached=self.jobs.unreached,
        )
        data = application_results.dump(result, pretty=True)
        cluster, term = self.context.cluster, self.context.term
        path = layout.staged_application_path(cluster, body.directory, term)
        storage = self._services.storage
        await persist("stage the application's result", lambda: storage.publish(path, data))
        source = Pointer(path=path, digest=digest(data), size=len(data))
        entry = ApplicationResultEntry(status=status, source=source, end_time=result.end_time)
        await persist(
            "commit the application's result",
            lambda: self.stored.update(
                self.context.term,
                lambda body: replace(
                    body, status=status, result=entry, timestamps=dict(self._timestamps)
                ),
            ),
        )
        await once(
            "publish the application's result",
            lambda: self._services.application_results.publish_dirty(body.application_id, source),
        )
        self._report_status()

    async def cancel(self, *, unless_recorded: bool = False) -> bool:
        """Cancel the application, durably; return whether it is cancelled.

        ``unless_recorded``: an application with recorded checkpoints is not cancelled. The look is
        part of the update, as a checkpoint may be recorded while the update waits for its turn.
        """

        def change(body: ApplicationDocument) -> ApplicationDocument:
            if unless_recorded and self.has_recorded:
                return body
            return replace(body, cancel_requested=True)

        body = await persist(
            "note that the application is to be cancelled",
            lambda: self.stored.update(self.context.term, change),
        )
        if body.cancel_requested:
            self.enqueue(life.CancelRequested())
        return body.cancel_requested

    def _report_status(self) -> None:
        self._reporter.event(
            "application-status",
            application_id=self.record.application_id,
            run_id=self.record.run_id,
            name=self.record.name,
            status=self.status.value,
        )


def _script_in(root: str, record: ApplicationRecord) -> str:
    """Return the script's path: of an uploaded one, where it is laid out, with what is beside it.

    Empty for a module and for a function.
    """
    script = record.script
    if not script or script.startswith("/") or "://" in script:
        return script
    return f"{root}/{code.APP}/{record.target}"
