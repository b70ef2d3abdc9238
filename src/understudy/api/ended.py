"""Views of applications that have ended and were cleaned up, in the shapes of `api.views`.

Jobs of an ended application stay in lists, and available by id, as long as its tombstone remains.
Of more than `LISTED_MAX` applications, only those that ended last are listed with their jobs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from understudy.api import views
from understudy.api.views import Json, milliseconds
from understudy.errors import DataError, NotFoundError
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.retention import read_tombstone
from understudy.model import (
    ApplicationStatus,
    JobRecord,
    JobStatus,
    Tombstone,
    TombstoneFile,
)

LISTED_MAX = 100
"""Most ended applications in lists of jobs; each JobManager reads the file of each once."""


class EndedJobs:
    """The jobs of ended applications, in the shape of lists; each file is read once and cached."""

    def __init__(self, services: HighAvailabilityServices) -> None:
        self._services = services
        self._known: dict[str, list[Json]] = {}

    async def listed(self, tombstones: Iterable[Tombstone]) -> list[Json]:
        """Return the readable jobs of the applications that ended last."""
        newest = sorted(tombstones, key=lambda stone: stone.ended_at)[-LISTED_MAX:]
        known = {stone.file.path: self._known.get(stone.file.path) for stone in newest}
        for stone in newest:
            if known[stone.file.path] is None:
                with contextlib.suppress(DataError, NotFoundError):
                    file = await read_tombstone(self._services, stone)
                    known[stone.file.path] = [recorded_job(one, stone) for one in file.jobs]
        self._known = {path: jobs for path, jobs in known.items() if jobs is not None}
        return [job for jobs in self._known.values() for job in jobs]


def recorded_job(record: JobRecord, tombstone: Tombstone) -> Json:
    """Return a job of a buried application, in the shape of lists."""
    return {
        "jid": record.job_id,
        "name": record.name,
        "application-id": tombstone.application_id,
        "state": record.status.value,
        "start-time": milliseconds(record.start_time),
        "end-time": milliseconds(record.end_time),
        "duration": views.duration(record.start_time, record.end_time, 0.0),
        "last-modification": milliseconds(record.end_time),
        "tasks": views.tasks(record.status, None),
        "pending-operators": 0,
        "jobType": record.kind.upper(),
        "attempt": record.attempt,
        "cleanup": "clean",
        "reason": record.note,
        "waits": None,
        "spark": None,
        **views.kept(record),
        "reached": record.reached,
        "adopted": None,
        "skipped": None,
        "displaced": record.displaced,
    }


def recorded_detail(record: JobRecord, tombstone: Tombstone, now: float) -> Json:
    """Return one job of a buried application (``/jobs/:jobid``)."""
    details = recorded_job(record, tombstone)
    times = {
        JobStatus.CREATED.value: record.submitted_at,
        JobStatus.RUNNING.value: record.start_time if record.attempt else 0.0,
        **record.timestamps,
        record.status.value: record.end_time,
    }
    return {
        **details,
        "isStoppable": False,
        "maxParallelism": -1,
        "now": milliseconds(now),
        "timestamps": views.timestamps(JobStatus, times),
        "vertices": [],
        "status-counts": {},
        "plan": views.plan(record.job_id, record.name, details["jobType"]),
    }


def buried_overview(tombstone: Tombstone) -> Json:
    """Return an application of which only the tombstone remains, in the shape of lists."""
    return {
        "id": tombstone.application_id,
        "name": tombstone.name,
        "status": tombstone.status.value,
        "start-time": milliseconds(tombstone.started_at),
        "end-time": milliseconds(tombstone.ended_at),
        "duration": views.duration(tombstone.started_at, tombstone.ended_at, 0.0),
        "jobs": tombstone.jobs,
        "run-id": tombstone.run_id,
        "left-behind": list(tombstone.left_behind),
    }


def buried_detail(tombstone: Tombstone, file: TombstoneFile) -> Json:
    """Return an application of which only the tombstone remains."""
    failure = file.result.failure
    times = {
        ApplicationStatus.CREATED.value: tombstone.started_at,
        tombstone.status.value: tombstone.ended_at,
        **file.result.timestamps,
    }
    return {
        **buried_overview(tombstone),
        **views.since_running(times, tombstone.ended_at, 0.0),
        "timestamps": views.timestamps(ApplicationStatus, times),
        "jobs": [recorded_job(record, tombstone) for record in file.jobs],
        "failure": views.cause(failure) if failure else None,
    }
