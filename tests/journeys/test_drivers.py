"""Drivers and TaskManagers are lost, in every way; the job runs again, never twice at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import LASTING, Run, impatient
from tests.support.sampling import quickly

KILLS = {
    "the driver": ("driver_pid",),
    "its guardian": ("guardian_pid",),
    "both": ("guardian_pid", "driver_pid"),
}
TASKMANAGERS = [["pid"], ["pid", "guardian_pid"]]
LOST = (("pid",), ("guardian_pid", "pid"))
DRIVERS = [["driver_pid"], ["driver_pid", "guardian_pid"]]
"""What is frozen."""


def _end(run: Run, attempts: int) -> None:
    """Let the run end, and check that the job ran as often as it should, never twice at once."""
    run.release()
    code = run.finish()
    expected = ["first 1", *[f"long {n}" for n in range(1, attempts + 1)], "third 1"]

    assert code == 0, run.story()
    assert expected == run.lines("jobs.txt")


@pytest.mark.long  # test_unconverted.py has a driver that is killed.
@pytest.mark.parametrize("whom", KILLS)
def test_a_job_runs_again_at_once_when_its_driver_is_killed(
    start: Start, nothing_left: Callable[[], None], whom: str
) -> None:
    run = start("three.py")
    run.at_work()
    for attempt in (1, 2, 3):
        slot = run.busy()[1]
        harness.kill(slot[key] for key in KILLS[whom])
        run.grown("jobs.txt", attempt + 2)

    _end(run, attempts=4)
    nothing_left()


@pytest.mark.parametrize("whom", quickly(KILLS, ["both"]))
def test_what_a_killed_driver_had_forked_is_dead_before_the_job_runs_again(
    start: Start, nothing_left: Callable[[], None], whom: str
) -> None:
    run = start("three.py", "fork")
    run.at_work()
    slot = run.busy()[1]
    run.grown("forked.txt", 1)
    harness.kill(slot[key] for key in KILLS[whom])
    run.grown("jobs.txt", 3)
    forked = int(run.lines("forked.txt")[0])

    assert forked not in harness.processes_of(run.place)

    _end(run, attempts=2)
    nothing_left()


@pytest.mark.parametrize("keys", quickly([(one,) for one in LOST], [(LOST[-1],)]))
def test_a_job_runs_again_on_the_next_taskmanager(
    start: Start, nothing_left: Callable[[], None], keys: tuple[str, ...]
) -> None:
    run = start("three.py", "fork")
    run.at_work()
    taskmanager = run.busy()[0]
    harness.kill(taskmanager[key] for key in keys)
    run.grown("jobs.txt", 3)

    _end(run, attempts=2)
    nothing_left()


@pytest.mark.long  # With a JVM: spark/test_spark_streaming.py.
@pytest.mark.parametrize("keys", DRIVERS)
def test_a_frozen_driver_is_ended_and_the_job_runs_again(
    start: Start, keys: tuple[str, ...]
) -> None:
    run = start("three.py", options=impatient())
    run.at_work()
    slot = run.busy()[1]
    _freeze(slot, keys)
    run.grown("jobs.txt", 3)
    _thaw(slot, keys)

    _end(run, attempts=2)


@pytest.mark.parametrize("keys", quickly(TASKMANAGERS, TASKMANAGERS[-1:]))
def test_a_frozen_taskmanager_loses_its_drivers_and_the_job_runs_again(
    start: Start, nothing_left: Callable[[], None], keys: tuple[str, ...]
) -> None:
    run = start("three.py", options=impatient())
    run.at_work()
    taskmanager = run.busy()[0]
    _freeze(taskmanager, keys)
    run.grown("jobs.txt", 3)
    _thaw(taskmanager, keys)
    time.sleep(1.0)

    _end(run, attempts=2)
    nothing_left()


@pytest.mark.long
def test_a_taskmanager_that_was_frozen_for_a_moment_keeps_its_drivers(start: Start) -> None:
    run = start("three.py", options=[*impatient(), *LASTING])
    run.at_work()
    taskmanager = run.busy()[0]
    _freeze(taskmanager, ("pid", "guardian_pid"))
    time.sleep(2.0)
    _thaw(taskmanager, ("pid", "guardian_pid"))
    time.sleep(2.0)  # What waits for a beat judges as soon as it wakes.

    _end(run, attempts=1)


@pytest.mark.long  # Worlds: tests/sim/test_worlds.py.
@pytest.mark.local_storage
def test_the_last_result_is_kept_though_its_taskmanager_dies_before_it_is_told(
    start: Start, place: Path
) -> None:
    """The outcome is staged before it is reported: a leader that never heard of it looks there."""
    run = start("three.py", options=impatient())
    run.at_work()
    taskmanager, slot = run.busy()
    os.kill(taskmanager["pid"], signal.SIGSTOP)
    run.release()
    staged = place / "state" / "understudy" / "ha"
    deadline = time.monotonic() + 20
    while not list(staged.rglob(f"staged/{slot['job_id']}-1.json")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    harness.kill([taskmanager["guardian_pid"], taskmanager["pid"]])
    code = run.finish()

    assert code == 0, run.story()
    assert slot["attempt"] == 1
    assert run.lines("jobs.txt") == ["first 1", "long 1", "third 1"]


def _freeze(pids: dict[str, int], keys: tuple[str, ...]) -> None:
    for key in keys:
        os.kill(pids[key], signal.SIGSTOP)


def _thaw(pids: dict[str, int], keys: tuple[str, ...]) -> None:
    harness.thaw(pids[key] for key in keys)
