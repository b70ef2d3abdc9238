"""The model as JSON: the same for REST, for commands, and for reading storage without a leader.

Shapes and key names are Flink's where Flink has the endpoint; keys of ours are added. Times are
milliseconds since 1970, and -1 for times in the future, as in Flink.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from understudy.config.secrets import masked
from understudy.core.ids import process_name
from understudy.core.values import plain_value
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    ApplicationRecord,
    ApplicationStatus,
    Checkpoint,
    Checkpoints,
    Failure,
    JobEntry,
    JobId,
    JobRecord,
    JobResultEntry,
    JobStatus,
    LeadershipSpan,
    Outcome,
    RegistryLink,
    SparkApplication,
)
from understudy.rpc.messages import DriverReport, Progress

Json = dict[str, Any]

UNREADABLE = "UNREADABLE"
"""The status of an application of which only the link can be read."""

INTERRUPTED = "INTERRUPTED"
"""The status of an unfinished application of which no process is alive: it can be resumed."""


@dataclass(frozen=True)
class JobLive:
    """Facts of a job that only the leader has."""

    status: JobStatus
    progress: Progress | None = None
    adopted: bool = False
    failures: tuple[Failure, ...] = ()
    checkpoints: Checkpoints | None = None
    recent_checkpoints: tuple[Checkpoint, ...] = ()
    waits: str = ""
    """Why the job waits for a slot, or in its slot for executors."""
    spark: SparkApplication = SparkApplication()
    timestamps: Mapping[str, float] = field(default_factory=dict)
    """As those of `JobEntry`, up to now."""


@dataclass(frozen=True)
class ApplicationFacts:
    """An application that is not buried yet, from the register or from the leader."""

    body: ApplicationDocument
    entries: Mapping[JobId, JobEntry]
    status: ApplicationStatus
    now: float
    live: Mapping[JobId, JobLive] = field(default_factory=dict)
    reached: frozenset[JobId] | None = None
    """Jobs that `main` has executed this time; None without a leader, as only leaders know."""
    adopted: frozenset[JobId] = frozenset()
    skipped: frozenset[JobId] = frozenset()
    displaced: frozenset[JobId] = frozenset()
    failure: Failure | None = None
    """The single cause of the application's failure, if this leader knows it."""
    timestamps: Mapping[str, float] = field(default_factory=dict)
    """The time of each state, from its leader or from storage."""
    record: ApplicationRecord | None = None
    """The submitted application, if at hand."""
    waits: str = ""
    """Why ``main`` waits to be executed, if its leader lets it wait."""


# --- jobs -----------------------------------------------------------------------------------------


def job_details(facts: ApplicationFacts, job_id: JobId) -> Json:
    """Return a job in the shape of lists (Flink's ``JobDetails``)."""
    entry = facts.entries[job_id]
    status = job_status(facts, job_id)
    start, end = _times(entry)
    live = facts.live.get(job_id)
    progress = live.progress if live else None
    return {
        "jid": job_id,
        "name": entry.name,
        "application-id": facts.body.application_id,
        "state": status.value,
        "start-time": milliseconds(start),
        "end-time": milliseconds(end),
        "duration": duration(start, end, facts.now),
        "last-modification": milliseconds(end or start),
        "tasks": tasks(status, progress),
        "pending-operators": 0,
        "jobType": entry.kind.upper(),
        "attempt": entry.attempt,
        "cleanup": cleanup_of(entry),
        "reason": entry.result.reason if entry.result else "",
        "waits": (live.waits if live else "") or None,
        "spark": spark_application(live.spark if live else SparkApplication()),
        **kept(entry.result),
        **_marks(facts, job_id),
    }


def spark_application(spark: SparkApplication) -> Json | None:
    """Return the Spark application in which a job runs, None without one."""
    if spark == SparkApplication():
        return None
    return {
        "id": spark.application_id or None,
        "ui": spark.ui or None,
        "event-log": spark.event_log or None,
    }


def job_status(facts: ApplicationFacts, job_id: JobId) -> JobStatus:
    """Return a job's status, as far as it is known."""
    entry = facts.entries[job_id]
    if entry.result:
        return entry.result.status
    if job_id in facts.live:
        return facts.live[job_id].status
    if entry.displaced:
        return JobStatus.SUSPENDED
    return JobStatus.RECONCILING if entry.intent else JobStatus.CREATED


def cleanup_of(entry: JobEntry) -> str | None:
    """Return ``dirty`` or ``clean`` for a job that has ended."""
    if entry.result is None:
        return None
    return "clean" if entry.result.clean else "dirty"


def job_detail(facts: ApplicationFacts, job_id: JobId) -> Json:
    """Return one job (``/jobs/:jobid``)."""
    details = job_details(facts, job_id)
    entry, live = facts.entries[job_id], facts.live.get(job_id)
    intent = entry.intent
    return {
        **details,
        "isStoppable": False,
        "maxParallelism": -1,
        "now": milliseconds(facts.now),
        "timestamps": timestamps(JobStatus, _when(entry, live)),
        "vertices": [],
        "status-counts": {},
        "plan": plan(job_id, entry.name, details["jobType"]),
        "occurrence": entry.occurrence,
        "restarts": {"failures": entry.restarts.failures, "losses": entry.restarts.losses},
        "taskmanager": intent.taskmanager if intent else None,
        "driver": intent.driver if intent else None,
    }


def plan(job_id: str, name: str, kind: str) -> Json:
    """Return a job's plan in Flink's shape, without nodes: Spark plans its own jobs, not ours."""
    return {"jid": job_id, "name": name, "type": kind, "nodes": []}


def execution_result(
    facts: ApplicationFacts, job_id: JobId, outcome: Outcome | None, missing: str = ""
) -> Json:
    """Return how a job ended (``/jobs/:jobid/execution-result``)."""
    entry = facts.entries[job_id]
    if entry.result is None:
        return {"status": {"id": "IN_PROGRESS"}, "cleanup": None}
    start, end = _times(entry)
    answer: Json = {
        "id": job_id,
        "application-status": _application_status(entry.result.status),
        "accumulator-results": {},
        "net-runtime": max(0, milliseconds(end) - milliseconds(start)),
        "name": entry.name,
        "attempt": entry.result.attempt,
        **kept(entry.result),
    }
    if outcome is not None:
        answer["value"] = plain_value(outcome.value)
        if outcome.failure:
            answer["failure-cause"] = cause(outcome.failure)
    elif missing:
        answer["missing"] = missing
    if entry.result.savepoint:
        answer["savepoint"] = entry.result.savepoint
    return {
        "status": {"id": "COMPLETED"},
        "job-execution-result": answer,
        "cleanup": cleanup_of(entry),
    }


def recorded_result(record: JobRecord) -> Json:
    """Return how a job of a buried application ended."""
    answer: Json = {
        "id": record.job_id,
        "application-status": _application_status(record.status),
        "accumulator-results": {},
        "net-runtime": max(0, milliseconds(record.end_time) - milliseconds(record.start_time)),
        "name": record.name,
        "attempt": record.attempt,
        "value": plain_value(record.value),
        **kept(record),
    }
    if record.failure:
        answer["failure-cause"] = cause(record.failure)
    if record.savepoint:
        answer["savepoint"] = record.savepoint
    return {
        "status": {"id": "COMPLETED"},
        "job-execution-result": answer,
        "cleanup": "clean",
    }


def configuration(settings: Mapping[str, str]) -> list[Json]:
    """Return settings in Flink's shape; secrets must already be hidden."""
    return [{"key": key, "value": text} for key, text in sorted(settings.items())]


# --- applications ---------------------------------------------------------------------------------


def application_overview(facts: ApplicationFacts) -> Json:
    """Return an application in the shape of lists."""
    body = facts.body
    end = body.result.end_time if body.result else None
    counts: dict[str, int] = {}
    for job_id in facts.entries:
        state = job_status(facts, job_id).value
        counts[state] = counts.get(state, 0) + 1
    return {
        "id": body.application_id,
        "name": body.name,
        "status": facts.status.value,
        "start-time": milliseconds(body.created_at),
        "end-time": milliseconds(end),
        "duration": duration(body.created_at, end, facts.now),
        "jobs": counts,
        "run-id": body.run_id,
        "executions": body.executions,
        "deployment": body.deployment,
        **({"waits": facts.waits} if facts.waits else {}),
    }


def application_detail(facts: ApplicationFacts) -> Json:
    """Return one application (``/applications/:applicationid``); its start is that of RUNNING."""
    overview = application_overview(facts)
    times = {"CREATED": facts.body.created_at, **facts.body.timestamps, **facts.timestamps}
    end = facts.body.result.end_time if facts.body.result else None
    return {
        **overview,
        **since_running(times, end, facts.now),
        "timestamps": timestamps(ApplicationStatus, times),
        "jobs": [job_details(facts, job_id) for job_id in facts.entries],
        "failure": cause(facts.failure) if facts.failure else None,
    }


def interrupted(facts: ApplicationFacts) -> ApplicationFacts:
    """Return the facts as of the last durable event: no duration grows while nothing runs."""
    times = [facts.body.created_at, *facts.body.timestamps.values()]
    for entry in facts.entries.values():
        start, end = _times(entry)
        times += [entry.submitted_at, start, end or 0.0]
    return replace(facts, now=max(times))


def timestamps(states: Iterable[enum.Enum], times: Mapping[str, float]) -> dict[str, int]:
    """Return the start of each state, 0 for states without one, as Flink writes it."""
    return {one.value: milliseconds(times.get(one.value, 0.0)) for one in states}


def since_running(times: Mapping[str, float], end: float | None, now: float) -> Json:
    """Return start and duration of an application that may never have run."""
    start = times.get(ApplicationStatus.RUNNING.value)
    return {
        "start-time": milliseconds(start),
        "duration": 0 if start is None else duration(start, end, now),
    }


def unreadable_overview(application: ApplicationId, link: RegistryLink, problem: str) -> Json:
    """Return an application of which only the link can be read, in the shape of lists."""
    return {
        "id": application,
        "name": "?",
        "status": UNREADABLE,
        "start-time": -1,
        "end-time": -1,
        "duration": 0,
        "jobs": {},
        "run-id": link.run_id,
        "problem": problem,
    }


def attention(problems: Mapping[str, str]) -> list[Json]:
    """Return the problems that a person must solve (``/ha/status``)."""
    return [{"id": subject, "problem": masked(why)} for subject, why in problems.items()]


# --- TaskManagers and leadership ------------------------------------------------------------------


def taskmanager(
    name: str, incarnation: str, pid: int, guardian_pid: int, slots: int, drivers: list[Json]
) -> Json:
    """Return a TaskManager with its slots and spare drivers.

    A slot is free unless a job has it, also before a driver is warm in it (as in Flink).
    """
    seated = {driver["slot"]: driver for driver in drivers if driver["slot"] is not None}
    empty = {
        "state": "empty",
        "driver_pid": None,
        "jvm_pid": None,
        "job_id": None,
        "attempt": None,
    }
    free = slots - sum(driver["job_id"] is not None for driver in seated.values())
    return {
        "id": name,
        "incarnation": incarnation,
        "pid": pid,
        "guardian_pid": guardian_pid,
        "slotsNumber": slots,
        "freeSlots": free,
        "slots": [
            {"slot": number, **empty, **seated.get(number, {})} for number in range(1, slots + 1)
        ],
        "spare_drivers": [driver for driver in drivers if driver["slot"] is None],
    }


def driver(report: DriverReport) -> Json:
    """Return a driver, in a slot or spare."""
    return {
        "slot": report.slot,
        "id": report.driver,
        "name": process_name("driver", report.driver),
        "state": "starting" if report.state == "ending" else report.state,
        "driver_pid": report.driver_pid or None,
        "guardian_pid": report.guardian_pid or None,
        "jvm_pid": report.jvm_pid or None,
        "job_id": report.job_id or None,
        "attempt": report.attempt or None,
        "application_id": report.application_id or None,
        "ui": report.spark.ui or None,
        "spark": spark_application(report.spark),
        "waits": report.waits or None,
        "note": report.note or None,
    }


def span(item: LeadershipSpan) -> Json:
    """Return one term of the history."""
    return {
        "term": item.term,
        "holder": item.holder,
        "rest": item.rest,
        "granted_at": item.granted_at,
        "lost_at": item.lost_at,
        "reason": item.reason or None,
        "takeover_seconds": item.takeover_seconds,
    }


def encode(value: object) -> bytes:
    """Return JSON; integers keep any size, as they come from user code."""
    return json.dumps(value, ensure_ascii=False, default=msgspec.to_builtins).encode()


def _when(entry: JobEntry, live: JobLive | None) -> dict[str, float]:
    """Return the times of a job's states."""
    passed = {**entry.timestamps, **(live.timestamps if live else {})}
    times = {JobStatus.CREATED.value: entry.submitted_at, **passed}
    start, end = _times(entry)
    if entry.intent:
        times[JobStatus.RUNNING.value] = start
    if entry.result and end is not None:
        times[entry.result.status.value] = end
    return times


def _times(entry: JobEntry) -> tuple[float, float | None]:
    if entry.result:
        return entry.result.start_time, entry.result.end_time
    return (entry.intent.placed_at if entry.intent else entry.submitted_at), None


def milliseconds(seconds: float | None) -> int:
    """Return a time as Flink writes it."""
    return -1 if seconds is None else int(seconds * 1000)


def duration(start: float, end: float | None, now: float) -> int:
    """Return the duration so far, or in all, in milliseconds."""
    return max(0, int(((now if end is None else end) - start) * 1000))


def tasks(status: JobStatus, progress: Progress | None) -> Json:
    """Return the number of a job's Spark tasks in each state."""
    done = progress.tasks_done if progress else 0
    total = progress.tasks_total if progress else 0
    counts = dict.fromkeys(
        (
            "created",
            "scheduled",
            "deploying",
            "running",
            "finished",
            "canceling",
            "canceled",
            "failed",
            "reconciling",
            "initializing",
        ),
        0,
    )
    counts["finished"] = done
    if status is JobStatus.RUNNING:
        counts["running"] = total - done
    return {"total": total, **counts}


def _marks(facts: ApplicationFacts, job_id: JobId) -> Json:
    if facts.reached is None:
        return {"reached": None, "adopted": None, "skipped": None, "displaced": None}
    return {
        "reached": job_id in facts.reached,
        "adopted": job_id in facts.adopted,
        "skipped": job_id in facts.skipped,
        "displaced": job_id in facts.displaced,
    }


def kept(ended: JobResultEntry | JobRecord | None) -> Json:
    """Return the places of an ended job's checkpoint and savepoint; None for a missing one."""
    return {
        "checkpoint": (ended.checkpoint if ended else "") or None,
        "savepoint": (ended.savepoint if ended else "") or None,
    }


def _application_status(status: JobStatus) -> str:
    return "SUCCEEDED" if status is JobStatus.FINISHED else status.value


def cause(failure: Failure) -> Json:
    """Return a failure as Flink does."""
    return {
        "class": failure.type,
        "message": masked(failure.message),
        "stack-trace": masked(failure.traceback or failure.message),
    }


# --- failures of jobs and applications: the latest first, each once -------------------------------


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
