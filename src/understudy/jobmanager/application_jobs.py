"""The jobs of one application in one term: their JobMasters, and the callbacks into them.

``main`` submits and awaits jobs (`Jobs`), the ResourceManager offers slots and forwards messages
of TaskManagers (`Tenant`), JobMasters report state changes (`Supervisor`). ``core.reaching``
decides which job gives way after a failover, ``core.takeover`` when the takeover is complete.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace

from understudy.core import application as life
from understudy.core import job, reaching, recovery, takeover
from understudy.core.failing import Failed
from understudy.core.job import JobState, Phase
from understudy.core.recovery import Inventory
from understudy.core.slots import Placement
from understudy.core.takeover import Takeover
from understudy.errors import DataError, LostDataError, NotFoundError, ResultUnavailable
from understudy.ha.result_store import read_outcome
from understudy.jobmanager import failure_news
from understudy.jobmanager.checkpoint_news import CheckpointNews
from understudy.jobmanager.job_master import JobMaster, JobMasterContext
from understudy.jobmanager.past_results import PastResults
from understudy.model import (
    ApplicationRecord,
    Failure,
    Incarnation,
    JobEntry,
    JobId,
    JobStatus,
    Outcome,
    Pointer,
)
from understudy.process.persist import persist
from understudy.process.reporter import Reporter, log_name
from understudy.rpc import messages
from understudy.rpc.messages import LinkMessage, Submit

R = TypeVar("R")

_log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], object]
Tell = Callable[[life.Event], None]


@dataclass
class Marks:
    """The jobs of this term's execution, by fate, for display."""

    reached: set[JobId] = field(default_factory=set)
    adopted: set[JobId] = field(default_factory=set)
    skipped: set[JobId] = field(default_factory=set)
    displaced: set[JobId] = field(default_factory=set)


class ApplicationJobs:
    """All jobs of one application (`Jobs`, `Tenant` and `Supervisor`)."""

    def __init__(
        self,
        record: ApplicationRecord,
        context: JobMasterContext,
        unreached_grace_s: float,
        reporter: Reporter,
        lost_at: float | None,
        spawn: Spawn,
        tell: Tell,
    ) -> None:
        self.context = dataclasses.replace(context, record=record)
        self.marks = Marks()
        self.masters: dict[JobId, JobMaster] = {}
        self.taken_over: asyncio.Future[takeover.Report] = asyncio.Future()
        self.ended: asyncio.Queue[JobId] = asyncio.Queue()
        """Jobs with a durable result, waiting for their cleanup."""
        self.broken: Failure | None = None
        self._record = record
        self._reporter = reporter
        self._spawn = spawn
        self._tell = tell
        self._past = PastResults(context.results, context.plans.entries)
        self._reaching = reaching.ReachingState(unreached_grace_s)
        self._takeover = _takeover(context.plans.entries, lost_at)
        self._takeover_told = False
        self._without_drivers: set[Incarnation] = set()
        self._shown: dict[JobId, tuple[JobStatus, int, bool]] = {}

    @property
    def entries(self) -> dict[JobId, JobEntry]:
        """Return all jobs, in the order of their submission."""
        return self.context.plans.entries

    @property
    def unreached(self) -> tuple[JobId, ...]:
        """Return the jobs that this execution of ``main`` has not reached."""
        return tuple(job_id for job_id in self.entries if job_id not in self.marks.reached)

    def ended_as(self, job_id: JobId | None) -> JobStatus | None:
        """Return the status of a job's durable result; None without one."""
        entry = self.entries.get(job_id) if job_id else None
        return entry.result.status if entry and entry.result else None

    def recover(self) -> dict[JobId, life.JobView]:
        """Start a JobMaster for each unfinished job; return a view of every job."""
        views = {}
        for job_id, entry in self.entries.items():
            if entry.result:
                status = entry.result.status
                # A cancelled job affects the application's end only if a person cancelled it.
                wanted = entry.cancel_requested or entry.stop_requested is status
                dropped = status is JobStatus.CANCELED and not wanted
                views[job_id] = life.JobView(reached=False, status=status, dropped=dropped)
                continue
            views[job_id] = life.JobView(reached=False)
            master = self._employ(job.recovered(entry), entry)
            if entry.cancel_requested:
                master.tell(job.Cancel())
            elif entry.stop_requested:
                master.tell(job.Stop(entry.stop_requested))
            elif recovery.is_outdated(entry, self.context.deployment):
                _log.info("job %r: its attempt runs the code before: it is stopped", entry.name)
                master.tell(job.Displace())
            if entry.intent and master.state.phase is Phase.RECONCILING:
                self.context.resources.expect(entry.intent.taskmanager)
        self._settle_takeover()
        return views

    def main_started(self) -> None:
        """``main`` is executed from the top: nothing counts as reached."""
        running = frozenset(
            job_id for job_id, master in self.masters.items() if _occupied(master.state)
        )
        self._reaching = reaching.main_started(self._reaching, running)
        self.marks.reached.clear()
        for master in self.masters.values():
            master.tell(job.Forgotten())

    def cancel(self, job_ids: tuple[JobId, ...], reason: str = "cancelled") -> None:
        """Cancel jobs because the application is ending."""
        for job_id in job_ids:
            gave_way = self.entries[job_id].displaced
            why = f"displaced, as main took another path; {reason}" if gave_way else reason
            self.masters[job_id].tell(job.Cancel(why))

    def _employ(self, state: JobState, entry: JobEntry) -> JobMaster:
        master = JobMaster(state, entry, self.context, self)
        self.masters[entry.job_id] = master
        self._spawn(master.run())
        self._spawn(master.checkpoints.run())
        self._spawn(master.savepoints.run())
        return master

    # --- requests of main (Jobs) ------------------------------------------------------------------

    async def submit(self, request: Submit) -> bool:
        """Store a new job, or match a known one and bring its plan up to date."""
        entry = self.entries.get(request.job_id)
        known = entry is not None and not entry.displaced
        if entry is None or recovery.needs_plan(entry, self.context.deployment):
            if request.plan is None:
                return False
            if entry is None:
                entry = await self._add(request, request.plan)
            else:
                entry = await self._bring_up_to_date(entry, request, request.plan)
        if entry.result:
            self.come_by(entry.job_id)
            return True
        self._tell(life.JobReached(entry.job_id))
        self.marks.reached.add(entry.job_id)
        self.masters[entry.job_id].tell(job.Reached())
        now = self.context.clock.now()
        self._reaching, commands = reaching.reached(
            self._reaching, entry.job_id, known=known, now=now
        )
        self._follow(commands)
        return True

    async def _add(self, request: Submit, plan: Pointer) -> JobEntry:
        plans, term = self.context.plans, self.context.term
        entry = JobEntry(
            job_id=request.job_id,
            name=request.name,
            occurrence=request.occurrence,
            plan=plan,
            submitted_at=self.context.clock.wall(),
            deployment=self.context.deployment,
            limits=request.limits,
            arguments=request.arguments,
        )
        await _write("store a job", lambda: plans.add(term, entry))
        self._employ(job.submitted(entry.job_id), entry)
        return entry

    async def _bring_up_to_date(self, entry: JobEntry, request: Submit, plan: Pointer) -> JobEntry:
        """Point the job's next attempt to the plan and limits that this deployment has submitted.

        The old plan goes with the application's directory: an attempt may still be reading it.
        """
        plans, term, deployment = self.context.plans, self.context.term, self.context.deployment

        def change(entry: JobEntry) -> JobEntry:
            if entry.result:
                return entry
            return replace(
                entry,
                plan=plan,
                deployment=deployment,
                limits=request.limits,
                arguments=request.arguments,
            )

        return await _write(
            "store the new plan of a job", lambda: plans.update(term, entry.job_id, change)
        )

    async def past(self, job_id: JobId) -> dict[JobId, Outcome]:
        """Read the outcomes of finished jobs, several at once."""
        return await self._past.read(job_id)

    def come_by(self, job_id: JobId) -> None:
        """Count a finished job as reached and skipped."""
        entry = self._entry(job_id)
        assert entry.result is not None
        self._tell(life.JobReached(job_id))
        self.marks.reached.add(job_id)
        self.marks.skipped.add(job_id)
        self._show(job_id, entry.name, entry.result.status, entry.result.attempt)

    async def outcome(self, job_id: JobId) -> Outcome:
        """Wait for the job's end, then read its result from storage."""
        entry = self._entry(job_id)
        if entry.result is None:
            await self.masters[job_id].done.wait()
            entry = self._entry(job_id)
        result, results = entry.result, self.context.results
        assert result is not None
        try:
            return await persist("read a result", lambda: read_outcome(results, job_id, result))
        except (NotFoundError, DataError) as error:
            raise ResultUnavailable(f"job {entry.name!r}: {error}") from error

    def job_status(self, job_id: JobId) -> JobStatus:
        """Return the status of the stored result, else of the JobMaster."""
        entry = self._entry(job_id)
        if entry.result:
            return entry.result.status
        return job.status_of(self.masters[job_id].state)

    async def cancel_job(self, job_id: JobId) -> None:
        """Store the request, then enqueue the cancellation."""
        if self._entry(job_id).result:
            return
        plans, term = self.context.plans, self.context.term
        await _write(
            "note that a job is to be cancelled",
            lambda: plans.update(term, job_id, lambda e: replace(e, cancel_requested=True)),
        )
        self.masters[job_id].tell(job.Cancel())

    def kept(self, job_id: JobId) -> tuple[str, str]:
        """Return the paths of the retained checkpoint and of the savepoint; empty without them."""
        result = self._entry(job_id).result
        return (result.checkpoint, result.savepoint) if result else ("", "")

    def arguments(self, job_id: JobId) -> dict[str, str]:
        """Return the digests of the job's arguments; empty where other code has stored them."""
        entry = self._entry(job_id)
        return entry.arguments if entry.deployment == self.context.deployment else {}

    def result_delivered(self, job_id: JobId) -> None:
        """Enqueue the delivery for the application."""
        self._tell(life.ResultDelivered(job_id))

    def _entry(self, job_id: JobId) -> JobEntry:
        entry = self.entries.get(job_id)
        if entry is None:
            raise NotFoundError(f"application {self._record.application_id} has no job {job_id}")
        return entry

    # --- state changes of jobs (Supervisor) -------------------------------------------------------

    def job_changed(self, master: JobMaster, before: JobState) -> None:
        """Update the reaching order, the takeover, the marks and the shown status."""
        state = master.state
        ended = state.phase is Phase.DONE and before.phase is not Phase.DONE
        if before.phase is Phase.WAITING and state.phase is not Phase.WAITING:
            self._reaching = reaching.found_slot(self._reaching, master.job_id)
        if ended or (_occupied(before) and not _occupied(state)):
            self._reaching, commands = reaching.stopped(self._reaching, master.job_id)
            self._follow(commands)
        if state.adopted and not before.adopted:
            self.marks.adopted.add(master.job_id)
            self._settle_takeover(master.job_id, "adopted")
        elif state.phase is Phase.RUNNING and not state.recovered:
            self._settle_takeover(master.job_id, "restarted")
        if state.phase is Phase.SUSPENDED:
            self.marks.displaced.add(master.job_id)
            self._settle_takeover(master.job_id, "displaced")
        if ended:
            how = "displaced" if state.status is JobStatus.CANCELED else "skipped"
            self._settle_takeover(master.job_id, how)
            self.ended.put_nowait(master.job_id)
            self._spawn(self._tell_end(master))
        if state.reached or not _occupied(state):  # Unreached running jobs are still undecided.
            status, adopted = job.status_of(state), state.adopted
            self._show(master.job_id, master.name, status, state.attempt, adopted=adopted)

    def attempt_failed(self, master: JobMaster, end: Failed, failure: Failure) -> None:
        """Report the failed attempt."""
        log = log_name(self._record.run_id, self._record.application_id)
        failure_news.tell(self._reporter, log, master.entry, end, failure)

    def audience(self, master: JobMaster) -> CheckpointNews:
        """Return the job's reporter of checkpoint events."""
        return CheckpointNews(self._reporter, master.job_id, master.name, self.context.attention)

    async def _tell_end(self, master: JobMaster) -> None:
        result = self.entries[master.job_id].result
        assert result is not None
        failure = None
        if result.status is JobStatus.FAILED:
            try:
                failure = (await self.outcome(master.job_id)).failure
            except ResultUnavailable:
                failure = Failure(type="JobFailed", message=result.reason)
            failure = failure and replace(failure, job_id=master.job_id)
        self._tell(life.JobEnded(master.job_id, result.status, failure))

    def _show(
        self, job_id: JobId, name: str, status: JobStatus, attempt: int, *, adopted: bool = False
    ) -> None:
        if self._shown.get(job_id) == (status, attempt, adopted):
            return
        self._shown[job_id] = (status, attempt, adopted)
        self._reporter.event(
            "job-status",
            application_id=self._record.application_id,
            job_id=job_id,
            name=name,
            status=status.value,
            attempt=attempt,
            adopted=adopted,
        )

    def _follow(self, commands: list[reaching.Command]) -> None:
        for command in commands:
            for job_id in command.jobs:
                match command:
                    case reaching.BeginJobs():
                        self.masters[job_id].tell(job.Begin())
                    case reaching.GiveWay():
                        _log.info(
                            "job %r gives way: main took another path", self.masters[job_id].name
                        )
                        self.masters[job_id].tell(job.Displace())
        self._watch_grace()

    def _watch_grace(self) -> None:
        deadline = self._reaching.deadline
        if deadline is not None:
            pause_s = max(0.0, deadline - self.context.clock.now())
            asyncio.get_running_loop().call_later(pause_s, self._grace_over)

    def _grace_over(self) -> None:
        self._reaching, commands = reaching.expired(self._reaching, self.context.clock.now())
        if commands:
            self._follow(commands)

    # --- messages of TaskManagers (Tenant) --------------------------------------------------------

    def wanted(self) -> messages.Prepare | None:
        """Return the message that prepares drivers for this application."""
        return messages.Prepare(
            application_id=self._record.application_id,
            run_id=self._record.run_id,
            cluster=self.context.incarnation,
            directory=self.context.directory,
            profile=self._record.profile,
            artifacts=self._record.artifacts,
        )

    def slot_offered(self, job_id: JobId, placement: Placement) -> None:
        """Enqueue the offer for the job's JobMaster."""
        self.masters[job_id].tell(job.Offered(placement))

    def no_slot(self, job_id: JobId) -> None:
        """Report why the job waits; start the grace period after which an unreached job yields."""
        self._reporter.event(
            "job-waits",
            job_id=job_id,
            name=self.entries[job_id].name,
            waits=self.context.resources.why_waiting(job_id, None),
        )
        self._reaching = reaching.no_slot(self._reaching, job_id, self.context.clock.now())
        self._watch_grace()

    def registered(self, taskmanager: Incarnation, reported: tuple[Inventory, ...]) -> None:
        """Compare the reported attempts with the stored ones; stop the unknown ones."""
        verdict = recovery.judge(taskmanager, reported, self.entries)
        for job_id in verdict.running:
            master = self.masters[job_id]
            if master.state.placement:
                self.context.resources.occupy(job_id, master.state.placement)
            master.tell(job.Running(self.entries[job_id].attempt))
        for job_id in verdict.lost:
            reason = "its TaskManager does not have it"
            self.masters[job_id].tell(job.Lost(self.entries[job_id].attempt, reason, 0.0))
        for item in verdict.foreign:
            stop = messages.StopAttempt(job_id=item.job_id, attempt=item.attempt)
            self.context.resources.send(taskmanager, stop)

    def told(self, taskmanager: Incarnation, message: LinkMessage) -> None:
        """Dispatch the message to the job's JobMaster."""
        if isinstance(message, messages.CannotStart):
            self._cannot_start(taskmanager, message.reason)
            return
        master = self.masters.get(getattr(message, "job_id", JobId("")))
        if master is None:
            if isinstance(message, messages.AttemptEnded):  # Recorded under an earlier leader.
                forget = messages.Forget(job_id=message.job_id, attempt=message.attempt)
                self.context.resources.send(taskmanager, forget)
            return
        match message:
            case messages.AttemptRunning():
                master.tell(job.Running(message.attempt))
            case messages.AttemptEnded():
                master.tell(
                    job.Ended(
                        message.attempt,
                        message.status,
                        message.retryable,
                        message.source,
                        message.ran_s,
                        message.start_time,
                        message.end_time,
                        dead=message.reaped,
                    )
                )
            case messages.AttemptLost():
                master.tell(job.Lost(message.attempt, message.reason, message.ran_s))
            case messages.AttemptRefused():
                master.tell(job.Refused(message.attempt, message.reason))
            case messages.Progress():
                self._progressed(master, message)
            case messages.CheckpointsTaken():
                master.checkpoints.taken(taskmanager, message)

    def _cannot_start(self, taskmanager: Incarnation, reason: str) -> None:
        """Give up once no TaskManager can start a driver."""
        self._without_drivers.add(taskmanager)
        for other, view in self.context.resources.taskmanagers.items():
            if other not in self._without_drivers or any(
                driver.state in {"warm", "busy"} for driver in view.drivers
            ):
                _log.warning("TaskManager %s cannot start drivers: %s", taskmanager[:8], reason)
                return
        self.broken = Failure(type="DriverStartError", message=reason)
        self._tell(life.Broken(self.broken))

    def taskmanager_lost(self, taskmanager: Incarnation, reason: str) -> None:
        """Report every attempt on the TaskManager as lost."""
        for master in self.masters.values():
            place = master.state.placement
            if place and place.taskmanager == taskmanager:
                master.tell(job.Lost(master.state.attempt, reason, master.ran_s()))

    def _progressed(self, master: JobMaster, progress: messages.Progress) -> None:
        master.progress = progress
        self._reporter.event(
            "job-progress",
            job_id=master.job_id,
            name=master.name,
            attempt=progress.attempt,
            tasks_done=progress.tasks_done,
            tasks_total=progress.tasks_total,
            stage=progress.stage,
        )

    # --- the takeover -----------------------------------------------------------------------------

    def _settle_takeover(self, job_id: JobId | None = None, how: str = "") -> None:
        if self._takeover is None or self.taken_over.done():
            return
        if job_id is not None:
            self._takeover = takeover.settled(self._takeover, job_id, how)
        report = takeover.report(self._takeover, self.context.clock.now())
        if report:
            self.taken_over.set_result(report)

    def tell_takeover(self) -> None:
        """Report the takeover once, after its end and after the event that names the leader."""
        if self._takeover_told or not self.taken_over.done():
            return
        self._takeover_told = True
        report = self.taken_over.result()
        done = report.takeover
        self._reporter.event(
            "takeover",
            seconds=round(report.seconds, 4),
            adopted=list(done.adopted),
            restarted=list(done.restarted),
            skipped=list(done.skipped),
            displaced=list(done.displaced),
            term=self.context.term,
        )


async def _write(what: str, operation: Callable[[], Awaitable[R]]) -> R:
    """Write to the stored jobs; raises `DataError` where they are damaged or gone."""
    try:
        return await persist(what, operation)
    except NotFoundError as error:
        raise LostDataError(str(error)) from error


def _occupied(state: JobState) -> bool:
    """True while an attempt may live."""
    return job.holds_slot(state) or state.phase is Phase.CHECKING


def _takeover(entries: dict[JobId, JobEntry], lost_at: float | None) -> Takeover | None:
    """Return the jobs that a takeover must settle; None without an earlier leader."""
    if lost_at is None:
        return None
    running = frozenset(
        job_id for job_id, entry in entries.items() if entry.intent and not entry.result
    )
    return Takeover(
        lost_at,
        running,
        {job_id: entry.name for job_id, entry in entries.items()},
        skipped=tuple(entry.name for entry in entries.values() if entry.result),
    )
