"""Reading files that others may have damaged: never waits for one, never takes for absent what is.

What the operating system says is told apart here: a file that is not there, one that is there and
cannot be had (a person must look), and a file system that fails (another try may succeed).
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
"""Nothing that belongs in here is larger; a larger file is damage, not data."""

IO_TRIES = 3
"""An input/output error that comes so often in a row is about the file, and not about a moment."""

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
    """Say whether an error is about this one file, and not about the file system as a whole."""
    return error.errno in _ABOUT_THE_FILE


def unreadable(path: Path, error: OSError) -> UnreadableDataError:
    """Return what people are told of a file that is there and cannot be had."""
    return UnreadableDataError(f"{path}: cannot be read: {error.strerror}")


def tried_again(function: Callable[[], R]) -> R:
    """Call a function again after an input/output error: one alone is not taken for damage."""
    for _ in range(IO_TRIES - 1):
        try:
            return function()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
    return function()


def read(path: Path) -> bytes:
    """Return a file's bytes.

    Raises ``FileNotFoundError``; `UnreadableDataError` for what is there and cannot be had; any
    other ``OSError`` where the file system fails.
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
