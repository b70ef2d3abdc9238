"""Protection against children that user code forks: such a copy of our process must not act.

``os.fork``, a ``multiprocessing`` pool, ``pty.fork`` or a ``preexec_fn`` create a child that holds
our sockets and locks, and that may return from user code into ours. Only the process that began an
attempt, or an execution of ``main``, stages, reports and records. A child that returns from user
code ends there with the interpreter's usual exit code; in a child our sockets are closed and our
calls refused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import weakref
from collections.abc import Iterator
from typing import NoReturn

from understudy.errors import UsageError
from understudy.process.printed import flush_output

_ours: weakref.WeakSet[socket.socket] = weakref.WeakSet()


class Home:
    """The process that may act: the one that created this object, not its forked children."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Return whether this is the creating process, not a forked child."""
        return os.getpid() == self._pid

    def demand(self, what: str) -> None:
        """Raise `UsageError` in a forked child."""
        if not self.is_here:
            raise UsageError(
                f"{what} was called in process {os.getpid()}, which process {self._pid} forked: "
                "only that one may; let the child hand over what it has found, for instance "
                "through a pipe or a multiprocessing.Queue"
            )

    @contextlib.contextmanager
    def user_code(self) -> Iterator[None]:
        """Run user code in the block; a forked child that leaves the block ends there."""
        try:
            yield
        except BaseException as error:
            if not self.is_here:
                leave(error)
            raise
        if not self.is_here:
            leave(None)


def leave(error: BaseException | None) -> NoReturn:
    """End a child as the end of a script would, after an exception or without one.

    The parent's exit handlers do not run.
    """
    code = 1
    try:
        if error is None:
            code = 0
        elif isinstance(error, SystemExit):
            code = _exit_code(error.code)
        else:
            sys.excepthook(type(error), error, error.__traceback__)
    finally:
        flush_output()
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(code)


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def keep_from_children(end: socket.socket) -> None:
    """Close this socket in each child forked from now on."""
    _ours.add(end)


def _in_child() -> None:
    for end in list(_ours):
        with contextlib.suppress(OSError):
            end.close()
    _ours.clear()


os.register_at_fork(after_in_child=_in_child)
