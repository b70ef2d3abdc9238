"""The jobs of one application in one term: their JobMasters, whose state changes arrive here.

``core.reaching`` decides which job gives way after a failover, ``core.recovery`` when the takeover
is complete. `job_requests` executes what ``main`` and REST request of the jobs, and `job_slots`
compares them with what TaskManagers report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from understudy.core import application as life
from understudy.core import job, reaching, recovery
from understudy.core.failing import Failed
from understudy.core.job import JobState, Phase
from understudy.core.recovery import Takeover
from understudy.core.slots import Placement
from understudy.errors import DataError, NotFoundError, ResultUnavailable
from understudy.ha.result_store import read_outcome
from understudy.jobmanager.checkpoint_news import CheckpointNews
from understudy.jobmanager.failure_history import report_failure
from understudy.jobmanager.job_master import JobMaster, JobMasterContext, start_from
from understudy.model import (
    Failure,
    JobEntry,
    JobId,
    JobStatus,
    Outcome,
)
from understudy.process.persist import persist
from understudy.process.reporter import log_name

_log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], object]


@dataclass
class Marks:
    """The jobs of this term's execution, by fate, for display."""

    reached: set[JobId] = field(default_factory=set)
    adopted: set[JobId] = field(default_factory=set)
    skipped: set[JobId] = field(default_factory=set)
    displaced: set[JobId] = field(default_factory=set)


class ApplicationJobs:
    """All jobs of one application, and the `Supervisor` of their JobMasters."""

    def __init__(
        self,
        context: JobMasterContext,
        unreached_grace_s: float,
        lost_at: float | None,
        spawn: Spawn,
        enqueue: Callable[[life.Event], None],
    ) -> None:
        """``enqueue`` puts an event into the application's inbox."""
        self.context = context
        self.marks = Marks()
        self.masters: dict[JobId, JobMaster] = {}
        self.taken_over: asyncio.Future[recovery.TakeoverReport] = asyncio.Future()
        self.ended: asyncio.Queue[JobId] = asyncio.Queue()
        """Jobs with a durable result, waiting for their cleanup."""
        self._record = context.record
        self._reporter = context.reporter
        self._spawn = spawn
        self._enqueue = enqueue
        self._reaching = reaching.ReachingState(unreached_grace_s)
        self._takeover = _takeover(context.plans.entries, lost_at)
        self._takeover_reported = False
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
            master = self.employ(job.recovered(entry), entry)
            if entry.cancel_requested:
                master.enqueue(job.Cancel())
            elif entry.stop_requested:
                master.enqueue(job.Stop(entry.stop_requested))
            elif recovery.is_outdated(entry, self.context.deployment):
                _log.info("job %r: its attempt runs the code before: it is stopped", entry.name)
                master.enqueue(job.Displace())
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
            master.enqueue(job.Forgotten())

    def cancel(self, job_ids: tuple[JobId, ...], reason: str = "cancelled") -> None:
        """Cancel jobs because the application is ending."""
        for job_id in job_ids:
            gave_way = self.entries[job_id].displaced
            why = f"displaced, as main took another path; {reason}" if gave_way else reason
            self.masters[job_id].enqueue(job.Cancel(why))

    # --- jobs -------------------------------------------------------------------------------------

    def employ(self, state: JobState, entry: JobEntry) -> JobMaster:
        """Start the JobMaster of a job."""
        master = JobMaster(state, entry, self.context, self)
        self.masters[entry.job_id] = master
        self._spawn(master.run())
        self._spawn(master.checkpoints.run())
        self._spawn(master.savepoints.run())
        return master

    def take_slot(self, entry: JobEntry) -> Placement | None:
        """Give a new job a slot, if one is free and nothing holds the job back."""
        begins_with_savepoint = start_from(self._record, entry) is not None
        if begins_with_savepoint or reaching.holds_back_new(self._reaching):
            return None
        return self.context.resources.take(self.context.application_id, entry.job_id)

    def reach(self, job_id: JobId, *, known: bool) -> None:
        """``main`` has reached a job; ``known`` if it had been submitted before."""
        self._enqueue(life.JobReached(job_id))
        self.marks.reached.add(job_id)
        self.masters[job_id].enqueue(job.Reached())
        now = self.context.clock.now()
        self._reaching, commands = reaching.reached(self._reaching, job_id, known=known, now=now)
        self._follow(commands)

    def skip(self, job_id: JobId) -> None:
        """``main`` has reached a finished job, which is not executed again."""
        entry = self.entry(job_id)
        assert entry.result is not None
        self._enqueue(life.JobReached(job_id))
        self.marks.reached.add(job_id)
        self.marks.skipped.add(job_id)
        self._show(job_id, entry.name, entry.result.status, entry.result.attempt)

    def result_delivered(self, job_id: JobId) -> None:
        """``main`` has received the job's outcome."""
        self._enqueue(life.ResultDelivered(job_id))

    def broken(self, failure: Failure) -> None:
        """No driver can be started for the application."""
        self._enqueue(life.Broken(failure))

    def entry(self, job_id: JobId) -> JobEntry:
        """Return a job as it is stored; raises `NotFoundError`."""
        entry = self.entries.get(job_id)
        if entry is None:
            raise NotFoundError(f"application {self.context.application_id} has no job {job_id}")
        return entry

    async def outcome(self, job_id: JobId) -> Outcome:
        """Read an ended job's outcome from storage; raises `ResultUnavailable`."""
        entry = self.entry(job_id)
        result, results = entry.result, self.context.results
        assert result is not None
        try:
            return await persist("read a result", lambda: read_outcome(results, job_id, result))
        except (NotFoundError, DataError) as error:
            raise ResultUnavailable(f"job {entry.name!r}: {error}") from error

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
            self._spawn(self._report_end(master))
        if state.reached or not _occupied(state):  # Unreached running jobs are still undecided.
            status, adopted = job.status_of(state), state.adopted
            self._show(master.job_id, master.name, status, state.attempt, adopted=adopted)

    def no_slot(self, master: JobMaster) -> None:
        """Report why the job waits; start the grace period after which an unreached job yields."""
        self._reporter.event(
            "job-waits",
            job_id=master.job_id,
            name=master.name,
            waits=self.context.resources.why_waiting(master.job_id, None),
        )
        now = self.context.clock.now()
        self._reaching = reaching.no_slot(self._reaching, master.job_id, now)
        self._watch_grace()

    def attempt_failed(self, master: JobMaster, end: Failed, failure: Failure) -> None:
        """Report the failed attempt."""
        log = log_name(self._record.run_id, self._record.application_id)
        report_failure(self._reporter, log, master.entry, end, failure)

    def audience(self, master: JobMaster) -> CheckpointNews:
        """Return the job's reporter of checkpoint events."""
        return CheckpointNews(self._reporter, master.job_id, master.name, self.context.attention)

    async def _report_end(self, master: JobMaster) -> None:
        result = self.entries[master.job_id].result
        assert result is not None
        failure = None
        if result.status is JobStatus.FAILED:
            try:
                failure = (await self.outcome(master.job_id)).failure
            except ResultUnavailable:
                failure = Failure(type="JobFailed", message=result.reason)
            failure = failure and replace(failure, job_id=master.job_id)
        self._enqueue(life.JobEnded(master.job_id, result.status, failure))

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
                        self.masters[job_id].enqueue(job.Begin())
                    case reaching.GiveWay():
                        _log.info(
                            "job %r gives way: main took another path", self.masters[job_id].name
                        )
                        self.masters[job_id].enqueue(job.Displace())
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

    # --- the takeover -----------------------------------------------------------------------------

    def _settle_takeover(self, job_id: JobId | None = None, how: str = "") -> None:
        if self._takeover is None or self.taken_over.done():
            return
        if job_id is not None:
            self._takeover = recovery.settled(self._takeover, job_id, how)
        report = recovery.report(self._takeover, self.context.clock.now())
        if report:
            self.taken_over.set_result(report)

    def report_takeover(self) -> None:
        """Report the takeover once, after its end and after the event that names the leader."""
        if self._takeover_reported or not self.taken_over.done():
            return
        self._takeover_reported = True
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
