"""Why jobs and applications failed, in Flink's shapes: the latest first, each once."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.api.views import ApplicationFacts, Json, milliseconds
from understudy.config.secrets import masked
from understudy.model import Failure, JobId, JobStatus, TombstoneFile

MAXIMUM_DEFAULT = 20
"""Flink's."""


@dataclass(frozen=True)
class Told:
    """A failure, of a job or of ``main``."""

    failure: Failure
    job_id: JobId | None = None


def has_failed(facts: ApplicationFacts, job_id: JobId) -> bool:
    """Say whether an attempt of a job may have failed."""
    entry, live = facts.entries[job_id], facts.live.get(job_id)
    return (
        entry.attempt > 1
        or (entry.result is not None and entry.result.status is JobStatus.FAILED)
        or (live is not None and (bool(live.failures) or live.status is JobStatus.RESTARTING))
    )


def ended_at(facts: ApplicationFacts, job_id: JobId) -> float:
    """Return when a job ended: now, where it goes on."""
    result = facts.entries[job_id].result
    return result.end_time if result else facts.now


def of_job(failures: list[Failure], maximum: int) -> Json:
    """Return a job's history of failures (``/jobs/:jobid/exceptions``), the latest first."""
    latest = sorted(failures, key=lambda failure: failure.time, reverse=True)
    entries = [_entry(Told(failure)) for failure in latest]
    root = entries[0] if entries else None
    return {
        "root-exception": root["stacktrace"] if root else None,
        "timestamp": root["timestamp"] if root else None,
        "all-exceptions": [],
        "truncated": len(entries) > maximum,
        "exceptionHistory": {"entries": entries[:maximum], "truncated": len(entries) > maximum},
    }


def of_application(told: list[Told], maximum: int) -> Json:
    """Return an application's history of failures, the latest first, each once.

    What ended a job may have ended its application too: then it is told as the job's.
    """
    known: dict[tuple[float, str], Told] = {}
    for one in told:
        key = (one.failure.time, one.failure.message)
        if key not in known or one.job_id:
            known[key] = one
    latest = sorted(known.values(), key=lambda one: one.failure.time, reverse=True)
    return {
        "exceptionHistory": {
            "entries": [_entry(one) for one in latest[:maximum]],
            "truncated": len(latest) > maximum,
        }
    }


def recorded(file: TombstoneFile) -> list[Told]:
    """Return why a buried application and its jobs failed."""
    end = file.result.failure
    of_jobs = [Told(record.failure, record.job_id) for record in file.jobs if record.failure]
    return [*([Told(end)] if end else []), *of_jobs]


def _entry(told: Told) -> Json:
    failure = told.failure
    entry: Json = {
        "exceptionName": failure.type,
        "stacktrace": masked(failure.traceback or failure.message),
        "timestamp": milliseconds(failure.time),
    }
    return {**entry, "jobId": told.job_id} if told.job_id else entry
