"""``ctx.checkpoint_location``: where the streaming queries of a job keep their checkpoints."""

from __future__ import annotations

import re
from typing import Any

from understudy.errors import UsageError

NAME_CHARS_MAX = 100
"""Longer names could exceed a file system's limit."""

_NAME = re.compile(r"[\w=+-][\w.=+-]*", re.ASCII)
_OF_SPARK = frozenset({"metadata", "offsets", "commits", "sources", "state"})
"""Names that Spark itself uses in a checkpoint location."""


class CheckpointLocation(str):
    """A directory as Spark's path or URL; called with a name, a subdirectory."""

    __slots__ = ()

    def __call__(self, name: str) -> CheckpointLocation:
        """Return the location of the query ``name``. Raises `UsageError` for a bad name."""
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
        """Return the location of the query ``name``. Raises `UsageError` for a bad name."""
        return self(name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as plain text: executors may not have this package."""
        return str, (str(self),)
