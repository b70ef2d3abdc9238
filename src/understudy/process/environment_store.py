"""The Python environments on this host: who uses them, which are whole, when they are removed.

In the directory of all environments, for one that is called ``NAME``:

- ``NAME.lock``: locked shared by each process that uses the environment (by the kernel, so that a
  killed process uses nothing), exclusively by who removes it
- ``NAME/``: locked by the process that builds
- ``NAME/<any>/``: the environment itself; its scripts name this directory, so it is never renamed
- ``NAME/understudy.environment``: published last; without it, nothing is an environment

What another boot of the host has built is not used: a crash of the host may have damaged it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from understudy.clock import poll
from understudy.errors import EnvironmentFailed
from understudy.ha import own_directory
from understudy.ha.drafts import DRAFT, published

MARK = "understudy.environment"
REPORT_BYTES_MAX = 32_000
"""A pipe takes as much at once, though nobody reads."""

LOCK = ".lock"

HELD_S = 30.0
"""Longest wait for a process that removes an environment, which takes it a few system calls."""

HELD_POLL_S = 0.02
"""Polling period for the lock: the kernel has no lock with a time limit."""

UNUSED_S = 3600.0
"""An unused environment of this age was left by a process that was killed."""

FILES_MAX, BYTES_MAX = 500_000, 32 << 30
"""Limits of an environment; the largest known have 100,000 files and 15 GB."""


class EnvironmentOrder(msgspec.Struct, frozen=True):
    """An environment to build: from requirements, or from an archive."""

    base: str
    """The directory of all environments."""
    name: str
    requirements: str = ""
    """The path of the requirements file."""
    archive: str = ""
    """The path of the archive."""
    program: str = ""
    """The path of the interpreter in the archive."""
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    report: int | None = None
    """Descriptor of a pipe for the reason of a failure."""


class Mark(msgspec.Struct, frozen=True):
    """What is known of a whole environment."""

    boot: str
    python: str
    """The path of its interpreter, below ``NAME/``."""
    sizes: dict[str, int]
    """All its files, but for what Python compiles."""


def hold(base: Path, name: str) -> int:
    """Use an environment from now on; return the descriptor of the lock. Blocking."""
    found: int | None = poll(lambda: _try_to_hold(base, name), _is_none, HELD_S, HELD_POLL_S)
    if found is None:
        raise EnvironmentFailed(
            f"{base / name}{LOCK} is locked for longer than {HELD_S:g} s: another process removes "
            "the environment, and is stopped"
        )
    return found


def release(base: Path, name: str, lock: int) -> None:
    """Use an environment no more; remove it unless another process uses it. Blocking."""
    os.close(lock)
    remove_unused(base, name)


def remove_unused(base: Path, name: str, unused_s: float = 0.0) -> bool:
    """Remove an environment that no process uses; return whether it is gone.

    ``unused_s``: one that was used more lately stays.
    """
    path = _lock_of(base, name)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return True
    removed = base / f"{DRAFT}{uuid.uuid4().hex}"
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if not _is_file(path, lock):  # Another process has removed it.
            return True
        if unused_s and time.time() - os.fstat(lock).st_mtime < unused_s:
            return False
        with contextlib.suppress(FileNotFoundError):
            (base / name).rename(removed)
        path.unlink()
    finally:
        os.close(lock)
    shutil.rmtree(removed, ignore_errors=True)
    with contextlib.suppress(OSError):  # Others are there.
        base.rmdir()
    return True


def sweep(base: Path) -> None:
    """Remove what killed processes have left."""
    with contextlib.suppress(FileNotFoundError):
        for name in {path.name.removesuffix(LOCK) for path in base.iterdir()}:
            if name.startswith(DRAFT):
                shutil.rmtree(base / name, ignore_errors=True)
            else:
                remove_unused(base, name, UNUSED_S)


@contextlib.contextmanager
def building(home: Path) -> Iterator[None]:
    """Be the only process that builds an environment; waits for another one, for ever."""
    home.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def seal(home: Path, directory: Path, python: Path) -> None:
    """Publish the environment in a directory below its home. Raises `EnvironmentFailed`."""
    sizes, total = {}, 0
    for path in _files(directory):
        size = path.lstat().st_size
        sizes[path.relative_to(home).as_posix()] = size
        total += size
        if len(sizes) > FILES_MAX or total > BYTES_MAX:
            raise EnvironmentFailed(
                f"the environment has more than {FILES_MAX:,} files or {BYTES_MAX >> 30} GB"
            )
    mark = Mark(_boot(), python.relative_to(home).as_posix(), sizes)
    with published(home / MARK) as file:
        file.write(msgspec.json.encode(mark))


def whole(base: Path, name: str) -> str:
    """Return the interpreter of an environment with all its files; empty if there is none."""
    home = base / name
    try:
        mark = msgspec.json.decode((home / MARK).read_bytes(), type=Mark)
        same = mark.boot == _boot() and (home / mark.python).is_file()
        if same and all((home / one).lstat().st_size == size for one, size in mark.sizes.items()):
            return str(home / mark.python)
    except (OSError, msgspec.DecodeError):
        pass
    return ""


def clear(home: Path) -> None:
    """Remove all that an earlier build has left, the mark first."""
    (home / MARK).unlink(missing_ok=True)
    for path in list(home.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _files(directory: Path) -> Iterator[Path]:
    for here, names, files in os.walk(directory):
        names[:] = [name for name in names if name != "__pycache__"]
        yield from (Path(here, name) for name in files if not name.endswith(".pyc"))


def _try_to_hold(base: Path, name: str) -> int | None:
    path = _lock_of(own_directory.make(base, levels=2), name)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # The last user of another environment has removed the directory.
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if _is_file(path, lock):
            os.utime(lock)
            held, lock = lock, -1
            return held
    except BlockingIOError:
        return None
    finally:
        if lock >= 0:
            os.close(lock)
    return None


def _is_file(path: Path, descriptor: int) -> bool:
    """Return whether a descriptor is that of the file which is there now."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_none(found: int | None) -> bool:
    return found is None


def _lock_of(base: Path, name: str) -> Path:
    return base / f"{name}{LOCK}"


def _boot() -> str:
    """Return what is different after each boot of the host."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
