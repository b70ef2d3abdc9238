"""A cluster that has nothing to do takes no processor, and writes the lease only."""

from __future__ import annotations

from pathlib import Path

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.scale.idleness import quiet_window, settled

PERCENT_MAX = 1.0


def test_an_idle_cluster_takes_no_processor_and_writes_the_lease_only(
    start: Start, place: Path
) -> None:
    run = start("idle.py", standbys=1)
    run.running("wait")
    settled(run)
    window = quiet_window(run, PERCENT_MAX)
    (place / "go.fifo").write_text("")
    code = run.finish()

    assert 0 == code, run.story()
    assert {} == window.busy(PERCENT_MAX), window.percent
    assert set() == window.written
    assert bool(harness.quorum) != bool(window.renewals)  # A lease is renewed where it lies.
