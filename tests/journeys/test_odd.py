"""What no pipeline should do, and some do: it is told, and nothing hangs or is tried for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.journeys.conftest import Start
from tests.journeys.harness import environment, put_app, stored
from tests.support.sampling import quickly

ONCE = ("-D", "restart-strategy.type=none")

SAID = [
    ("not-utf8", "failed: ValueError"),
    ("silent", "failed: Silent"),
    ("nested", "failed: understudy.errors.SubmissionError"),
    (
        "captured",
        "job 'odd' cannot be pickled: `with_environment` uses the global `env`, an Environment: ",
    ),
    ("fork", "refused in the child: only the process of main submits jobs"),
    (
        "not-callable",
        "refused: execute takes a function, but got 5 (int): write execute(f, …), not",
    ),
]


@pytest.mark.parametrize(("how", "expected"), quickly(SAID, SAID[2:5:2]))
def test_it_is_told_in_a_cluster(start: Start, place: Path, how: str, expected: str) -> None:
    run = start("odd.py", how, options=ONCE)
    code = run.finish()
    printed = run.log.read_text()

    assert 0 == code
    assert expected in printed
    assert [] == stored(place)


@pytest.mark.parametrize(("how", "expected"), SAID)
def test_it_is_told_by_plain_python_alike(place: Path, how: str, expected: str) -> None:
    app = put_app(place, "odd.py")
    done = subprocess.run(
        [sys.executable, str(app), how],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    assert expected in done.stdout


@pytest.mark.long
def test_the_message_of_an_exit_is_printed(start: Start) -> None:
    run = start("odd.py", "exit-message")
    code = run.finish()

    assert 1 == code
    assert "there is nothing to load" in run.log.read_text()


@pytest.mark.long  # Units: tests/guardian/test_strays.py.
@pytest.mark.parametrize("pause_s", [0.0, 0.01, 0.03])
def test_a_guardian_that_was_just_started_is_not_taken_for_a_stray(
    start: Start, pause_s: float
) -> None:
    run = start("three.py", standbys=1)
    run.running("second job")
    run.standby_is_ready()
    leader = run.of("leader")[-1]["id"]
    standby = next(e for e in run.of("jobmanager-started") if e["id"] != leader)
    taskmanager = run.of("taskmanager-started")[-1]
    os.kill(standby["pid"], signal.SIGKILL)
    # The standby is being replaced just when the launcher clears away behind the TaskManager.
    time.sleep(pause_s)
    os.kill(taskmanager["guardian_pid"], signal.SIGKILL)
    run.release()
    code = run.finish()

    assert 0 == code
    assert 1 == run.log.read_text().count("its guardian was killed")
