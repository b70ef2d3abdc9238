"""After an exception nothing of the last attempt lives beside the next one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys.conftest import Start
from tests.journeys.harness import Run, impatient, kill, processes_of
from tests.support.sampling import quickly

AT_ONCE = (
    "-D restart-strategy.type=fixed-delay",
    "-D restart-strategy.fixed-delay.delay=0s",
    "-D restart-strategy.fixed-delay.attempts=3",
)
OPTIONS = [word for option in AT_ONCE for word in option.split(" ", 1)]


def _nothing(run: Run) -> None:
    """Let the exception be all that happens."""


def _kill_the_leader(run: Run) -> None:
    os.kill(run.leader()["pid"], signal.SIGKILL)


def _kill_the_taskmanager(run: Run) -> None:
    os.kill(run.get("/taskmanagers")["taskmanagers"][0]["pid"], signal.SIGKILL)


STORIES = (
    ("fork server stopped", _nothing),
    ("guardian stopped", _kill_the_leader),
    ("guardian stopped", _nothing),
    ("guardian stopped", _kill_the_taskmanager),
)


@pytest.mark.parametrize(("stopped", "meanwhile"), quickly(STORIES, STORIES[1:2]))
def test_no_process_of_the_last_attempt_writes_beside_the_next_one(
    start: Start, nothing_left: Callable[[], None], stopped: str, meanwhile: Callable[[Run], None]
) -> None:
    run = start("beside.py", stopped, options=OPTIONS)
    run.grown("failing.txt", 1)
    meanwhile(run)
    code = run.finish()
    written = run.lines("written.txt")

    assert code == 0, run.story()
    assert "1 writes" in written
    # The death of the TaskManager may find attempt 2 on the way: then attempt 3 begins.
    assert "1 writes" not in written[written.index("2 begins") :]
    nothing_left()


@pytest.mark.long
def test_a_job_runs_again_at_once_after_an_exception(start: Start) -> None:
    run = start("beside.py", "at once", options=OPTIONS)
    failing = run.grown("failing.txt", 1)
    run.until_line("written.txt", lambda line: line == "2 begins")

    assert run.finish() == 0
    assert failing


@pytest.mark.long  # Units: tests/guardian/test_strays.py.
def test_what_no_guardian_is_left_to_end_does_not_write_beside_the_next_attempt(
    place: Path, start: Start
) -> None:
    """Whatever is Understudy's is killed at once, and a program that the job has started is not."""
    options = [*impatient(), "-D", "high-availability.cluster-id=beside"]
    first = start("beside.py", "with a program", options=options)
    first.grown("failing.txt", 1)
    program = int(first.lines("failing.txt")[0])
    kill([first.process.pid, *(processes_of(place).keys() - {program})])
    lives = Path(f"/proc/{program}").exists()
    second = start("beside.py", "with a program", options=options)
    code = second.finish()
    written = second.lines("written.txt")

    assert lives
    assert code == 0, second.story()
    assert "1 writes" not in written[written.index("2 begins") :]
