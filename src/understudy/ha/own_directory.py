"""Private directories on this host: created for this user only, refused if others may have access.

In a shared place (the temporary directory) anybody may create a directory of our name first. So
each level below such a place is created with mode 0700. An existing level must be a directory (no
link), belong to us and not be writable by others; read access of others is removed.

Processes of one cluster may start with and without ``$XDG_RUNTIME_DIR`` (a login, a cron job), and
must still find each other's liveness locks. So a process that uses that directory writes a note
below the temporary directory, where every process looks (`known_homes`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from pathlib import Path

from understudy.errors import ConfigurationError
from understudy.ha import plain_files
from understudy.ha.drafts import published

RUNTIME_DIR = "XDG_RUNTIME_DIR"

_HOMES = "homes"
"""A directory with one file for each other directory that holds our locks."""

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make(path: Path, levels: int = 1, way_out: str = "set io.tmp.dirs to another one") -> Path:
    """Return a directory whose last levels are private; missing ones are created.

    Raises `ConfigurationError` if others own or may have changed one of these levels.
    """
    ours = [path, *path.parents][:levels]
    ours[-1].parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for level in reversed(ours):
        with contextlib.suppress(FileExistsError):
            level.mkdir(mode=0o700)
        check(level, way_out)
    return path


def check(path: Path, way_out: str = "set io.tmp.dirs to another one") -> None:
    """Raise `ConfigurationError` unless a directory is private to us; absent is fine."""
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP, errno.EACCES}:
            raise
        raise _refused(path, "is a link, or no directory, or closed to us", way_out) from error
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise _refused(path, f"belongs to user {found.st_uid}", way_out)
        if found.st_mode & 0o022:
            mode = stat.S_IMODE(found.st_mode)
            raise _refused(path, f"can be written to by others (mode {mode:04o})", way_out)
        if found.st_mode & 0o077:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def runtime_home() -> Path | None:
    """Return our directory below ``$XDG_RUNTIME_DIR``; None if the variable is of no use.

    The variable's directory must be private to us, as its specification demands.
    """
    text = os.environ.get(RUNTIME_DIR, "")
    return _usable(Path(text)) if text.startswith("/") else None


def known_homes(base: Path) -> list[Path]:
    """Return all directories that may hold our locks, for any environment of their creators.

    The first is for this process's own locks. ``base`` is the one below the temporary directory.
    """
    found = [home] if (home := runtime_home()) else []
    found.append(base)
    notes: list[Path] = []
    with contextlib.suppress(FileNotFoundError):
        check(base)
        notes = sorted((base / _HOMES).iterdir())
    for note in notes:
        with contextlib.suppress(OSError, ValueError):
            text = os.fsdecode(plain_files.read(note))
            if (known := _usable(Path(text).parent)) and known not in found:
                found.append(known)
    return found


def note_home(base: Path, home: Path) -> None:
    """Write a note of this process's lock directory, for `known_homes`, before the first lock."""
    if home == base:
        return
    data = os.fsencode(home)
    note = base / _HOMES / hashlib.sha256(data).hexdigest()[:16]
    if not note.exists():
        make(note.parent, levels=2)
        with published(note) as file:
            file.write(data)


def _usable(directory: Path) -> Path | None:
    try:
        found = directory.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or found.st_mode & 0o077 or not os.access(directory, os.W_OK | os.X_OK):
        return None
    return directory / "understudy"


def _refused(path: Path, why: str, way_out: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} {why}: others could read or replace what processes of this cluster keep there; "
        f"remove it, or {way_out}"
    )
