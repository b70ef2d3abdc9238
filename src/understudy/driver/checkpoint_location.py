"""``ctx.checkpoint_location``: where the streaming queries of a job keep their checkpoints."""

from __future__ import annotations

import re
from typing import Any

from understudy.errors import UsageError

NAME_CHARS_MAX = 100
"""Longer names could pass what file systems allow for a file's name."""

_NAME = re.compile(r"[\w=+-][\w.=+-]*", re.ASCII)
_OF_SPARK = frozenset({"metadata", "offsets", "commits", "sources", "state"})
"""What Spark itself puts into a checkpoint location."""


class CheckpointLocation(str):
    """A directory, as a path or URL that Spark understands; with a name, one below it."""

    __slots__ = ()

    def __call__(self, name: str) -> CheckpointLocation:
        """Return the location of one of several queries. Raises `UsageError` for a bad name."""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
            raise UsageError(
                f"{name!r} cannot name a checkpoint location: give it letters and digits, and "
                f"'_', '-', '+', '=' or '.' within, {NAME_CHARS_MAX} at most"
            )
        if name in _OF_SPARK:
            raise UsageError(
                f"{name!r} cannot name a checkpoint location, since Spark puts files of that name "
                "into one: choose another name"
            )
        return CheckpointLocation(f"{self}/{name}")

    def __truediv__(self, name: str) -> CheckpointLocation:
        """Return the location of one of several queries. Raises `UsageError` for a bad name."""
        return self(name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to executors as plain text: they may not have this package."""
        return str, (str(self),)
