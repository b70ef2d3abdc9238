"""Removing files and directories below a root, and never what a link on the way points to.

A root is a directory that a person or we have chosen: its own path is followed. Below it, each
directory on the way is opened in the one before (``openat``) and refused where it is a link: no
exchange of a directory for a link, before or meanwhile, leads out of the root. A link that is to be
removed itself goes, and what it points to stays.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from understudy.errors import StorageError

REMOVE_TRIES = 10
"""Others may still write into a tree while it is removed, but not for so many rounds."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove_file(root: Path, path: str) -> None:
    """Remove a file below the root; absent is fine."""
    with contextlib.suppress(FileNotFoundError), directory_of(root, path) as (directory, name):
        os.unlink(name, dir_fd=directory)


def remove_tree(root: Path, path: str) -> None:
    """Remove a directory below the root with all that it holds; absent is fine."""
    for _ in range(REMOVE_TRIES):
        try:
            with directory_of(root, path) as (directory, name):
                _remove(name, directory)
                return
        except FileNotFoundError:
            if not os.path.lexists(root / path):
                return
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
    raise OSError(errno.ENOTEMPTY, "somebody goes on writing below", str(root / path))


def remove_empty(root: Path, path: str) -> None:
    """Remove an empty directory below the root; raises ``OSError`` where it holds anything."""
    with directory_of(root, path) as (directory, name):
        os.rmdir(name, dir_fd=directory)


def refuse_links(root: Path, path: str) -> None:
    """Raise ``OSError`` where a link lies on the way to a path, or is there; absent is fine."""
    with contextlib.suppress(FileNotFoundError), directory_of(root, path) as (directory, name):
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise _link(root / path)


@contextlib.contextmanager
def opened(root: Path, path: str) -> Iterator[int]:
    """Open a directory below the root, without following a link on the way."""
    with directory_of(root, path) as (directory, name):
        descriptor = _enter(directory, name, root / path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def directory_of(root: Path, path: str) -> Iterator[tuple[int, str]]:
    """Open the directory that holds a path of the root; yield it, and the name in it."""
    parts = PurePosixPath(path).parts
    if not parts:
        root, parts = root.parent, (root.name,)
    if ".." in parts or path.startswith("/"):
        raise StorageError(f"{root}: {path!r} does not lie below it, and is not removed")
    descriptor, way = os.open(root, _DIRECTORY), root
    try:
        for part in parts[:-1]:
            way /= part
            above, descriptor = descriptor, _enter(descriptor, part, way)
            os.close(above)
        yield descriptor, parts[-1]
    finally:
        os.close(descriptor)


def _enter(above: int, name: str, whole: Path) -> int:
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except NotADirectoryError:
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise _link(whole) from None
        raise


def _remove(name: str, directory: int) -> None:
    if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=directory)
    else:
        shutil.rmtree(name, dir_fd=directory)


def _link(path: Path) -> OSError:
    return OSError(
        errno.ELOOP,
        "is a symbolic link, and what lies behind it is not removed: give the directory that it "
        "points to, or remove the link",
        str(path),
    )
