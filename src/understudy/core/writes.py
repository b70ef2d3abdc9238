"""The progress of a safe write: the note in a checkpoint of kind WRITE.

staging    an attempt computes the rows in its area, a hidden directory beside the target
prepared   the rows are complete in the area: no attempt computes them again
published  the rows are in the target: a restarted job skips the write
done       a batch of a streaming query has completed all its writes
"""

from __future__ import annotations

import enum

import msgspec

from understudy.model import Checkpoint, CheckpointKind, Record


class WriteState(enum.Enum):
    """The progress of a write, in the order of the module's list."""

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
