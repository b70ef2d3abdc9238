"""Reading files that others may have damaged, without waiting or taking a damaged one for absent.

Three errors of the operating system are distinguished: a file that is absent, a file that exists
and cannot be read (a person must look), and a file system that fails (a retry may succeed).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from understudy.errors import UnreadableDataError

FILE_BYTES_MAX = 1 << 31
"""No file of ours is larger; a larger file counts as damaged."""

IO_TRIES = 3
"""After so many input/output errors in a row the file counts as damaged."""

R = TypeVar("R")

_ABOUT_THE_FILE = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENXIO,
        errno.EUCLEAN,
        errno.EBADMSG,
    }
)


def is_damage(error: OSError) -> bool:
    """Return whether an error concerns this one file, not the whole file system."""
    return error.errno in _ABOUT_THE_FILE


def unreadable(path: Path, error: OSError) -> UnreadableDataError:
    """Return the error for a file that exists and cannot be read."""
    return UnreadableDataError(f"{path}: cannot be read: {error.strerror}")


def tried_again(function: Callable[[], R]) -> R:
    """Call a function; retry after an input/output error, as a single one is no damage."""
    for _ in range(IO_TRIES - 1):
        try:
            return function()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
    return function()


def read(path: Path) -> bytes:
    """Return a file's bytes.

    Raises ``FileNotFoundError``; `UnreadableDataError` for a file that exists and cannot be read;
    any other ``OSError`` if the file system fails.
    """
    try:
        return tried_again(lambda: _read(path))
    except FileNotFoundError:
        if path.is_symlink():
            raise UnreadableDataError(f"{path}: a symbolic link to nothing") from None
        raise
    except OSError as error:
        if is_damage(error):
            raise unreadable(path, error) from error
        raise


def _read(path: Path) -> bytes:
    # Without O_NONBLOCK, opening a FIFO would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnreadableDataError(f"{path}: is not a file")
        if found.st_size > FILE_BYTES_MAX:
            raise UnreadableDataError(f"{path}: larger than anything written here")
        return file.read()
