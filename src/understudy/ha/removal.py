"""Removing files and directories below a root, without following links.

Links in the root's own path are followed, as a person or this program chose that path. Below the
root, each directory is opened relative to its parent (``openat``), and a link is refused. So no
exchange of a directory for a link, before or during the removal, leads out of the root. A link that
is itself removed goes; its target stays.
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
"""Others may still write into a tree during its removal, but not for so many rounds."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove_file(root: Path, path: str) -> None:
    """Remove a file below the root; absent is fine."""
    with contextlib.suppress(FileNotFoundError), directory_of(root, path) as (directory, name):
        os.unlink(name, dir_fd=directory)


def remove_tree(root: Path, path: str) -> None:
    """Remove a directory below the root and its contents; absent is fine."""
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
    raise OSError(errno.ENOTEMPTY, "another process keeps writing below", str(root / path))


def remove_empty(root: Path, path: str) -> None:
    """Remove an empty directory below the root; raises ``OSError`` if it is not empty."""
    with directory_of(root, path) as (directory, name):
        os.rmdir(name, dir_fd=directory)


def refuse_links(root: Path, path: str) -> None:
    """Raise ``OSError`` if a path below the root is a link or contains one; absent is fine."""
    with contextlib.suppress(FileNotFoundError), directory_of(root, path) as (directory, name):
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise _link(root / path)


@contextlib.contextmanager
def opened(root: Path, path: str) -> Iterator[int]:
    """Open a directory below the root without following links."""
    with directory_of(root, path) as (directory, name):
        descriptor = _enter(directory, name, root / path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def directory_of(root: Path, path: str) -> Iterator[tuple[int, str]]:
    """Open the parent directory of a path below the root; yield it and the path's last name."""
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
