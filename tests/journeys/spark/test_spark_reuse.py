"""`taskmanager.driver.reuse`: what a job meets of the JVM in which the job before left something.

By default such a driver is retired: see `test_spark_sessions`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.harness import Run
from tests.journeys.spark.conftest import Begin

pytestmark = [pytest.mark.spark, pytest.mark.long]  # Units: tests/driver/test_driver_process.py.

ALONE = ("--jobmanagers", "1", "--slots", "1", "-D", "taskmanager.spare-drivers=0")


def two_jobs(begin: Begin, place: Path, reuse: str) -> tuple[Run, dict[str, Any], dict[str, Any]]:
    """Run two jobs in one slot; return the run, and what each job has seen."""
    options = (*ALONE, "-D", f"taskmanager.driver.reuse={reuse}")
    run = begin("reused.py", options=options, place=place)
    assert 0 == run.finish(), run.story()
    first, second = json.loads((place / "seen.json").read_text())
    return run, first, second


def test_always_the_next_job_meets_what_the_one_before_left_and_the_log_tells_it(
    begin: Begin, tmp_path: Path
) -> None:
    run, first, second = two_jobs(begin, tmp_path, "always")
    log = run.log.read_text()

    assert (first["jvm"], first["context"]) == (second["jvm"], second["context"])
    assert (None, "first") == (first["found"], second["found"])
    assert "continues: ['it changed system properties of the JVM: left.by.a.job']" in log
    assert "was retired" not in str(run.of("driver-ended"))


def test_never_the_next_job_has_a_jvm_of_its_own(begin: Begin, tmp_path: Path) -> None:
    _, first, second = two_jobs(begin, tmp_path, "never")

    assert first["jvm"] != second["jvm"]
    assert (None, None) == (first["found"], second["found"])
