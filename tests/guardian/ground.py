"""What the tests of the guardian stand on: a guardian at hand, and what the kernel says."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from understudy.process.processes import GUARDIAN

PATIENCE_S = 30.0
"""How long anything may take before a test gives up; the machine may be busy."""

WORKER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("obedient.py")))


class Guard:
    """A guardian with an obedient worker; this process is the parent."""

    def __init__(self, lock: Path, *orders: str, **spec: Any) -> None:
        self.lock = lock
        self._up, up = socket.socketpair()
        self._talk, talk = socket.socketpair()
        for side in (self._up, self._talk):
            side.settimeout(PATIENCE_S)
        with up, talk:
            described = {
                "name": "test",
                "argv": [*WORKER, *orders],
                "up": up.fileno(),
                "lock": str(lock),
                **spec,
            }
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", GUARDIAN, json.dumps(described)],
                stdin=talk.fileno(),
                stdout=talk.fileno(),
                stderr=subprocess.PIPE,
                pass_fds=(up.fileno(),),
                start_new_session=True,
                text=True,
            )
        self._heard = self._up.makefile("r")
        self._told = self._talk.makefile("r")
        self.guardian_pid = self.process.pid

    def started(self) -> int:
        """Return the worker's pid once it is known."""
        return int(self.hear("started"))

    def hear(self, key: str) -> Any:
        """Return what the guardian says under this key; what it says before is passed over."""
        for line in self._heard:
            message = json.loads(line)
            if key in message:
                return message[key]
        raise AssertionError(f"the guardian ended without a word of {key!r}: {self.said()}")

    def say(self, **message: Any) -> None:
        """Tell the guardian something, as its parent."""
        self._up.sendall(json.dumps(message).encode() + b"\n")

    def hang_up(self) -> None:
        """Be gone, as far as the guardian can tell."""
        self._heard.close()
        self._up.close()

    def order(self, *words: object) -> str:
        """Give the worker an order and return its answer."""
        self.shout(*words)
        return self.answer()

    def shout(self, *words: object) -> None:
        """Give the worker an order that it will not answer."""
        self._talk.sendall(" ".join(map(str, words)).encode() + b"\n")

    def answer(self) -> str:
        """Return the next answer of the worker; empty if it ended without one."""
        return self._told.readline().strip()

    def wait(self) -> int:
        """Wait for the guardian's end and return its exit code."""
        return self.process.wait(PATIENCE_S)

    def said(self) -> str:
        """Return what was printed as errors."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def close(self) -> None:
        """Close the lines to a guardian that has ended."""
        for side in (self._heard, self._up, self._told, self._talk, self.process.stderr):
            if side:
                side.close()


def lock_is_free(lock: Path) -> bool:
    """Say whether nobody holds the lock."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def until(holds: Callable[[], bool]) -> None:
    """Return as soon as something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.0005)


def seen(pid: int) -> bool:
    """Say whether the kernel knows the process, be it dead and not reaped."""
    return Path(f"/proc/{pid}").exists()


def state(pid: int) -> str:
    """Return the state of a process in the kernel's letter; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Say whether a process lives: one that nobody has reaped yet does not."""
    return state(pid) not in {"", "Z", "X"}


def freeze(*pids: int) -> None:
    """Stop processes, and return once they stand still."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: all(state(pid) == "T" for pid in pids))


def thaw(*pids: int) -> None:
    """Let processes go on, those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def murder(*pids: int) -> None:
    """Kill processes, one right after the other."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
