"""Logs over REST: pieces of an application's log file on this host.

A piece ends with a whole line if possible, and names the offset of the next piece. After a full log
was restarted, an offset beyond its end means its beginning.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from understudy.api.own_headers import LOG_SIZE, NEXT_OFFSET
from understudy.api.views import Json, milliseconds
from understudy.config import options
from understudy.errors import NotFoundError
from understudy.process.reporter import CLUSTER

PIECE_BYTES_MAX = 1 << 20
"""Size of one answer: more than a terminal shows, and little memory for the leader."""


@dataclass(frozen=True)
class Piece:
    """A part of a log."""

    data: bytes
    following: int
    """Offset of the next piece."""
    size: int
    """Current length of the log."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers with the offset of the next piece."""
        return {NEXT_OFFSET: str(self.following), LOG_SIZE: str(self.size)}


def read(path: Path, offset: int, *, ended: bool) -> Piece:
    """Return the piece at an offset; blocking.

    Without a file nothing was printed yet. Raises `NotFoundError` after the end of the application,
    when its file is removed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if ended:
            raise NotFoundError(
                f"the log is not there any more: {options.LOG_MAX.key} tells how many are kept"
            ) from None
        return Piece(b"", 0, 0)
    try:
        size = os.fstat(descriptor).st_size
        start = offset if offset <= size else 0
        data = os.pread(descriptor, PIECE_BYTES_MAX, start)
    finally:
        os.close(descriptor)
    data = data[: data.rfind(b"\n") + 1] or data
    return Piece(data, start + len(data), size)


def files(path: Path) -> tuple[Path, Path]:
    """Return the paths of a log file and of the full one that is set aside for it."""
    return path, path.with_name(f"{path.name}.1")


def named(paths: Iterable[Path], name: str) -> Path:
    """Return the one of these logs, or of those set aside for them, with this name.

    The name is only compared, never joined to a path. Raises `NotFoundError`.
    """
    for path in paths:
        for one in files(path):
            if one.name == name:
                return one
    raise NotFoundError(f"there is no log {name[:100]!r}")


def listed(path: Path) -> list[Json]:
    """Return a log file and the full one that was set aside for it, as far as they are there."""
    found = []
    for one in files(path):
        with contextlib.suppress(OSError):
            status = one.stat()
            mtime = milliseconds(status.st_mtime)
            found.append({"name": one.name, "size": status.st_size, "mtime": mtime})
    return found


def of_cluster(piece: Piece) -> Piece:
    """Return only the lines of the cluster's processes, none of the application's."""
    mark = f"[{CLUSTER}] ".encode()
    kept = [
        line
        for line in piece.data.splitlines(keepends=True)
        if line.partition(b" ")[2].startswith(mark)
    ]
    return Piece(b"".join(kept), piece.following, piece.size)
