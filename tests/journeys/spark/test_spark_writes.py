"""What jobs append is there once, though their drivers are killed, and wake from the dead."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import PATIENCE_S, WHOLE_S, GoneError, Run, stored
from tests.journeys.spark.conftest import Begin, left_behind
from tests.support.sampling import quickly
from tests.support.sights import names_in

pytestmark = pytest.mark.spark

FEW = ("--slots", "1", "-D", "taskmanager.driver.heartbeat-timeout=8s")
KILLED, STOPPED = "killed", "stopped"
LOSSES = (
    ((KILLED,), (STOPPED,)),
    ((KILLED, STOPPED),) * 2,
    ((KILLED, KILLED, KILLED, STOPPED),) * 2,
)
"""How the driver of each job is lost, one attempt after the other: appends, then batches. A driver
that is stopped wakes once the next attempt has begun."""

LATE_S = 0.6
"""A write takes about so long: a kill comes at any moment of it."""

WRITES = 8
"""Of each job."""

ROWS = {"appended": WRITES * 100, "batched": WRITES * 100, "batched-too": WRITES * 100}


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    losses: tuple[tuple[str, ...], ...]
    moments: list[str] = field(default_factory=list)
    """What lay beside the target when the driver was killed."""
    sights: set[int] = field(default_factory=set)
    """How many files of rows a reader has found in the target of the appends."""
    code: int = -1
    left: dict[int, str] = field(default_factory=dict)


@pytest.fixture(
    scope="module",
    params=quickly([(losses,) for losses in LOSSES], [(LOSSES[0],)]),
    ids=lambda losses: f"{sum(map(len, losses))} losses",
)
def story(request: pytest.FixtureRequest, begin: Begin, ground: Path) -> Story:
    """Kill the driver of a job in the middle of a write, and stop one past its timeout."""
    dice = random.Random(5)
    losses: tuple[tuple[str, ...], ...] = request.param
    place = ground / str(len(losses[0]))
    place.mkdir()
    run = begin("writes.py", str(len(losses[0]) + 1), options=FEW, place=place)
    story = Story(run, losses)
    targets = (("appends", "appended"), ("batches", "batched"))
    with _looking(place / "appended", story.sights):
        for (job, target), lost in zip(targets, losses, strict=True):
            for attempt, how in enumerate(lost, start=1):
                run.grown(f"{job}.txt", attempt)
                slot = _slot(run, job, attempt)
                (place / f"{job}-{attempt}.go").touch()
                _in_a_write(run, place, target, place / f"{job}-{attempt}.held")
                time.sleep(dice.uniform(0, LATE_S))  # A random moment, and no event.
                story.moments += [path.name for path in place.glob(f".{target}.*")]
                if how == KILLED:
                    os.kill(slot["driver_pid"], signal.SIGKILL)
                    if attempt == len(lost):
                        (place / f"{job}-{attempt + 1}.go").touch()
                    continue
                zombie = [slot[key] for key in ("guardian_pid", "driver_pid", "jvm_pid")]
                for pid in zombie:
                    os.kill(pid, signal.SIGSTOP)
                run.grown(f"{job}.txt", attempt + 1)
                (place / f"{job}-{attempt + 1}.go").touch()
                harness.thaw(zombie)
        story.code = run.finish(WHOLE_S)
    story.left = left_behind(place)
    return story


@contextmanager
def _looking(target: Path, sights: set[int]) -> Iterator[None]:
    """List a directory again and again, as a reader of Spark would."""
    end = threading.Event()

    def look() -> None:
        while not end.is_set():
            with suppress(FileNotFoundError):
                if (names := names_in(target)) is not None:
                    sights.add(sum(not name.startswith((".", "_")) for name in names))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _slot(run: Run, job: str, attempt: int) -> dict[str, int]:
    """Return the slot in which an attempt runs, once another driver is warm."""
    while True:
        _, slot = run.busy()
        if slot["attempt"] == attempt and slot["job_id"]:
            return slot
        if run.process.poll() is not None:
            raise GoneError(f"{job} {attempt}: the run is over\n{run.story()}")


def _in_a_write(run: Run, place: Path, target: str, held: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not held.exists() and not list(place.glob(f".{target}.understudy-*")):
        if time.monotonic() > deadline or run.process.poll() is not None:
            raise GoneError(f"nothing is written to {target}\n{run.story()}")


def test_each_row_is_there_once(story: Story) -> None:
    expected = {name: [rows, rows] for name, rows in ROWS.items()}

    assert 0 == story.code, story.run.story()
    assert expected == json.loads((story.run.place / "counted.json").read_text())


def test_the_drivers_were_lost(story: Story) -> None:
    attempts = [[str(number) for number in range(1, len(lost) + 2)] for lost in story.losses]

    assert attempts == [story.run.lines(f"{job}.txt") for job in ("appends", "batches")]
    assert story.moments


def test_what_was_published_is_not_computed_again(story: Story) -> None:
    steps = [line.split() for line in story.run.lines("steps.txt")]
    again = [line.split()[1] for line in story.run.lines("kept.txt")]

    assert WRITES == len({step for _, step in steps})
    assert len(again) <= WRITES + len(story.losses[-1])


def test_a_reader_never_sees_half_of_a_write(story: Story) -> None:
    assert len(story.sights) > 2
    assert [] == [count for count in sorted(story.sights) if count % 2]


def test_nothing_is_left(story: Story) -> None:
    place = story.run.place

    assert ({}, []) == (story.left, stored(place))
    assert [] == [path.name for path in place.rglob("*understudy-*")]
