"""A job's checkpoints: recording, numbering and retention.

One record combines Flink's CompletedCheckpointStore and CheckpointIDCounter, so that one write
both takes the next number and records its checkpoint (FLIP-144 needs two).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from understudy.model import (
    NULL,
    Checkpoint,
    CheckpointKind,
    Checkpoints,
    Failure,
    JobStatus,
    Record,
)

Slot = tuple[CheckpointKind, str]
"""A series of checkpoints: a restarted job resumes from the latest one of each slot."""

OFFSETS_BYTES_LIGHT = 1024
"""Largest offsets that a superseded checkpoint of a query keeps."""

FAILURE_CHARS_MAX = 500
"""Longest failure message that is stored; the job's log has the full text."""

SAVEPOINTS_MAX = 20
"""Savepoints that a job's document lists; older savepoints themselves stay."""


class Retention(enum.Enum):
    """Whether the checkpoints of an ended job are retained, in Flink's words."""

    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"


class CheckpointReport(Struct, frozen=True):
    """One report of checkpoints from an attempt."""

    attempt: int
    sequence: int
    """Number of this report within the attempt, from 1; reports are sent in this order."""
    checkpoints: tuple[Checkpoint, ...]


class Counts(NamedTuple):
    """How many checkpoints a job has taken, including savepoints; stored in its result."""

    completed: int = 0
    failed: int = 0
    restored: int = 0
    """Attempts that resumed from a checkpoint."""
    last: int = 0
    """Number of the last completed checkpoint, without savepoints."""


def slot(checkpoint: Checkpoint) -> Slot:
    """Return the slot of a checkpoint: it supersedes the earlier ones in the same slot."""
    return checkpoint.kind, checkpoint.name


def hear(
    body: Checkpoints, reports: Sequence[CheckpointReport], num_retained: int
) -> tuple[Checkpoints, list[tuple[Checkpoint, ...]]]:
    """Apply reports; return the new body, and the checkpoints of each report with their numbers.

    A report that was received before is sent again when an answer was lost, and changes nothing. It
    must not count as new, even if only its successors are retained: an older batch would become the
    latest. Its checkpoints have number 0 if their numbers are no longer known.
    """
    numbered = []
    for one in reports:
        if (one.attempt, one.sequence) <= body.heard:
            known = {_identity(kept): kept for kept in body.completed}
            numbered.append(tuple(known.get(_identity(kept), kept) for kept in one.checkpoints))
            continue
        body, taken = record(body, one.checkpoints, num_retained)
        body = replace(body, heard=(one.attempt, one.sequence))
        numbered.append(taken)
    return body, numbered


def failed(body: Checkpoints, count: int, last: Checkpoint | None) -> Checkpoints:
    """Count failed checkpoints; each gets a number, and the last one is stored."""
    if not count:
        return body
    counter = body.counter + count
    return replace(
        body,
        counter=counter,
        failed_total=body.failed_total + count,
        failed=replace(last, number=counter) if last else body.failed,
    )


def lightened(one: Checkpoint) -> Checkpoint:
    """Drop the large offsets of a superseded checkpoint, which nobody needs any more."""
    is_light = len(bytes(one.offsets)) <= OFFSETS_BYTES_LIGHT
    return one if is_light else replace(one, offsets=NULL)


def counts(body: Checkpoints, *, over: bool = False) -> Counts:
    """Return the totals of a job's checkpoints, which remain after the checkpoints are gone.

    ``over`` says that the job has ended: a pending savepoint then counts as failed.
    """
    done = [one.number for one in body.completed if not is_under_way(one)]
    return Counts(
        body.completed_total + sum(bool(one.completed_at) for one in body.savepoints),
        body.failed_total
        + sum(bool(one.failure) or (over and one.is_pending) for one in body.savepoints),
        body.restored_total,
        max(done, default=0) if body.completed_total else 0,
    )


def in_words(failure: Failure) -> str:
    """Return a failure as one line of text."""
    return f"{failure.type}: {failure.message}" if failure.message else failure.type


def record(
    body: Checkpoints, taken: Sequence[Checkpoint], num_retained: int
) -> tuple[Checkpoints, tuple[Checkpoint, ...]]:
    """Record and number checkpoints; return the new body and the numbered checkpoints.

    A checkpoint that is already recorded keeps its number: it is repeated when an answer was lost.
    """
    known = {_identity(one): one for one in body.completed}
    counter = body.counter
    numbered = []
    for one in taken:
        found = known.get(_identity(one))
        if found is None:
            counter += 1
            found = replace(one, number=counter)
            known[_identity(one)] = found
        numbered.append(found)
    if counter == body.counter:
        return body, tuple(numbered)
    completed = sorted(known.values(), key=lambda one: one.number)
    done = [one for one in completed if one.number > body.counter and not is_under_way(one)]
    changed = replace(
        body,
        counter=counter,
        completed=_retained(completed, num_retained),
        completed_total=body.completed_total + len(done),
    )
    return changed, tuple(numbered)


def latest(body: Checkpoints | None) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that a restarted job resumes from: the latest per slot, by number."""
    found: dict[Slot, Checkpoint] = {}
    for one in body.completed if body else ():
        found[slot(one)] = one
    return tuple(sorted(found.values(), key=lambda one: one.number))


def has_advanced(body: Checkpoints, attempt: int, given: Sequence[Checkpoint]) -> bool:
    """Return whether an attempt has completed a checkpoint that differs from those it was given.

    A loop that saves the same state again before it dies has made no progress.
    """
    before = {slot(one): (one.batch_id, one.digest) for one in given}
    return any(
        one.attempt == attempt
        and not is_under_way(one)
        and before.get(slot(one)) != (one.batch_id, one.digest)
        for one in body.completed
    )


def restored(body: Checkpoints, now: float) -> Checkpoints:
    """Record that an attempt starts from the latest checkpoints, if there are any."""
    if not body.completed:
        return body
    return replace(
        body,
        restored=replace(body.completed[-1], offsets=NULL),
        restored_at=now,
        restored_from="" if body.completed_total else body.started_from,
        restored_total=body.restored_total + 1,
    )


def is_retained(retention: Retention, status: JobStatus) -> bool:
    """Return whether a job's checkpoints stay after this end (Flink: CheckpointProperties)."""
    match retention:
        case Retention.NO_EXTERNALIZED_CHECKPOINTS:
            return False
        case Retention.DELETE_ON_CANCELLATION:
            return status is JobStatus.FAILED
        case Retention.RETAIN_ON_CANCELLATION:
            return status in {JobStatus.FAILED, JobStatus.CANCELED}


def _retained(completed: list[Checkpoint], num_retained: int) -> tuple[Checkpoint, ...]:
    last = {slot(one): one.number for one in completed}
    needed = set(last.values())
    # A superseded state is deleted at once, so its checkpoint is not listed either.
    newest = {
        one.number for one in completed[-num_retained:] if one.kind is not CheckpointKind.STATE
    }
    return tuple(
        one if one.number in needed else lightened(one)
        for one in completed
        if one.number in needed | newest
    )


def _identity(one: Checkpoint) -> tuple[CheckpointKind, str, int, int, str, str]:
    return one.kind, one.name, one.attempt, one.batch_id, one.location, one.digest


# --- the progress of a safe write: the note in a checkpoint of kind WRITE -------------------------
#
# staging    an attempt computes the rows in its area, a hidden directory beside the target
# prepared   the rows are complete in the area: no attempt computes them again
# published  the rows are in the target: a restarted job skips the write
# done       a batch of a streaming query has completed all its writes


class WriteState(enum.Enum):
    """The progress of a write, in the order of the list above."""

    STAGING = "staging"
    PREPARED = "prepared"
    PUBLISHED = "published"
    DONE = "done"


class WriteNote(Record, frozen=True):
    """The note in a checkpoint of kind WRITE."""

    state: WriteState
    target: str = ""
    """The target, while the write is under way; else empty."""


def note_of(checkpoint: Checkpoint) -> WriteNote:
    """Decode the note of a checkpoint of kind WRITE."""
    return msgspec.json.decode(checkpoint.note, type=WriteNote)


def encoded(note: WriteNote) -> msgspec.Raw:
    """Encode a note for a checkpoint."""
    return msgspec.Raw(msgspec.json.encode(note))


def is_under_way(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint belongs to a write that is not published yet."""
    return checkpoint.kind is CheckpointKind.WRITE and bool(note_of(checkpoint).target)


def has_only_begun(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint belongs to a write whose rows are not computed yet."""
    return is_under_way(checkpoint) and note_of(checkpoint).state is WriteState.STAGING
