"""Values of 100 MB, plans of 50 MB, twenty jobs of one name: what works, and what is refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import stored

WAY_OUT = "job.result.max-size is 262144: return less, and put data into files or tables"
REFUSED_WITHIN_S = 45.0
"""It takes about four on a free machine; what counts is that it does not go on for ever."""


@pytest.mark.long
def test_a_value_beyond_the_limit_is_refused_at_once_with_its_size_and_a_way_out(
    start: Start, place: Path
) -> None:
    run = start("large.py", "values")
    code = run.finish()
    printed = run.log.read_text()
    refused = {event["name"]: event for event in run.of("job-status", status="FAILED")}
    began = {event["name"]: event["time"] for event in run.of("job-status", status="RUNNING")}

    assert 0 == code
    assert "returned just fits 262142" in printed
    for name, size in (
        ("just too large", "262145"),
        ("100 MB of text", "at least 100000002"),
        ("100 MB of numbers", "at least 12000001"),
    ):
        assert f"InvalidValueError: $: the value is {size} bytes of JSON, {WAY_OUT}" in printed
        assert 1 == refused[name]["attempt"], "it would be refused again"
        assert refused[name]["time"] - began[name] < REFUSED_WITHIN_S
    assert [] == stored(place)


@pytest.mark.long
def test_a_value_below_a_raised_limit_arrives(start: Start, place: Path) -> None:
    run = start("large.py", "raised", options=("-D", "job.result.max-size=32 mb"))
    code = run.finish()

    assert 0 == code, run.story()
    assert "returned 30000000" in run.log.read_text()
    assert [] == stored(place)


@pytest.mark.long  # Units: tests/ha/test_execution_plan_store.py.
def test_a_plan_of_50_mb_survives_its_driver_and_the_leader(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    run = start("large.py", "plan", standbys=1)
    run.running("digest")
    run.grown("jobs.txt", 1)
    harness.kill([run.busy()[1]["driver_pid"]])
    run.grown("jobs.txt", 2)
    run.standby_is_ready()
    os.kill(run.leader()["pid"], signal.SIGKILL)
    takeover = run.wait("takeover")
    run.release()
    code = run.finish()

    assert 0 == code, run.story()
    assert ["digest"] == takeover["adopted"]
    assert ["digest 1", "digest 2"] == run.lines("jobs.txt")
    assert "same True" in run.log.read_text()
    assert [] == stored(place)
    nothing_left()


@pytest.mark.long  # Units: tests/core/test_matching.py.
@pytest.mark.parametrize(
    ("how", "slots", "running"),
    [("sequence", "1", range(11)), ("at-once", "4", range(14))],
)
def test_twenty_jobs_of_one_name_are_told_apart_by_their_order(
    start: Start, place: Path, how: str, slots: str, running: range
) -> None:
    run = start("large.py", how, options=("--slots", slots), standbys=1)
    run.grown("jobs.txt", len(running))
    run.standby_is_ready()
    os.kill(run.leader()["pid"], signal.SIGKILL)
    run.wait("takeover")
    run.release()
    code = run.finish()
    printed = run.log.read_text()
    executions = printed.count("two jobs are named 'same'")

    assert 0 == code, run.story()
    assert [f"{n} 1" for n in range(20)] == sorted(
        run.lines("jobs.txt"), key=lambda line: int(line.split()[0])
    )
    assert f"values {list(range(20))}" in printed
    assert 2 == executions, "warned of once in each execution of main"
    assert [] == stored(place)
