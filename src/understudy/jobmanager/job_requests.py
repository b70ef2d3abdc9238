"""The requests of ``main``, and of people, about the jobs of an application.

After a takeover, ``main`` reaches the jobs that had finished before one by one, in the order of
their submission: so several results are read at once, and sent to ``main`` before it asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from itertools import dropwhile, islice
from typing import TypeVar

from msgspec.structs import replace

from understudy.config.options import JOBS_MAX
from understudy.core import job, recovery
from understudy.errors import (
    DataError,
    LostDataError,
    NotFoundError,
    StorageError,
    SubmissionError,
)
from understudy.ha.result_store import ResultStore, outcomes
from understudy.jobmanager.application_jobs import ApplicationJobs
from understudy.jobmanager.job_master import intent_of
from understudy.model import Failure, JobEntry, JobId, JobStatus, Outcome, Pointer
from understudy.process.persist import persist
from understudy.rpc.messages import Submit

AHEAD = 64
"""Results sent at once: at most 16 MB with the default limit of a value."""

R = TypeVar("R")


class JobRequests:
    """Executes requests about the jobs of one application."""

    def __init__(self, jobs: ApplicationJobs) -> None:
        self._jobs = jobs
        self._context = jobs.context
        self.settled = asyncio.Event()
        """Set once ``main`` has waited for a job, or has ended."""
        self.has_refused = False
        """Whether ``main`` has submitted a second job where one is due."""

    async def submit(self, request: Submit) -> bool:
        """Store a new job, or match a known one and bring its plan up to date.

        Raises `SubmissionError` where the application has as many jobs as it may have.
        """
        entry = self._jobs.entries.get(request.job_id)
        known = entry is not None and not entry.displaced
        if entry is None or recovery.needs_plan(entry, self._context.deployment):
            if request.plan is None:
                return False
            if entry is None:
                entry = await self._add(request, request.plan)
            else:
                entry = await self._bring_up_to_date(entry, request, request.plan)
        if entry.result:
            self._jobs.skip(entry.job_id)
            return True
        self._jobs.reach(entry.job_id, known=known)
        return True

    async def _add(self, request: Submit, plan: Pointer) -> JobEntry:
        self._refuse_second(request)
        self._refuse_one_too_many(request)
        context = self._context
        entry = JobEntry(
            job_id=request.job_id,
            name=request.name,
            occurrence=request.occurrence,
            plan=plan,
            submitted_at=context.clock.wall(),
            deployment=context.deployment,
            limits=request.limits,
            arguments=request.arguments,
        )
        if placement := self._jobs.take_slot(entry):
            # One write for the job and its first intent.
            intent = intent_of(context, entry, 1, placement)
            entry = replace(entry, attempt=1, intent=intent)
        try:
            await _write("store a job", lambda: context.plans.add(context.term, entry))
        except BaseException:
            if placement:
                context.resources.release(entry.job_id)
            raise
        self._jobs.employ(job.submitted(entry.job_id, placement), entry)
        return entry

    def _refuse_one_too_many(self, request: Submit) -> None:
        most = self._context.jobs_max
        if len(self._jobs.entries) >= most:
            raise SubmissionError(
                f"job {request.name!r} is refused: the application has {most:,} jobs, and "
                f"{JOBS_MAX.key} allows no more; let one job do the work of several, or raise it"
            )

    def _refuse_second(self, request: Submit) -> None:
        """Raise `SubmissionError`, and end the application, for a second job where one is due."""
        first = next(iter(self._jobs.entries.values()), None)
        if first is None or not self._context.record.single_job:
            return
        message = (
            f"main has submitted job {request.name!r} beside {first.name!r}: this application was "
            "submitted as one of exactly one job (/run); /run-application takes any number"
        )
        failure = Failure(type="SubmissionError", message=message, time=self._context.clock.wall())
        self.has_refused = True
        self._jobs.broken(failure)
        raise SubmissionError(message)

    async def _bring_up_to_date(self, entry: JobEntry, request: Submit, plan: Pointer) -> JobEntry:
        """Point the job's next attempt to the plan and limits that this deployment has submitted.

        The old plan goes with the application's directory: an attempt may still be reading it.
        """
        plans, term, deployment = self._context.plans, self._context.term, self._context.deployment

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
        """Return the outcomes of a job and of the jobs after it; see `read_past`."""
        return await read_past(self._context.results, self._jobs.entries, job_id)

    def come_by(self, job_id: JobId) -> None:
        """Count a finished job as reached and skipped."""
        self._jobs.skip(job_id)

    async def outcome(self, job_id: JobId) -> Outcome:
        """Wait for the job's end, then read its result from storage."""
        self.settled.set()
        entry = self._jobs.entry(job_id)
        if entry.result is None:
            await self._jobs.masters[job_id].done.wait()
        return await self._jobs.outcome(job_id)

    def job_status(self, job_id: JobId) -> JobStatus:
        """Return the status of the stored result, else of the JobMaster."""
        entry = self._jobs.entry(job_id)
        if entry.result:
            return entry.result.status
        return job.status_of(self._jobs.masters[job_id].state)

    async def cancel_job(self, job_id: JobId) -> None:
        """Store the request, then enqueue the cancellation."""
        if self._jobs.entry(job_id).result:
            return
        plans, term = self._context.plans, self._context.term
        at = {JobStatus.CANCELING.value: self._context.clock.wall()}

        def cancelled(entry: JobEntry) -> JobEntry:
            return replace(entry, cancel_requested=True, timestamps={**at, **entry.timestamps})

        await _write(
            "note that a job is to be cancelled", lambda: plans.update(term, job_id, cancelled)
        )
        self._jobs.masters[job_id].enqueue(job.Cancel())

    def kept(self, job_id: JobId) -> tuple[str, str]:
        """Return the paths of the retained checkpoint and of the savepoint; empty without them."""
        result = self._jobs.entry(job_id).result
        return (result.checkpoint, result.savepoint) if result else ("", "")

    def arguments(self, job_id: JobId) -> dict[str, str]:
        """Return the digests of the job's arguments; empty where other code has stored them."""
        entry = self._jobs.entry(job_id)
        return entry.arguments if entry.deployment == self._context.deployment else {}

    def result_delivered(self, job_id: JobId) -> None:
        """Enqueue the delivery for the application."""
        self._jobs.result_delivered(job_id)


async def read_past(
    results: ResultStore, entries: Mapping[JobId, JobEntry], first: JobId
) -> dict[JobId, Outcome]:
    """Return the outcomes of a job and of the jobs after it, read at once.

    Only readable outcomes of FINISHED jobs; empty if the first job has none.
    """
    result = entries[first].result
    if result is None or result.status is not JobStatus.FINISHED:
        return {}
    wanted = [
        (entry.job_id, entry.result.source)
        for entry in islice(dropwhile(lambda one: one.job_id != first, entries.values()), AHEAD)
        if entry.result and entry.result.status is JobStatus.FINISHED
    ]
    try:
        found = await results.read_all(wanted)
    except (OSError, TimeoutError, StorageError, DataError):
        return {}  # Awaiting the job reads its result again, and raises the error.
    past = {}
    for (job_id, source), data in zip(wanted, found, strict=True):
        with contextlib.suppress(DataError):
            if data is not None:
                past[job_id] = outcomes.load(data, source.path)
    return past if first in past else {}


async def _write(what: str, operation: Callable[[], Awaitable[R]]) -> R:
    """Write to the stored jobs; raises `DataError` where they are damaged or gone."""
    try:
        return await persist(what, operation)
    except NotFoundError as error:
        raise LostDataError(str(error)) from error
