"""Random signals to random processes of one run; each is told, and drawn from a seed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.journeys import harness
from tests.journeys.harness import Run

DEADLY = (
    *[signal.SIGKILL] * 6,
    *[signal.SIGTERM] * 2,
    *(signal.SIGINT, signal.SIGSEGV, signal.SIGABRT, signal.SIGHUP, signal.SIGQUIT),
)
PAUSES_S = (0.2, 1.5, 6.5, 9.0, 14.0)
"""Around the timeouts of `harness.IMPATIENT`."""


def kind_of(pid: int, lines: dict[int, str]) -> str:
    """Return what a process is to be called; '' for the command itself."""
    line = lines[pid]
    with contextlib.suppress(OSError):
        title = Path(f"/proc/{pid}/comm").read_text().strip()
        if title.startswith("understudy-"):
            return {"fork": "fork server", "job": "job"}[title.partition("-")[2]]
    if "guardian.py" in line:
        return "guardian of " + line.partition('"name": "')[2].partition("-")[0]
    for word, kind in (
        ("jobmanager_process", "jobmanager"),
        ("taskmanager_process", "taskmanager"),
        ("application_process", "main"),
        ("understudy.driver.driver_process", "driver"),
    ):
        if word in line:
            return kind
    if "java" in line.split(" ", 1)[0]:
        return "jvm"
    return "python worker" if "pyspark" in line else ""


@dataclass
class Signals:
    """Strikes the processes of a run, one blow after the other."""

    run: Run
    seed: int
    told: list[str] = field(default_factory=list)
    _stopped: list[tuple[float, list[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw from the seed."""
        self._chance = random.Random(self.seed)
        self._began = time.monotonic()

    def strike(self) -> None:
        """Send one signal, or stop one process for a while."""
        kind, pid = self._victim()
        if pid is None:
            return
        draw = self._chance.random()
        if draw < 0.65:
            self._send(kind, pid, self._chance.choice(DEADLY))
            return
        pids = [pid]
        if draw > 0.9 and "guardian" not in kind:
            pids.append(harness.parent(pid))
        lasts_s = self._chance.choice(PAUSES_S) * self._chance.uniform(0.5, 1.3)
        self._tell(f"{kind} {pids} stopped for {lasts_s:.1f} s")
        for one in pids:
            _kill(one, signal.SIGSTOP)
        self._stopped.append((time.monotonic() + lasts_s, pids))

    def go_on(self, *, everything: bool = False) -> None:
        """Let what was stopped long enough go on."""
        now = time.monotonic()
        for one in list(self._stopped):
            if everything or one[0] <= now:
                self._stopped.remove(one)
                self._tell(f"{one[1]} go on")
                for pid in one[1]:
                    _kill(pid, signal.SIGCONT)

    def _victim(self) -> tuple[str, int | None]:
        found: dict[str, list[int]] = {}
        lines = harness.processes_of(self.run.place)
        for pid in sorted(lines):
            if kind := kind_of(pid, lines):
                found.setdefault(kind, []).append(pid)
        if not found:
            return "", None
        kind = self._chance.choice(sorted(found))
        return kind, self._chance.choice(found[kind])

    def _send(self, kind: str, pid: int, number: signal.Signals) -> None:
        self._tell(f"{kind} {pid} gets {number.name}")
        _kill(pid, number)

    def _tell(self, text: str) -> None:
        self.told.append(f"{time.monotonic():12.3f}  {text}")


def _kill(pid: int, number: signal.Signals) -> None:
    if pid > 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
