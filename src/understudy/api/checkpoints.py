"""A job's checkpoints as JSON: keys and shapes are Flink's, with keys of ours added.

A savepoint counts as a checkpoint, as in Flink. Sizes and durations that Spark does not report are
0. The leader remembers the newest checkpoints that it recorded itself; those that are not retained
any more are shown as ``discarded``. It also remembers the last failed one. The result of an ended
job has the counts, and the place of the last retained checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from understudy.api.views import Json, milliseconds
from understudy.core import checkpoints
from understudy.core.checkpoints import Counts, Retention, in_words, is_under_way
from understudy.errors import NotFoundError
from understudy.model import (
    Checkpoint,
    CheckpointKind,
    Checkpoints,
    Failure,
    JobId,
    JobRecord,
    JobResultEntry,
    Savepoint,
)

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}

MEASURED = ("checkpointed_size", "state_size", "end_to_end_duration", "rows")

NONE = Counts()


@dataclass(frozen=True)
class CheckpointFacts:
    """The known checkpoints of one job."""

    job_id: JobId
    body: Checkpoints | None
    """None once the job has ended and its records are removed."""
    recent: tuple[Checkpoint, ...] = ()
    """The newest checkpoints that this leader has recorded, retained or not."""
    kept: str = ""
    """Place of the last checkpoint of an ended job, if retained."""
    savepoint: str = ""
    counts: Counts = NONE
    """Counts of an ended job."""

    def history(self) -> list[Json]:
        """Return all known checkpoints, newest first."""
        if self.body is None:
            return []
        retained = {one.number for one in self.body.completed}
        known = {one.number: one for one in (*self.recent, *self.body.completed)}
        answer = [
            of_checkpoint(one, one.number not in retained)
            for one in known.values()
            if one.number in retained or not is_under_way(one)
        ]
        answer += [of_savepoint(one) for one in self.body.savepoints]
        last = self.body.failed
        answer += [of_failed(last, last.failure)] if last and last.failure else []
        return sorted(answer, key=lambda one: (one["trigger_timestamp"], one["id"]), reverse=True)


def ended(job_id: JobId, result: JobResultEntry | JobRecord) -> CheckpointFacts:
    """Return the checkpoint facts in an ended job's result."""
    counts = Counts(*result.counts)
    return CheckpointFacts(
        job_id, None, kept=result.checkpoint, savepoint=result.savepoint, counts=counts
    )


def statistics(facts: CheckpointFacts) -> Json:
    """Return all of a job's checkpoints (``/jobs/:jobid/checkpoints``)."""
    history = facts.history()
    completed = [one for one in history if one["status"] == "COMPLETED"]
    return {
        "counts": _counts(facts),
        "summary": {key: _summary([one[key] for one in completed]) for key in MEASURED},
        "latest": {
            "completed": _first(one for one in completed if not one["is_savepoint"])
            or _kept(facts.kept, facts.counts.last, is_savepoint=False),
            "savepoint": _first(one for one in completed if one["is_savepoint"])
            or _kept(facts.savepoint, 0, is_savepoint=True),
            "failed": _first(one for one in history if one["status"] == "FAILED"),
            "restored": _restored(facts.body),
        },
        "history": history,
        "started_from": facts.body.started_from or None if facts.body else None,
    }


def detail(facts: CheckpointFacts, number: int) -> Json:
    """Return one checkpoint (``…/checkpoints/details/:checkpointid``); raises `NotFoundError`."""
    for one in facts.history():
        if one["id"] == number > 0:
            return {**one, "tasks": {}}
    given = facts.body.counter if facts.body else facts.counts.last
    if 0 < number <= given:
        raise NotFoundError(
            f"Checkpoint {number} of job {facts.job_id} is not retained any more "
            "(execution.checkpointing.num-retained)"
        )
    raise NotFoundError(f"Job {facts.job_id} has no checkpoint {number}: {_last(facts)}")


def latest(facts: CheckpointFacts) -> Json:
    """Return the latest completed checkpoint; raises `NotFoundError`."""
    completed = [one for one in facts.history() if one["status"] == "COMPLETED"]
    if not completed:
        raise NotFoundError(f"Job {facts.job_id} has no completed checkpoint: {_last(facts)}")
    return {**max(completed, key=lambda one: int(one["id"])), "tasks": {}}


def configuration(
    retention: Retention, num_retained: int, directory: str, accept_found: bool
) -> Json:
    """Return a job's checkpoint settings (``/jobs/:jobid/checkpoints/config``)."""
    return {
        "mode": "exactly_once",
        "interval": -1,
        "timeout": -1,
        "min_pause": 0,
        "max_concurrent": 1,
        "externalization": {
            "enabled": retention is not Retention.NO_EXTERNALIZED_CHECKPOINTS,
            "delete_on_cancellation": retention is not Retention.RETAIN_ON_CANCELLATION,
        },
        "checkpoint_storage": "spark",
        "retention": retention.value,
        "num_retained": num_retained,
        "dir": directory,
        "accept_found": accept_found,
    }


def of_checkpoint(one: Checkpoint, discarded: bool = False) -> Json:
    """Return one checkpoint; a safe write that is not published yet is in progress."""
    under_way = is_under_way(one)
    return {
        "className": "in_progress" if under_way else "completed",
        "id": one.number,
        "status": "IN_PROGRESS" if under_way else "COMPLETED",
        "is_savepoint": False,
        "checkpoint_type": "CHECKPOINT",
        "trigger_timestamp": milliseconds(one.completed_at - one.duration_s),
        "latest_ack_timestamp": milliseconds(one.completed_at),
        "checkpointed_size": one.size,
        "state_size": one.size,
        "end_to_end_duration": milliseconds(one.duration_s),
        "external_path": one.location or None,
        "discarded": discarded,
        "kind": one.kind.value,
        "name": one.name,
        "batch_id": one.batch_id if one.kind is CheckpointKind.BATCH else None,
        "query_id": one.query_id or None,
        "offsets": json.loads(bytes(one.offsets)),
        "rows": one.rows,
        "attempt": one.attempt,
    }


def of_failed(one: Checkpoint, failure: Failure) -> Json:
    """Return a failed checkpoint and its reason."""
    return {
        **of_checkpoint(replace(one, completed_at=failure.time)),
        "className": "failed",
        "status": "FAILED",
        "failure_timestamp": milliseconds(failure.time),
        "failure_message": in_words(failure),
        "external_path": None,
    }


def of_savepoint(one: Savepoint) -> Json:
    """Return a savepoint as one of the job's checkpoints."""
    answer = {
        "id": one.number,
        "is_savepoint": True,
        "checkpoint_type": "SAVEPOINT",
        "checkpointed_size": one.size,
        "state_size": one.size,
        "end_to_end_duration": milliseconds(one.duration_s),
        "trigger_id": one.trigger,
        "rows": 0,
    }
    ended_at = one.failure.time if one.failure else one.completed_at
    answer["trigger_timestamp"] = milliseconds(ended_at - one.duration_s) if ended_at else -1
    answer["latest_ack_timestamp"] = milliseconds(ended_at) if ended_at else -1
    if one.failure:
        return {
            "className": "failed",
            "status": "FAILED",
            "failure_timestamp": milliseconds(one.failure.time),
            "failure_message": one.failure.message,
            **answer,
        }
    if not one.completed_at:
        return {"className": "in_progress", "status": "IN_PROGRESS", **answer}
    path = {"external_path": one.location, "discarded": False}
    return {"className": "completed", "status": "COMPLETED", **answer, **path}


def last(body: Checkpoints | None) -> Json | None:
    """Return the summary of the newest checkpoint, for a job's view; None without one."""
    if body is None:
        return None
    one = next((one for one in reversed(body.completed) if not is_under_way(one)), None)
    if one is None:
        return None
    return {
        "id": one.number,
        "kind": one.kind.value,
        "name": one.name,
        "batch_id": one.batch_id if one.kind is CheckpointKind.BATCH else None,
        "rows": one.rows,
        "timestamp": milliseconds(one.completed_at),
        "goes_on_from": len(checkpoints.latest(body)),
    }


def _counts(facts: CheckpointFacts) -> Json:
    counts, in_progress = facts.counts, 0
    if body := facts.body:
        counts = checkpoints.counts(body)
        in_progress = sum(one.is_pending for one in body.savepoints)
        in_progress += sum(is_under_way(one) for one in body.completed)
    return {
        "restored": counts.restored,
        "total": counts.completed + counts.failed + in_progress,
        "in_progress": in_progress,
        "completed": counts.completed,
        "failed": counts.failed,
    }


def _summary(values: Sequence[int]) -> Json:
    """Return Flink's minimum, maximum, average and quantiles; 0 without values."""
    ordered = sorted(values) or [0]
    answer: Json = {
        "min": ordered[0],
        "max": ordered[-1],
        "avg": sum(ordered) // len(ordered),
    }
    for name, share in QUANTILES.items():
        answer[name] = ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return answer


def _restored(body: Checkpoints | None) -> Json | None:
    if body is None or body.restored is None:
        return None
    return {
        "id": body.restored.number,
        "restore_timestamp": milliseconds(body.restored_at),
        "is_savepoint": bool(body.restored_from),
        "external_path": body.restored_from or body.restored.location or None,
        "kind": body.restored.kind.value,
        "name": body.restored.name,
    }


def _kept(location: str, number: int, *, is_savepoint: bool) -> Json | None:
    """Return the number and place of the last checkpoint in a job's result."""
    if not location and not number:
        return None
    return {
        "className": "completed",
        "id": number,
        "status": "COMPLETED",
        "is_savepoint": is_savepoint,
        "external_path": location or None,
        "discarded": not location,
    }


def _first(found: Iterable[Json]) -> Json | None:
    return next(iter(found), None)


def _last(facts: CheckpointFacts) -> str:
    if facts.body is None:
        return "it has ended"
    return f"its last is {facts.body.counter}" if facts.body.counter else "it has none yet"
