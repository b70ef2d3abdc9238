"""Failures of jobs and applications, in Flink's shapes: the latest first, each once."""

from __future__ import annotations

from understudy.api.views import Json, milliseconds
from understudy.config.secrets import masked
from understudy.model import Failure, JobRecord

MAXIMUM_DEFAULT = 20
"""Flink's default."""


def of_job(failures: list[Failure], maximum: int) -> Json:
    """Return a job's history of failures (``/jobs/:jobid/exceptions``), the latest first."""
    latest = sorted(failures, key=lambda failure: failure.time, reverse=True)
    entries = [_entry(failure) for failure in latest]
    root = entries[0] if entries else None
    return {
        "root-exception": root["stacktrace"] if root else None,
        "timestamp": root["timestamp"] if root else None,
        "all-exceptions": [],
        "truncated": len(entries) > maximum,
        "exceptionHistory": {"entries": entries[:maximum], "truncated": len(entries) > maximum},
    }


def of_record(record: JobRecord) -> list[Failure]:
    """Return the failures that are recorded of an ended job."""
    return [*record.failures] or ([record.failure] if record.failure else [])


def of_application(failure: Failure | None, maximum: int) -> Json:
    """Return the single cause of an application's failure, which may be a job's.

    Other failures are in the histories of the jobs; a cancelled application has no cause.
    """
    entries = [_entry(failure)] if failure else []
    return {
        "exceptionHistory": {
            "entries": entries[:maximum],
            "truncated": len(entries) > maximum,
        }
    }


def _entry(failure: Failure) -> Json:
    entry: Json = {
        "exceptionName": failure.type,
        "stacktrace": masked(failure.traceback or failure.message),
        "timestamp": milliseconds(failure.time),
    }
    if failure.attempt:
        entry["attempt"] = failure.attempt
    return {**entry, "jobId": failure.job_id} if failure.job_id else entry
