"""Drivers that have nothing to do, with their JVMs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.scale.idleness import quiet_window, settled
from tests.journeys.spark.conftest import Begin

pytestmark = [pytest.mark.spark, pytest.mark.long]

PERCENT_MAX = 1.0
JVM_PERCENT_MAX = 2.0
"""Spark's own threads (heartbeats, listeners, cleaners) are not ours to stop."""

NOTHING_BUILT = ("-D", "taskmanager.driver.class-data-sharing=false")


def test_idle_drivers_take_no_processor_and_only_the_lease_is_written(
    begin: Begin, ground: Path
) -> None:
    run = begin("idle_in_spark.py", options=("--slots", "1", *NOTHING_BUILT))
    run.running("wait")
    settled(run)
    window = quiet_window(run, PERCENT_MAX, JVM_PERCENT_MAX)
    (ground / "go.fifo").write_text("")
    code = run.finish()

    assert 0 == code, run.story()
    assert {} == window.busy(PERCENT_MAX, JVM_PERCENT_MAX)
    assert set() == window.written
    assert 0 < window.renewals
