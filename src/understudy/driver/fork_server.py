"""Forking processes from a clean one: PySpark is imported, and there are no threads.

A driver has threads, and connections to its JVM and its TaskManager: what is forked from it might
inherit a lock that nobody releases, and answers that are not meant for it. So a driver forks one
process at its beginning, before any of that; it stays as it was, has one thread, does nothing but
fork and reap, and says when each child has ended. It dies with its driver, its children with it.

What is registered by `forks.keep_from_children` is closed in it, and in each child.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from understudy.errors import UnreachableError
from understudy.process import forks
from understudy.process.guardian import PR_SET_PDEATHSIG, prctl
from understudy.process.printed import flush_output

MESSAGE_BYTES_MAX = 4096

_TITLE_FILE = "/proc/self/comm"
SERVER_TITLE = "understudy-fork"
CHILD_TITLE = "understudy-job"
"""How the processes are called in lists; at most 15 characters."""


class Child:
    """One process, as its driver sees it."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        """The driver's end of a socket pair whose other end the process has."""
        self.pid = 0
        self.ended = threading.Event()
        self.status = 0
        """Its status as `os.waitpid` gives it, once it has ended."""

    def kill(self) -> None:
        """Kill the process, unless it has ended; `ended` is set once the process is reaped."""
        if self.pid and not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class ForkServer:
    """The driver's end: asks for processes, and hears of their ends."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self.pid = pid
        self._control = control
        self._turn = threading.Lock()
        self._asked: list[Child] = []
        """Whose pid is not known yet, in the order in which they were asked for."""
        self._children: dict[int, Child] = {}

    @staticmethod
    def start(run: Callable[[socket.socket], None], beat_s: float) -> ForkServer:
        """Fork the server; call it while this process has one thread.

        ``run`` is called in the main thread of each child, with its end of a socket pair.
        """
        if threading.active_count() > 1:
            raise RuntimeError(f"threads run already: {threading.enumerate()}")
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        forks.keep_from_children(mine)
        flush_output()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            theirs.close()
            return ForkServer(mine, pid)
        try:
            forks.keep_from_children(theirs)
            _Server(theirs, run).serve(parent, beat_s)
        finally:
            os._exit(1)

    def watch(self, heard: Callable[[], None], lost: Callable[[], None]) -> None:
        """Hear of ends, in a thread, from now on.

        ``heard`` is called with each sign of life, ``lost`` when the server is gone.
        """

        def receive() -> None:
            while data := self._receive():
                heard()
                self._take_in(json.loads(data))
            lost()

        threading.Thread(target=receive, name="understudy-forks", daemon=True).start()

    def fork(self) -> Child:
        """Ask for a process; it is there soon, and what is sent to it meanwhile waits for it."""
        mine, theirs = socket.socketpair()
        forks.keep_from_children(mine)
        child = Child(mine)
        with theirs, self._turn:
            self._asked.append(child)
            try:
                socket.send_fds(self._control, [b"fork"], [theirs.fileno()])
            except OSError as error:
                raise UnreachableError(f"the fork server is gone: {error}") from error
        return child

    def end_like_it(self) -> NoReturn:
        """End this process as the server has ended."""
        _, status = os.waitpid(self.pid, 0)
        end_like(status)

    def _receive(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._control.recv(MESSAGE_BYTES_MAX)
        return b""

    def _take_in(self, message: dict[str, int]) -> None:
        if "forked" in message:
            with self._turn:
                child = self._asked.pop(0)
            child.pid = message["forked"]
            self._children[child.pid] = child
        elif "ended" in message:
            child = self._children.pop(message["ended"])
            child.status = message["status"]
            child.ended.set()
            # What it has sent is still read; who else has its end of the line, is not waited for.
            with contextlib.suppress(OSError):
                child.line.shutdown(socket.SHUT_RD)


class _Server:
    """The server's own process."""

    def __init__(self, control: socket.socket, run: Callable[[socket.socket], None]) -> None:
        self._control = control
        self._run = run
        self._pid = os.getpid()
        self._wakeup = os.pipe()

    def serve(self, parent: int, beat_s: float) -> NoReturn:
        """Fork and reap, until the driver is gone."""
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        _title(SERVER_TITLE)
        reader, writer = self._wakeup
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        gc.collect()
        gc.freeze()  # So that a collection in a child does not copy what both could share.
        while True:
            control = self._control.fileno()
            ready, _, _ = select.select([control, reader], [], [], beat_s)
            if reader in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(reader, MESSAGE_BYTES_MAX)
            self._reap()
            if control in ready:
                self._fork()
            if not ready:
                self._report({"beat": 1})

    def _fork(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES_MAX, 1)
        if not data:
            os._exit(0)
        line = socket.socket(fileno=descriptors[0])
        line.set_inheritable(False)  # What is received is inherited by programs that a job starts.
        pid = os.fork()
        if pid == 0:
            self._become_child(line)
        line.close()
        self._report({"forked": pid})

    def _become_child(self, line: socket.socket) -> NoReturn:
        code = 1
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == self._pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in self._wakeup:
                    os.close(descriptor)
                _title(CHILD_TITLE)
                gc.unfreeze()
                forks.keep_from_children(line)
                self._run(line)
                code = 0
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            flush_output()
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._report({"ended": pid, "status": status})

    def _report(self, message: dict[str, int]) -> None:
        try:
            self._control.sendall(json.dumps(message).encode())
        except OSError:
            os._exit(0)  # The driver is gone.


def _title(title: str) -> None:
    with contextlib.suppress(OSError), open(_TITLE_FILE, "w", encoding="ascii") as file:
        file.write(title)


def end_like(status: int) -> NoReturn:
    """End this process as another one has ended: by the same exit code, or the same signal."""
    flush_output()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        time.sleep(1.0)  # A signal that ends nobody here: then by its number.
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))
