"""An ordinary PySpark script, without an edit, survives the loss of the leader."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.journeys.harness import stored
from tests.journeys.spark.conftest import Begin, left_behind

pytestmark = pytest.mark.spark

FEW = ("--slots", "1", "-D", "taskmanager.spare-drivers=0")


def test_each_row_that_a_script_appended_stands_once_after_the_loss_of_the_leader(
    begin: Begin, ground: Path
) -> None:
    run = begin("etl_plain.py", "--rows", "112", "out", options=FEW)
    run.running("etl_plain")
    run.grown("appended", 1)
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    adopted = run.wait("takeover")["adopted"]
    run.release()
    code = run.finish()
    left = left_behind(ground)
    assert 0 == code, run.story()

    assert ["etl_plain"] == adopted
    assert "[etl_plain] rows: 112" in run.log.read_text()
    assert "[etl_plain] after stop None" in run.log.read_text()
    assert ({}, []) == (left, stored(ground))
