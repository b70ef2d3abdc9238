"""A script that was not converted runs whole as one job, and so does a function by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys.conftest import Start
from tests.journeys.harness import put_app, python

FIRST = "first of unconverted.py unconverted.py"

SAID = "it starts again from the top, and what it appended before stands twice"


@pytest.fixture(autouse=True)
def module_beside(place: Path) -> None:
    """Put the module beside the script that the script imports."""
    put_app(place, "unconverted_rows.py")


@pytest.mark.long  # With Spark: spark/test_spark_unconverted.py.
def test_the_loss_of_the_leader_does_not_touch_it(
    start: Start, nothing_left: Callable[[], None]
) -> None:
    run = start("unconverted.py", "rows.txt", standbys=1)
    run.grown("rows.txt", 1)
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    adopted = run.wait("takeover")["adopted"]
    run.release()
    code = run.finish()

    assert 0 == code
    assert ["unconverted"] == adopted
    assert [FIRST, "second"] == run.lines("rows.txt")
    log = run.log.read_text()
    assert "unconverted.py does not import understudy, so all of it runs as one job" in log
    assert "INFO: it waits" in log
    assert "done" in log
    assert SAID not in log
    nothing_left()


def test_the_loss_of_its_driver_starts_it_again_and_is_said(start: Start) -> None:
    run = start("unconverted.py", "rows.txt")
    run.grown("rows.txt", 1)
    os.kill(run.busy()[1]["driver_pid"], signal.SIGKILL)
    failed = run.wait("attempt-failed")
    run.grown("rows.txt", 2)
    run.release()
    code = run.finish()

    assert 0 == code
    assert SAID == failed["consequence"]
    assert [FIRST, FIRST, "second"] == run.lines("rows.txt")


ENDS = [
    (("--code", "0"), 0, ""),
    (("--code", "3"), 1, "SystemExit: the function called sys.exit(3)"),
    (("--text", "no rows"), 1, "ValueError: no rows"),
    (("--exit", "5"), 1, "SystemExit: the script's process exited with 5 before the script's end"),
]
"""Its arguments, the exit code of the command, and what failed."""


@pytest.mark.long  # Units: tests/driver/test_driver_process.py.
@pytest.mark.parametrize(("arguments", "code", "failure"), ENDS)
def test_how_it_ends_is_how_the_run_ends_and_no_attempt_follows(
    start: Start, arguments: tuple[str, ...], code: int, failure: str
) -> None:
    run = start("unconverted.py", "rows.txt", *arguments)
    actual = run.finish()
    finished = run.of("application-finished")[0]

    assert code == actual
    assert [FIRST] == run.lines("rows.txt")
    assert failure in (finished["failure"] or "")
    assert bool(failure) == bool(finished["failure"])


def test_a_function_runs_as_one_job(start: Start) -> None:
    run = start("run_function.py", "rows.txt", "--wait", standbys=1)
    run.grown("rows.txt", 1)
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    adopted = run.wait("takeover")["adopted"]
    os.kill(run.busy()[1]["driver_pid"], signal.SIGKILL)
    consequence = run.wait("attempt-failed")["consequence"]
    run.release()
    code = run.finish()

    assert 0 == code
    assert (["etl"], SAID) == (adopted, consequence)
    assert "[main] rows: 2" in run.log.read_text()


@pytest.mark.long
def test_an_exception_of_such_a_function_is_not_retried(start: Start) -> None:
    run = start("run_function.py", "wrong.txt")
    code = run.finish()

    assert 1 == code
    assert ["row"] == run.lines("wrong.txt")
    assert "another attempt would repeat" in run.of("attempt-failed")[0]["reason"]


def test_plain_python_runs_such_a_function_too(place: Path) -> None:
    done = python(place, str(put_app(place, "run_function.py")), "rows.txt")

    assert "rows: 1\n" == done.stdout
