"""Real processes for a millisecond each: forked from a process that has imported everything.

A `Zygote` forks on request. A child calls one function of a test's helper module with plain
arguments; with ``gate`` the child first waits for `Child.go`, so that a tracer can attach. The
function returns the exit code, a small integer. The test ends each child by its pid.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from understudy.process import guardian

PATIENCE_S = 60.0
"""A child that takes longer hangs; the machine may be very slow."""

ROOT = Path(__file__).parents[2]


@dataclass
class Child:
    """A forked process."""

    pid: int
    _zygote: Zygote
    _handle: int
    _code: int | None = None

    def go(self) -> None:
        """Open the gate."""
        self.signal(signal.SIGUSR1)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the child has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def ended(self, timeout_s: float = 0.0) -> bool:
        """Return whether the child has ended, after a wait of ``timeout_s`` at most."""
        return bool(select.select([self._handle], [], [], timeout_s)[0])

    def stopped(self) -> bool:
        """Wait until the child has stopped itself or ended; return whether it has stopped."""
        until = time.monotonic() + PATIENCE_S
        stat = Path(f"/proc/{self.pid}/stat")
        while not self.ended():
            if stat.read_text().rpartition(")")[2].split()[0] == "T":
                return True
            assert time.monotonic() < until, f"child {self.pid} neither stops nor ends"
            time.sleep(0.0005)
        return False

    def wait(self) -> int:
        """Wait for the end; return the exit code, or the signal as a negative number."""
        if self._code is None:
            assert self.ended(PATIENCE_S), f"child {self.pid} has not ended in {PATIENCE_S:.0f} s"
            self._code = self._zygote.collect(self.pid)
        return self._code

    def close(self) -> None:
        """Kill and reap the child; idempotent."""
        if self._handle >= 0:
            self.signal(signal.SIGKILL)
            self.wait()
            os.close(self._handle)
            self._handle = -1


@dataclass
class Zygote:
    """The process that forks; see the module's docstring."""

    process: subprocess.Popen[str]
    children: list[Child] = field(default_factory=list)

    def fork(self, function: str, *args: Any, gate: bool = False) -> Child:
        """Call ``module:function`` in a new process; JSON carries the arguments."""
        pid = self._ask({"fork": function, "args": args, "gate": gate})["pid"]
        child = Child(pid, self, os.pidfd_open(pid))
        self.children.append(child)
        return child

    def collect(self, pid: int) -> int:
        """Reap an ended child; return its exit code."""
        return int(self._ask({"collect": pid})["code"])

    def close_children(self) -> None:
        """End every child."""
        for child in self.children:
            child.close()
        self.children.clear()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@contextlib.contextmanager
def started(*modules: str) -> Iterator[Zygote]:
    """Start a zygote that imports these modules; it ends with the block."""
    command = [sys.executable, "-m", "tests.support.zygote", *modules]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        zygote = Zygote(process)
        try:
            yield zygote
        finally:
            zygote.close_children()
            assert process.stdin is not None
            process.stdin.close()  # The zygote then ends by itself.


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Fork and reap on request, until the requests end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    for line in iter(requests.readline, ""):
        request = json.loads(line)
        if "fork" in request:
            answers.flush()
            heard, told = os.pipe()
            pid = os.fork()
            if pid == 0:
                _be_child(request, told)
            os.close(told)
            if request["gate"]:
                os.read(heard, 1)  # Returns once the child is at its gate, or has ended.
            os.close(heard)
            answer = {"pid": pid}
        else:
            _, status = os.waitpid(request["collect"], 0)
            answer = {"code": os.waitstatus_to_exitcode(status)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _be_child(request: dict[str, Any], told: int) -> None:
    code = 70
    try:
        guardian.prctl(guardian.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        module, _, name = request["fork"].partition(":")
        function = getattr(importlib.import_module(module), name)
        prepared = function(*request["args"])
        if request["gate"]:
            os.write(told, b"!")
            signal.sigwait({signal.SIGUSR1})
        code = prepared()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    serve(sys.stdin, sys.stdout)
