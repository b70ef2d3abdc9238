"""How far a safe write is: what a checkpoint of kind WRITE says besides.

staging    an attempt computes the rows in its area; told, so that the area can be found
prepared   the rows are whole in the area: no attempt computes them again
published  they are in the target: a restarted job passes the write over
done       a batch of a streaming query is through with all its writes
"""

from __future__ import annotations

import enum

import msgspec

from understudy.model import Checkpoint, CheckpointKind, Record


class WriteState(enum.Enum):
    """How far a write is; see the module."""

    STAGING = "staging"
    PREPARED = "prepared"
    PUBLISHED = "published"
    DONE = "done"


class WriteNote(Record, frozen=True):
    """What a checkpoint of kind WRITE says besides."""

    state: WriteState
    target: str = ""
    """While it is under way."""


def note_of(checkpoint: Checkpoint) -> WriteNote:
    """Return what such a checkpoint says."""
    return msgspec.json.decode(checkpoint.note, type=WriteNote)


def encoded(note: WriteNote) -> msgspec.Raw:
    """Return what a checkpoint says, as it is recorded."""
    return msgspec.Raw(msgspec.json.encode(note))


def is_under_way(checkpoint: Checkpoint) -> bool:
    """Say whether a checkpoint is one of a write that is not published yet."""
    return checkpoint.kind is CheckpointKind.WRITE and bool(note_of(checkpoint).target)


def has_only_begun(checkpoint: Checkpoint) -> bool:
    """Say whether a checkpoint is one of a write whose rows are not computed yet."""
    return is_under_way(checkpoint) and note_of(checkpoint).state is WriteState.STAGING
