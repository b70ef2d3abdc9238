"""Values that main computes once survive failovers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.journeys.conftest import Start
from tests.journeys.harness import lines, put_app, python


@pytest.mark.long  # Units: tests/application/test_once.py.
def test_each_execution_of_main_gets_the_values_of_the_first(start: Start) -> None:
    run = start("once.py", standbys=1)
    run.running("job")
    for count in (2, 3):
        os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
        run.grown("values.txt", count)
    run.release()
    code = run.finish()

    assert 0 == code
    assert ["x"] == run.lines("computed.txt")
    assert 1 == len(set(run.lines("values.txt")))
    assert "True" == run.lines("result.txt")[-1]
    assert 2 >= run.log.read_text().count("another value of `pid` than an earlier one did") > 0
    assert "`run`" not in run.log.read_text()


def test_plain_python_computes_values_once_too_and_refuses_what_is_too_large(place: Path) -> None:
    for name in ("go", "large"):
        (place / name).touch()
    python(place, str(put_app(place, "once.py")))

    assert ["True"] == lines(place, "result.txt")
    assert "at most 65,536 are recorded: let a job return" in lines(place, "large.txt")[0]
