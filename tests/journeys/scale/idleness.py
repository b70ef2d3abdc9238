"""What a cluster costs that has nothing to do: processor time, and what it writes."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.journeys import harness
from tests.journeys.harness import Run

WINDOW_S = 8.0
WINDOWS_MAX = 8
"""A JVM goes on compiling for a while after its last query; then it is idle too."""

TICKS = os.sysconf("SC_CLK_TCK")
LEASE = "register/leader"

Marks = dict[str, tuple[int, int, int]]


@dataclass(frozen=True)
class Window:
    """What was seen in some seconds of idleness."""

    percent: dict[str, float]
    """Processor time of each process, in percent of one core."""
    written: set[str]
    """What was changed in the cluster's files, but for the lease."""
    renewals: int
    """Whether the lease was written, which shows that the cluster was there."""

    def busy(self, percent_max: float, jvm_percent_max: float = 0.0) -> dict[str, float]:
        """Return the processes that took more."""
        return {
            name: part
            for name, part in self.percent.items()
            if part > (jvm_percent_max if "java" in name else percent_max)
        }


def settled(run: Run) -> None:
    """Wait until nobody starts any more: a standby is ready, all drivers are warm or busy."""

    def all_warm(answer: Any) -> bool:
        [one] = answer["taskmanagers"]
        drivers = [*one["slots"], *one["spare_drivers"]]
        return bool(one["spare_drivers"]) and {"warm", "busy"} >= {
            driver["state"] for driver in drivers
        }

    run.standby_is_ready()
    run.until("/taskmanagers", all_warm)


def quiet_window(run: Run, percent_max: float, jvm_percent_max: float = 0.0) -> Window:
    """Return the first window in which no process took more or wrote anything, or the last one."""
    for _ in range(WINDOWS_MAX):
        window = _window(run)
        if not window.busy(percent_max, jvm_percent_max) and not window.written:
            break
    return window


def _window(run: Run) -> Window:
    state = run.place / "state"
    began, ticks, marks = time.monotonic(), _ticks(run), _marks(state)
    time.sleep(WINDOW_S)
    seconds, ticks_after, marks_after = time.monotonic() - began, _ticks(run), _marks(state)
    changed = {
        path
        for path in marks.keys() | marks_after.keys()
        if marks.get(path) != marks_after.get(path)
    }
    lease = {path for path in changed if LEASE in path}
    percent = {
        name: 100 * (ticks_after[name] - ticks[name]) / TICKS / seconds
        for name in ticks
        if name in ticks_after
    }
    return Window(percent, changed - lease, len(lease))


def _ticks(run: Run) -> dict[str, int]:
    """Return the processor time that each process has taken, its threads included."""
    found = {}
    for pid, line in {run.process.pid: "launcher", **harness.processes_of(run.place)}.items():
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            found[f"{pid} {_kind(line)}"] = int(stat[11]) + int(stat[12])
    return found


def _kind(line: str) -> str:
    """Return what a process is, by its command line."""
    kinds = (
        *("launcher", "/java ", "guardian.py", "application_process", "runtime.driver_process"),
        *("jobmanager_process", "taskmanager_process"),
    )
    return next((kind.strip("/ ") for kind in kinds if kind in line), line)


def _marks(directory: Path) -> Marks:
    """Return what changes with each write: a name that comes or goes changes its directory."""
    found: Marks = {}
    for path in (directory, *directory.rglob("*")):
        with contextlib.suppress(OSError):
            seen = path.stat()
            name = str(path.relative_to(directory))
            found[name] = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
    return found
