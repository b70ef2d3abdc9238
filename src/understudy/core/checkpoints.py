"""Which checkpoints a job has, how they are numbered, and which of them are retained.

What Flink keeps in a CompletedCheckpointStore and a CheckpointIDCounter is one body here, so that
taking the next number and recording what it numbers is one write (FLIP-144 has two).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from understudy.core.writes import is_under_way
from understudy.model import NULL, Checkpoint, CheckpointKind, Checkpoints, Failure, JobStatus

Slot = tuple[CheckpointKind, str]
"""Of each slot the latest checkpoint is what a restarted job goes on from."""

OFFSETS_BYTES_LIGHT = 1024
"""Of a query's checkpoint that a newer one has replaced, offsets up to here are kept."""

FAILURE_CHARS_MAX = 500
"""Of what a checkpoint failed with, so much is recorded: all of it is in the job's log."""

SAVEPOINTS_MAX = 20
"""Of so many a job's document remembers how they were taken; the savepoints stay."""


class Retention(enum.Enum):
    """What becomes of the checkpoints of a job that has ended, in Flink's words."""

    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"


class Telling(Struct, frozen=True):
    """What an attempt tells at once."""

    attempt: int
    sequence: int
    """Numbers what this attempt tells, from 1; it tells everything in this order."""
    checkpoints: tuple[Checkpoint, ...]


class Counts(NamedTuple):
    """How many checkpoints a job has taken, savepoints among them; kept in its result."""

    completed: int = 0
    failed: int = 0
    restored: int = 0
    """Attempts that went on from some."""
    last: int = 0
    """The number of the last that was completed, savepoints left out."""


def slot(checkpoint: Checkpoint) -> Slot:
    """Return which checkpoints are superseded by this one."""
    return checkpoint.kind, checkpoint.name


def hear(
    body: Checkpoints, told: Sequence[Telling], num_retained: int
) -> tuple[Checkpoints, list[tuple[Checkpoint, ...]]]:
    """Take in what was told; return the new body, and of each telling what it told, with numbers.

    What was heard before is told again, since an answer was lost: it changes nothing. It must not
    be taken for new, though what superseded it is all that is retained: an older batch would become
    the latest. Its number is 0 where that is not known any more.
    """
    numbered = []
    for one in told:
        if (one.attempt, one.sequence) <= body.heard:
            known = {_identity(kept): kept for kept in body.completed}
            numbered.append(tuple(known.get(_identity(kept), kept) for kept in one.checkpoints))
            continue
        body, taken = record(body, one.checkpoints, num_retained)
        body = replace(body, heard=(one.attempt, one.sequence))
        numbered.append(taken)
    return body, numbered


def failed(body: Checkpoints, count: int, last: Checkpoint | None) -> Checkpoints:
    """Count some that came to nothing; each gets a number, and the last one is remembered."""
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
    """Leave out large offsets: of what a newer one has replaced they will not be asked for."""
    is_light = len(bytes(one.offsets)) <= OFFSETS_BYTES_LIGHT
    return one if is_light else replace(one, offsets=NULL)


def counts(body: Checkpoints, *, over: bool = False) -> Counts:
    """Return what is to be known of a job's checkpoints when nothing else is left of them.

    ``over`` says that the job has ended: a savepoint that is still being taken has failed then.
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
    """Return in one line what something came to nothing of."""
    return f"{failure.type}: {failure.message}" if failure.message else failure.type


def record(
    body: Checkpoints, taken: Sequence[Checkpoint], num_retained: int
) -> tuple[Checkpoints, tuple[Checkpoint, ...]]:
    """Number what was taken; return the new body, and what was taken with its numbers.

    What is recorded already keeps its number: it was told twice, since an answer was lost.
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
    """Return what a restarted job goes on from: the latest of each slot, in order of number."""
    found: dict[Slot, Checkpoint] = {}
    for one in body.completed if body else ():
        found[slot(one)] = one
    return tuple(sorted(found.values(), key=lambda one: one.number))


def has_advanced(body: Checkpoints, attempt: int, given: Sequence[Checkpoint]) -> bool:
    """Say whether an attempt has completed anything that says more than what it was given.

    A loop that saves the same state again before it dies has not come further.
    """
    before = {slot(one): (one.batch_id, one.digest) for one in given}
    return any(
        one.attempt == attempt
        and not is_under_way(one)
        and before.get(slot(one)) != (one.batch_id, one.digest)
        for one in body.completed
    )


def restored(body: Checkpoints, now: float) -> Checkpoints:
    """Note that an attempt begins with the latest checkpoints, where there are any."""
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
    """Say whether the checkpoints of a job that ended so are kept (Flink: CheckpointProperties)."""
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
    # A state that was replaced is deleted at once: nothing of it is left to be remembered.
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
