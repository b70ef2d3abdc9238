"""Whole clusters to measure: started in a place of their own, killed, ended, removed.

Times that are compared across processes are wall-clock times of this one host; within a process
they are monotonic.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Series
from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, Run

APPS = Path(__file__).with_name("apps")

ON_SPARK = ("--master", "local[2]")
STEADFAST = (
    *("-D", "restart-strategy.type=fixed-delay"),
    *("-D", "restart-strategy.fixed-delay.attempts=1000000"),
    *("-D", "restart-strategy.fixed-delay.delay=1ms"),
)
"""However often something is killed, it is started again at once."""

SCRATCH = Path(tempfile.gettempdir())
PATIENCE_S = 300.0
SETTLE_S = 0.3
"""After a process says that it is ready: it must not be measured how it still starts."""

MAIN_PROCESS = "-m understudy.application.application_process"


@contextlib.contextmanager
def cluster(
    app: str, *arguments: object, options: tuple[str, ...] = (), spark: bool = False
) -> Iterator[Run]:
    """Run an application from ``apps``; whatever is left of it at the end is killed."""
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as name:
        place = Path(name)
        script = shutil.copy(APPS / app, place / app)
        kind = ON_SPARK if spark else SESSION_LESS
        line = [*COMMAND, "run-application", "--json", *kind, *STEADFAST, *options, str(script)]
        run = Run([*line, *map(str, arguments)], place, place / "stderr.log")
        try:
            yield run
        finally:
            harness.end(run)


def let_begin(run: Run) -> None:
    """Let the application go on once all drivers are warm: their starts would take its cores."""

    def is_warm(answer: Any) -> bool:
        drivers = [
            driver
            for one in answer["taskmanagers"]
            for driver in (*one["slots"], *one["spare_drivers"])
        ]
        return bool(drivers) and all(driver["state"] == "warm" for driver in drivers)

    run.until("/taskmanagers", is_warm)
    time.sleep(SETTLE_S)
    run.release()


def end(run: Run) -> None:
    """Let the application come to its end, which must be a good one."""
    run.release()
    code = run.finish(PATIENCE_S)
    assert code == 0, run.story()


def noted(run: Run, name: str) -> list[dict[str, Any]]:
    """Return what the application has noted in a file of JSON lines."""
    return [json.loads(line) for line in run.lines(name)]


def next_note(run: Run, name: str, seen: int) -> dict[str, Any]:
    """Wait for the note after so many."""
    found: dict[str, Any] = json.loads(run.grown(name, seen + 1, PATIENCE_S)[seen])
    return found


# --- deaths ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Takeover:
    """One death, and what was when after it, in seconds."""

    elected: float | None
    """Until somebody led; None where the leader stayed."""
    over: float | None
    """Until every job was adopted or known to be finished."""
    reached: float
    """Until ``main``, executed again, had come to where it was."""


Kill = Callable[[dict[str, Any]], None]
"""Kills what belongs to a leader, who is described as in ``/ha/status``."""


def kill_leader(leader: dict[str, Any]) -> None:
    """Kill the leader's process; its guardian is there to tell."""
    os.kill(leader["pid"], signal.SIGKILL)


def stop_leader(leader: dict[str, Any]) -> None:
    """Tell the leader to close."""
    os.kill(leader["pid"], signal.SIGTERM)


def kill_guardian_too(leader: dict[str, Any]) -> None:
    """Kill the leader with its guardian: nobody is left to tell."""
    harness.kill([leader["guardian_pid"], leader["pid"]])


def take_over(run: Run, kill: Kill) -> Takeover:
    """Let a leader die once a standby is ready; the application runs ``jobs.py``."""
    leader = run.standby_is_ready()["leader"]
    seen = len(run.lines("reached.jsonl"))
    leaders, takeovers = len(run.of("leader")), len(run.of("takeover"))
    time.sleep(SETTLE_S)
    killed = time.time()
    kill(leader)
    # Who is told of first is a matter of microseconds.
    elected = _next_event(run, "leader", leaders)["time"]
    over = _next_event(run, "takeover", takeovers)["time"]
    reached = next_note(run, "reached.jsonl", seen)["time"]
    return Takeover(elected - killed, over - killed, reached - killed)


def kill_main(run: Run, standbys: int = 1) -> Takeover:
    """Let the application process die once another one is warm."""
    _until(run, lambda: len(_mains(run)) >= 2 + standbys)
    seen = len(run.lines("reached.jsonl"))
    time.sleep(SETTLE_S)
    killed = time.time()
    os.kill(run.main_pid(), signal.SIGKILL)
    reached = next_note(run, "reached.jsonl", seen)["time"]
    return Takeover(None, None, reached - killed)


def series(takeovers: list[Takeover], name: str, what: str) -> Series:
    """Return one of a takeover's times as a series."""
    return Series(name, tuple(getattr(each, what) for each in takeovers))


def _next_event(run: Run, kind: str, seen: int) -> dict[str, Any]:
    """Wait for the event of a kind after so many."""
    _until(run, lambda: len(run.of(kind)) > seen)
    return run.of(kind)[seen]


def _mains(run: Run) -> list[int]:
    return [pid for pid, line in harness.processes_of(run.place).items() if MAIN_PROCESS in line]


def _until(run: Run, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, run.story()
        time.sleep(0.02)
