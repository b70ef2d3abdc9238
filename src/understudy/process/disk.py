"""The file system operations of publishing: each method makes one changing system call.

Linux's ``renameat2`` with ``RENAME_EXCHANGE`` swaps two directories in one step: ext4, XFS, Btrfs,
tmpfs and overlayfs support it, NFS does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import operator
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from understudy.clock import poll

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2

_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})

TURN_S = 10.0
"""The longest wait for another publisher, which needs milliseconds unless it is stopped. Without
the turn nothing is lost: see `Area.publish`."""

REMOVE_TRIES = 3
"""A stopped attempt that resumes may add to a directory during its removal, but not for long."""

TURN_POLL_S = 0.02
"""Polling period for the lock: the kernel has no lock with a time limit."""


_PASSING = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)


def is_passing(error: OSError) -> bool:
    """Return whether the same operation may succeed a little later."""
    return error.errno in _PASSING


class NotSupported(OSError):  # noqa: N818
    """The file system cannot do this in one step."""


@dataclass(frozen=True)
class Listing:
    """The contents of a directory tree, by relative path; a symbolic link is a file."""

    files: dict[str, int]
    """Files with their inode numbers: a replaced file has another one."""
    directories: frozenset[str]


class Disk:
    """The real file system; tests make each call fail or stop."""

    def make(self, path: Path) -> None:
        """Create a directory; raises ``FileExistsError``."""
        path.mkdir(0o700)

    def write(self, path: Path, data: bytes) -> None:
        """Create a small file, durably; raises ``FileExistsError``."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)

    def link(self, source: Path, target: Path) -> None:
        """Create a hard link to a file."""
        os.link(source, target, follow_symlinks=False)

    def like(self, source: Path, target: Path) -> None:
        """Copy mode, group and extended attributes of a directory to another."""
        found = source.stat()
        with contextlib.suppress(PermissionError):
            os.chown(target, -1, found.st_gid)
        with contextlib.suppress(OSError):  # Some need other rights, or are not supported here.
            for name in os.listxattr(source):
                os.setxattr(target, name, os.getxattr(source, name))
        target.chmod(found.st_mode & 0o7777)

    def rename(self, source: Path, target: Path) -> None:
        """Rename; a directory never replaces a non-empty one."""
        source.rename(target)

    def place(self, source: Path, target: Path) -> None:
        """Rename a directory to a free name; raises ``FileExistsError``."""
        try:
            _renameat2(source, target, _RENAME_NOREPLACE)
        except NotSupported:
            try:
                source.rename(target)
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.ENOTDIR}:
                    raise FileExistsError(errno.EEXIST, "exists", str(target)) from error
                raise

    def exchange(self, one: Path, other: Path) -> None:
        """Swap two directories in one step; raises `NotSupported`."""
        _renameat2(one, other, _RENAME_EXCHANGE)

    def remove(self, path: Path) -> None:
        """Remove a file; absent is fine."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and its contents; absent is fine."""
        for tries in range(1, REMOVE_TRIES + 1):
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                if not path.exists():
                    return
            except OSError:
                if tries == REMOVE_TRIES:
                    raise
            else:
                return

    def sync(self, path: Path) -> None:
        """Make a file or directory durable, if the file system supports that."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def turn(self, directory: Path) -> Iterator[None]:
        """Hold a directory's lock during the block, or no lock after `TURN_S`: publishers queue."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            poll(lambda: locked(descriptor), operator.not_, TURN_S, TURN_POLL_S)
            yield
        finally:
            unlock(descriptor)
            os.close(descriptor)


def listing(directory: Path, ignored: str = "") -> Listing:
    """Return the contents of a directory; its direct entries with prefix ``ignored`` are left out.

    Raises ``FileNotFoundError`` if the directory is absent; entries that vanish are left out.
    """
    files: dict[str, int] = {}
    directories: set[str] = set()
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            entries = list(os.scandir(directory / below))
        except FileNotFoundError:
            if not below:
                raise
            directories.discard(below)
            continue
        for entry in entries:
            if not below and ignored and entry.name.startswith(ignored):
                continue
            name = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                directories.add(name)
                pending.append(name)
            else:
                files[name] = entry.inode()
    return Listing(files, frozenset(directories))


def locked(descriptor: int) -> bool:
    """Take the lock of an open file; return false if another process holds it.

    A file system without locks counts as unlocked.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # This file system has no such locks.
        return True
    return True


def unlock(descriptor: int) -> None:
    """Release the lock: closing the file is not enough, as a child may have inherited it."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _renameat2(source: Path, target: Path, flags: int) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        raise NotSupported(errno.ENOSYS, "this system has no renameat2")
    if function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags) == 0:
        return
    number = ctypes.get_errno()
    kind = NotSupported if number in _NOT_SUPPORTED else OSError
    raise kind(number, os.strerror(number), str(source), None, str(target))
