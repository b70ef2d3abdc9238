"""A process of a test that can be frozen, killed and started again: a server of whatever kind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

END_S = 60.0
SIGNAL_S = 5.0
POLL_S = 0.001
LINES_SHOWN = 20


class Servers:
    """Several processes as a context: started on entry, killed on exit or if the start fails."""

    def start(self) -> Self:
        """Start all of them; return once they serve."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill all of them. Idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(self, *_: object) -> None:
        self.kill()


class Daemon:
    """A process with a log; who starts it says how, by `_process`."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        """Where restarts append to."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        """Return whether the process exists, frozen or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return the process id."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    def freeze(self) -> None:
        """Stop the process (SIGSTOP); its connections stay open and silent."""
        os.kill(self.pid, signal.SIGSTOP)
        self._await_state(lambda state: state in "Tt")

    def thaw(self) -> None:
        """Continue the process (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)
        self._await_state(lambda state: state not in "Tt")

    def kill(self) -> None:
        """Kill the process (SIGKILL), frozen or not; return when it is dead. Idempotent."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Terminate the process (SIGTERM); return when it has ended. Idempotent."""
        self._end(signal.SIGTERM)

    def last_lines(self) -> str:
        """Return the end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LINES_SHOWN:])

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(END_S)
        finally:
            self._process.kill()
            self._process.wait(END_S)
            self._process = None

    def _await_state(self, wanted: Callable[[str], bool]) -> None:
        stat = Path(f"/proc/{self.pid}/stat")
        until = time.monotonic() + SIGNAL_S
        while not wanted(stat.read_text().rpartition(")")[2].split()[0]):
            assert time.monotonic() < until, f"{self.name}: the signal has no effect"
            time.sleep(POLL_S)
