"""Removal of what the writes of lost attempts left beside their targets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from understudy.core.writes import is_under_way, note_of
from understudy.model import Checkpoint, CheckpointKind
from understudy.process import publishing
from understudy.process.publishing import Area


def unfinished(taken: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return the writes that may have left an area: the latest of each name, if unpublished."""
    latest = {one.name: one for one in taken if one.kind is CheckpointKind.WRITE}
    return [one for one in latest.values() if is_under_way(one)]


def sweep(job_id: str, checkpoint: Checkpoint) -> None:
    """Remove the areas of a write that its ended job did not complete.

    Where the write had reached its target, data that others added meanwhile is carried over first.
    On a file system that this machine does not see, nothing is removed.
    """
    location, target = Path(checkpoint.location), Path(note_of(checkpoint).target)
    if publishing.is_area_of(location, job_id):
        for path in publishing.areas_like(location):
            Area(path, target).remove()
