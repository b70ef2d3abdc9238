"""One process of a control plane: started, frozen, killed and started again on the same data."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.zookeeper import launch

START_S = 120.0
"""A component starts in one to three seconds; a busy machine needs longer."""

STOP_S = 20.0
"""The API server ends its open watches before it ends, in about 3 s."""

POLL_S = 0.02
LINES_SHOWN = 20


class Component:
    """A process that ends with this one, whatever happens; nothing runs before `start`.

    ``serves`` says whether it does its work.
    """

    def __init__(
        self,
        name: str,
        log: Path,
        command: Sequence[str],
        serves: Callable[[], bool] = lambda: True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._serves = serves
        self._environment = environment
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

    def start(self, wait: bool = True) -> None:
        """Start or restart the process; return when it serves, or at once without ``wait``."""
        assert not self.runs, f"{self.name} runs"
        with self.log.open("ab") as log:
            self._process = launch(self._command, log.fileno(), self._environment)
        if wait:
            self.await_serving()

    def await_serving(self, timeout_s: float = START_S) -> None:
        """Wait until the component serves; otherwise raise ``AssertionError`` with its log."""
        until = time.monotonic() + timeout_s
        while not self._serves():
            assert self.runs, f"{self.name} has ended:\n{self.last_lines()}"
            assert time.monotonic() < until, f"{self.name} does not serve:\n{self.last_lines()}"
            time.sleep(POLL_S)

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
        """Return the end of the log, which restarts append to."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LINES_SHOWN:])

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_S)
        finally:
            self._process.kill()
            self._process.wait(STOP_S)
            self._process = None

    def _await_state(self, wanted: Callable[[str], bool]) -> None:
        stat = Path(f"/proc/{self.pid}/stat")
        until = time.monotonic() + STOP_S
        while not wanted(stat.read_text().rpartition(")")[2].split()[0]):
            assert time.monotonic() < until, f"{self.name}: the signal has no effect"
            time.sleep(POLL_S)
