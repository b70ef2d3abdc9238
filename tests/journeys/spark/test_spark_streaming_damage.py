"""A streaming job does not begin anew where its checkpoint is not what was recorded: it fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.journeys.harness import Run
from tests.journeys.spark.conftest import Begin

pytestmark = [pytest.mark.spark, pytest.mark.long]

FEW = ("--slots", "1")
DAMAGES = {
    "removed": "there is no such directory .*found: none",
    "rolled back": r"it was rolled back .*found: batch 1\)",
    "swapped": r"it belongs to another query: .*found: batch 3\)",
    "source cut": r"its file 'sources/0/3' is truncated: .*found: batch 3\)",
    "source removed": r"its file 'sources/0/3' .*is missing .*found: batch 3\)",
}


@pytest.fixture(scope="module")
def damaged(begin: Begin, ground: Path) -> Run:
    """Lose the driver and what it has left, again and again."""
    run = begin("damaged.py", options=FEW)
    for name in DAMAGES:
        run.wait("checkpoint-completed", name=name, of="orders", batch_id=3)
        (ground / f"damage-{name}").touch()
        run.wait("job-status", name=name, status="FAILED")
    run.finish()
    return run


@pytest.mark.parametrize("name", DAMAGES)
def test_a_job_whose_checkpoint_is_not_what_was_recorded_fails(damaged: Run, name: str) -> None:
    log = damaged.log.read_text()
    what = rf"{name}: .*streaming query 'orders' cannot go on at .*: {DAMAGES[name]}"

    assert re.search(what, log), log
    assert "recorded: batch 3 of query" in log


@pytest.mark.parametrize("name", DAMAGES)
def test_nothing_is_written_then(damaged: Run, ground: Path, name: str) -> None:
    """Its function was called once: in the attempt before."""
    written = sorted((ground / name / "orders" / "_spark_metadata").glob("[0-9]*"))

    assert [f"{name} 1"] == [
        line for line in damaged.lines("begun.txt") if line.startswith(f"{name} ")
    ]
    assert ["0", "1", "2", "3"] == [path.name for path in written]
