"""One process of a control plane: started, frozen, killed and started again on the same data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.daemons import Daemon
from tests.support.zookeeper import launch

START_S = 120.0
"""A component starts in one to three seconds; a busy machine needs longer."""

POLL_S = 0.02


class Component(Daemon):
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
        super().__init__(name, log)
        self._command = command
        self._serves = serves
        self._environment = environment

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
