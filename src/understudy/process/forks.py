"""What user code forks is a copy of our process, and acts for nobody.

``os.fork``, a ``multiprocessing`` pool, ``pty.fork`` or a ``preexec_fn`` leave a child that holds
our sockets and locks, and that may come back from user code into ours. Only the process that began
an attempt, or an execution of ``main``, stages, reports and records: a child that comes back ends
there, with the exit code that an interpreter gives it, and what is ours is refused or closed in it.
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
    """The one process that may act for something: the one in which this was made."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Say whether this is that process, and not a child that it has forked."""
        return os.getpid() == self._pid

    def demand(self, what: str) -> None:
        """Raise `UsageError` in a child."""
        if not self.is_here:
            raise UsageError(
                f"{what} was called in process {os.getpid()}, which process {self._pid} forked: "
                "only that one may; let the child hand over what it has found, for instance "
                "through a pipe or a multiprocessing.Queue"
            )

    @contextlib.contextmanager
    def user_code(self) -> Iterator[None]:
        """Run user code in the block; a child that leaves the block, in any way, ends there."""
        try:
            yield
        except BaseException as error:
            if not self.is_here:
                leave(error)
            raise
        if not self.is_here:
            leave(None)


def leave(error: BaseException | None) -> NoReturn:
    """End a child as the end of a script does, by what it raised or by itself.

    Nothing that was registered to run at the end of its parent runs in it.
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
    """Close this socket in each child that is forked from here on."""
    _ours.add(end)


def _in_child() -> None:
    for end in list(_ours):
        with contextlib.suppress(OSError):
            end.close()
    _ours.clear()


os.register_at_fork(after_in_child=_in_child)
