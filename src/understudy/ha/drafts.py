"""Drafts: what a writer writes aside, before one rename publishes it.

The writer holds its draft's lock (``flock``) until then. A draft whose lock is free belongs to a
writer that died: whoever comes by may remove it at once. One that is removed in the moment before
its writer holds it costs the writer an ``OSError``, and another try: what was published meanwhile
is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

DRAFT = ".draft-"
"""How the names of drafts in a storage begin."""

_REMOVED = ".removed"
"""How the name of a directory ends that can be published no more."""

ABANDONED_S = 60.0
"""Where locks do not work, a draft of this age belongs to a writer that died."""


def hold(descriptor: int) -> None:
    """Show that the writer of this draft lives, for as long as the descriptor is open."""
    with contextlib.suppress(OSError):  # Another one removes it just now, or there are no locks.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_abandoned(drafts: Iterable[Path]) -> None:
    """Remove the drafts, files or directories, whose writers are dead."""
    for draft in drafts:
        with contextlib.suppress(OSError):  # It is gone already, or is left to the next one.
            if not _is_abandoned(draft):
                continue
            if draft.is_dir():
                _remove_directory(draft)
            else:
                draft.unlink()


def _remove_directory(draft: Path) -> None:
    """Take a draft from its writer before it is emptied: there its name is not looked at again."""
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
