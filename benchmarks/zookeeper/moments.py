"""What is looked at when a leader dies: when the next one answers, and how the work goes on.

All three systems run a job that notes its steps, numbered, with the wall clock of this one host;
what a system does again after a failover has numbers that were there before.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Series
from benchmarks.zookeeper import processes

AFTER_S = 1.0
"""So long after the job runs again its steps are looked at, too."""


@dataclass(frozen=True)
class Step:
    """One step of the job in flight."""

    time: float
    step: int
    attempt: str
    """Differs where another execution of the job has done it."""


@dataclass(frozen=True)
class Failover:
    """One death, and what was when after it, in seconds."""

    answers: float
    """Until the new leader answered a client's question about the job."""

    runs: float
    """Until it said that the job runs: adopted, or deployed again."""

    pause: float
    """The longest time between two steps, from just before the death until all went on."""

    again: int
    """How many steps were done once more."""

    anew: bool
    """Whether another execution of the job did the steps after it."""


def watch(look: Callable[[], tuple[bool, bool]], killed: float) -> tuple[float, float]:
    """Ask every 10 ms until the new leader has answered and the job runs; return both times.

    ``look`` says whether it answers, and whether the job runs, and is asked over HTTP.
    """
    answers = None
    deadline = time.monotonic() + processes.PATIENCE_S
    while time.monotonic() < deadline:
        does_answer, runs = look()
        now = time.time() - killed
        if does_answer and answers is None:
            answers = now
        if runs:
            return now if answers is None else answers, now
        time.sleep(processes.POLL_S)
    raise AssertionError("nobody took over")


def judge(notes: Path, killed: float, answers: float, runs: float) -> Failover:
    """Wait until the work has gone on for a while, and tell how it went."""
    processes.until("steps", lambda: steps_of(notes)[-1].time > killed + runs + AFTER_S)
    steps = steps_of(notes)
    near = [one.time for one in steps if one.time > killed - AFTER_S]
    pause = max(later - earlier for earlier, later in itertools.pairwise(near))
    before = next(one.attempt for one in reversed(steps) if one.time <= killed)
    anew = steps[-1].attempt != before
    return Failover(answers, runs, pause, _again(steps, killed), anew)


def _again(steps: list[Step], killed: float) -> int:
    """Return how many steps are done once more; those of the last execution may be yet to come."""
    last = steps[-1].attempt
    highest = max((one.step for one in steps if one.attempt != last), default=0)
    first = min(one.step for one in steps if one.attempt == last)
    after = [one.step for one in steps if one.time > killed]
    return max(0, highest - first + 1) + len(after) - len(set(after))


def steps_of(notes: Path) -> list[Step]:
    """Return the steps noted so far, without a last line that is not whole."""
    lines = notes.read_text().split("\n")[:-1]
    found = map(json.loads, lines)
    return [Step(one["time"], one["step"], str(one["attempt"])) for one in found]


def goes(notes: Path) -> bool:
    """Say whether the work has begun."""
    return notes.exists() and notes.read_text().count("\n") > 5


def series(name: str, failovers: list[Failover], what: str) -> Series:
    """Return one of a failover's figures as a series."""
    return Series(name, tuple(getattr(each, what) for each in failovers))
