"""The order of dirty and clean results (FLIP-194, FLIP-560): the next steps, as one function.

job ends → dirty job result → job cleanup
→ (all jobs dirty, ``main`` ended) dirty application result → tombstone's file and its pointer
→ job results clean → application cleanup → application result clean → bury → documents deleted

Each step is idempotent and visible in durable state; so a new leader continues from the results
alone, wherever the old one stopped.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from msgspec import Struct

from understudy.model import ApplicationDocument, JobEntry, JobId


class EndingStep(enum.Enum):
    """The steps of an application's end, in order. The value is the label that people see."""

    WRITE_TOMBSTONE = "write what remains of the application"
    MARK_JOBS_CLEAN = "mark the job results clean"
    CLEAN_APPLICATION = "remove blobs, record and directories of the application"
    MARK_APPLICATION_CLEAN = "mark the application result clean"
    BURY = "unlink the application"


class CleanJob(Struct, frozen=True):
    """Remove the plan and the staged outcomes of a job whose result is dirty."""

    job_id: JobId


class EndApplication(Struct, frozen=True):
    """Execute one step of the application's end."""

    kind: EndingStep


Task = CleanJob | EndApplication


def next_tasks(
    application: ApplicationDocument,
    jobs: Iterable[JobEntry],
    done: frozenset[EndingStep] = frozenset(),
) -> list[Task]:
    """Return the tasks that are due: job cleanups in any order, else one step of the application.

    ``done`` are completed steps of this leader that leave no durable trace.
    """
    jobs = list(jobs)
    cleanups: list[Task] = [
        CleanJob(job.job_id) for job in jobs if job.result and not job.result.cleaned
    ]
    if application.result is None or any(job.result is None for job in jobs):
        return cleanups
    if cleanups:
        return cleanups
    return [EndApplication(_next_kind(application, jobs, done))]


def _next_kind(
    application: ApplicationDocument, jobs: list[JobEntry], done: frozenset[EndingStep]
) -> EndingStep:
    assert application.result is not None
    if application.tombstone is None:
        return EndingStep.WRITE_TOMBSTONE
    if application.result.clean:
        return EndingStep.BURY
    if not all(job.result is not None and job.result.clean for job in jobs):
        return EndingStep.MARK_JOBS_CLEAN
    if EndingStep.CLEAN_APPLICATION not in done:
        return EndingStep.CLEAN_APPLICATION
    return EndingStep.MARK_APPLICATION_CLEAN
