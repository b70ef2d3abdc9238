"""Drafts: files and directories under temporary names, before one rename publishes them.

The writer holds its draft's lock (``flock``) until the rename. A draft with a free lock belongs to
a dead writer, and any process may remove it at once. If a draft is removed just before its writer
takes the lock, the writer gets an ``OSError`` and tries again. Published files are never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

DRAFT = ".draft-"
"""Prefix of the names of drafts in a storage."""

_REMOVED = ".removed"
"""Suffix of the name of a directory that can no longer be published."""

ABANDONED_S = 60.0
"""Where locks do not work, a draft of this age belongs to a dead writer."""

PRUNED_MAX = 10
"""How often another process may remove the new directories of a new file."""


def hold(descriptor: int) -> None:
    """Lock a draft while the descriptor is open, to show that its writer is alive."""
    with contextlib.suppress(OSError):  # Another process removes it now, or there are no locks.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def published(target: Path) -> Iterator[BinaryIO]:
    """Yield a draft of a local file; it is published durably after the block, or removed on error.

    Missing parent directories are created.
    """
    draft = target.parent / f"{DRAFT}{uuid.uuid4().hex}"
    try:
        with _begun(draft) as file:
            hold(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
            draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync(target.parent)


def _begun(draft: Path) -> BinaryIO:
    """Open a new file; try again if another process removes its empty directories meanwhile."""
    for _ in range(PRUNED_MAX):
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            make_directories(draft.parent)
            return _created(draft)
    make_directories(draft.parent)
    return _created(draft)


def _created(draft: Path) -> BinaryIO:
    """Create a file that only its owner can read: it may hold rows or a job's secrets."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(draft, flags, 0o600), "wb")


def make_directories(path: Path, mode: int = 0o700) -> None:
    """Create a directory and its parents, each durable in its parent."""
    if path.is_dir():
        return
    make_directories(path.parent, mode)
    path.mkdir(mode, exist_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_abandoned(drafts: Iterable[Path]) -> None:
    """Remove the drafts, files or directories, whose writers are dead."""
    for draft in drafts:
        with contextlib.suppress(OSError):  # The draft is gone, or the next caller removes it.
            if not _is_abandoned(draft):
                continue
            if draft.is_dir():
                _remove_directory(draft)
            else:
                draft.unlink()


def _remove_directory(draft: Path) -> None:
    """Remove a directory; rename it first, so that its writer cannot publish it half empty."""
    if not draft.name.endswith(_REMOVED):
        draft = draft.rename(draft.with_name(f"{draft.name}{_REMOVED}"))
    shutil.rmtree(draft, ignore_errors=True)


def _is_abandoned(draft: Path) -> bool:
    descriptor = os.open(draft, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return time.time() - os.fstat(descriptor).st_mtime > ABANDONED_S
    finally:
        os.close(descriptor)
    return True
