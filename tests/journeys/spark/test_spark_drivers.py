"""Drivers with a JVM are killed and frozen; the function runs again, never twice at once."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import Run, stored
from tests.journeys.spark.conftest import Begin, left_behind

pytestmark = [pytest.mark.spark, pytest.mark.long]

FEW = ("--slots", "1", "-D", "taskmanager.driver.heartbeat-timeout=8s")

LOSSES = {
    "the Python was killed, whose function had forked": (signal.SIGKILL, ("driver_pid",)),
    "the JVM was killed": (signal.SIGKILL, ("jvm_pid",)),
    "the Python was frozen, while its JVM computed on": (signal.SIGSTOP, ("driver_pid",)),
    "the JVM was frozen": (signal.SIGSTOP, ("jvm_pid",)),
    "all was frozen": (signal.SIGSTOP, ("guardian_pid", "driver_pid", "jvm_pid")),
}
"""In this order, each in the attempt after the one before."""

ALL = tuple(LOSSES)
FEW_LOSSES = (ALL[0], ALL[-1])
"""A death and a silence. Other stories on Spark lose a JVM; here the idle driver's is frozen."""

REASONS = dict(
    zip(
        LOSSES,
        (
            "was killed by signal 9",
            "lost its JVM",
            "was killed: silent for too long",
            "was killed: silent for too long",
            "was killed: its guardian was killed",
        ),
        strict=True,
    )
)


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    losses: tuple[str, ...]
    """What is lost, one after the other."""
    idle: dict[str, Any] = field(default_factory=dict)
    """The spare driver whose JVM was frozen while it had nothing to do, and how it ended."""
    lost: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The slot of the driver that each loss hit."""
    warm: dict[str, set[int]] = field(default_factory=dict)
    """Which drivers were warm then, by the pid of their Python."""
    code: int = -1
    left: dict[int, str] = field(default_factory=dict)


@pytest.fixture(
    scope="module",
    params=[FEW_LOSSES, ALL],
    ids=lambda losses: f"{len(losses)} losses",
)
def story(request: pytest.FixtureRequest, begin: Begin, ground: Path) -> Story:
    """Lose one driver after the other, each in the middle of a Spark job."""
    losses: tuple[str, ...] = request.param
    place = ground / str(len(losses))
    place.mkdir()
    run = begin("long_in_spark.py", "fork", options=FEW, place=place)
    story = Story(run, losses)
    run.running("second job")
    run.busy()
    story.idle = next(one for one in _drivers(run, 1) if one["state"] == "warm")
    os.kill(story.idle["jvm_pid"], signal.SIGSTOP)
    story.idle |= run.wait("driver-ended", id=story.idle["id"])
    ended = story.idle["id"]  # The leader may hear of it a moment after the launcher.
    run.until("/taskmanagers", lambda answer: ended not in {one["id"] for one in _seats(answer)})
    for attempt, loss in enumerate(losses, start=1):
        number, keys = LOSSES[loss]
        run.grown("jobs.txt", attempt + 1)
        run.until_line("marks.txt", f"tick {attempt}".__eq__)
        if number == signal.SIGKILL:  # While one is frozen, there is time for another to start.
            run.busy()
        drivers = _drivers(run, attempt)
        slot = next(one for one in drivers if one["attempt"] == attempt)
        story.lost[loss] = slot
        story.warm[loss] = {one["driver_pid"] for one in drivers if one["state"] == "warm"}
        for key in keys:
            os.kill(slot[key], number)
        run.grown("jobs.txt", attempt + 2)
        harness.thaw(slot[key] for key in keys)
    run.release()
    story.code = run.finish()
    story.left = left_behind(place)
    return story


def test_the_function_runs_again_after_each_loss_and_the_result_arrives(story: Story) -> None:
    last = len(story.losses) + 1
    finished = story.run.of("application-finished")[0]

    assert (0, "FINISHED") == (story.code, finished["status"])
    assert ["first 1", *[f"long {n}" for n in range(1, last + 1)], "third 1"] == (
        story.run.lines("jobs.txt")
    )
    assert f"{{'attempt': {last}, 'total': 1}}" in story.run.log.read_text()
    assert 1 == len(story.run.lines("main.txt"))


def test_a_jvm_that_does_not_answer_while_it_is_idle_is_noticed(story: Story) -> None:
    idle = story.idle

    assert (None, idle["driver_pid"]) == (idle["slot"], idle["pid"])
    assert "was killed: silent for too long" == idle["reason"]


def test_how_each_driver_was_lost_is_told(story: Story) -> None:
    for loss in story.losses:
        lost = story.lost[loss]
        expected = [(1, lost["job_id"], REASONS[loss])]

        actual = story.run.of("driver-ended", id=lost["id"])

        assert expected == [(one["slot"], one["job_id"], one["reason"]) for one in actual]


def test_after_a_kill_it_runs_again_in_the_driver_that_was_warm(story: Story) -> None:
    begun = [mark.split() for mark in story.run.lines("marks.txt") if mark.startswith("begin")]
    pids = {int(mark[1]): int(mark[2]) for mark in begun}
    for attempt, loss in enumerate(story.losses, start=1):
        if LOSSES[loss][0] == signal.SIGKILL:
            assert story.lost[loss]["driver_pid"] == pids[attempt]
            assert story.warm[loss] == {pids[attempt + 1]}


def test_nothing_of_an_attempt_goes_on_once_the_next_has_begun(story: Story) -> None:
    """Neither its function, nor its Spark tasks, nor what it had forked."""
    marks = story.run.lines("marks.txt")
    for attempt, _ in enumerate(story.losses, start=1):
        begun = [mark for mark in marks if mark.startswith(f"begin {attempt + 1} ")]
        later = marks[marks.index(begun[0]) :]

        assert 1 == len(begun)
        assert f"tick {attempt}" in marks
        assert [] == [mark for mark in later if int(mark.split()[1]) <= attempt]


def test_only_the_last_attempt_came_to_its_end(story: Story) -> None:
    last = len(story.losses) + 1
    marks = story.run.lines("marks.txt")

    assert [f"end {last}"] == [mark.rpartition(" ")[0] for mark in marks if mark[:3] == "end"]


def test_nothing_is_left(story: Story) -> None:
    place = story.run.place

    assert {} == story.left
    assert [] == stored(place)
    assert [] == list(_scratch(place))


def _drivers(run: Run, attempt: int) -> list[dict[str, Any]]:
    """Return the drivers, once that attempt is known to run in one of them."""
    answer = run.until(
        "/taskmanagers",
        lambda answer: attempt in {one["attempt"] for one in _seats(answer)},
    )
    return _seats(answer)


def _seats(answer: Any) -> list[dict[str, Any]]:
    [taskmanager] = answer["taskmanagers"]
    return [*taskmanager["slots"], *taskmanager["spare_drivers"]]


def _scratch(place: Path) -> list[Path]:
    return list((place / "tmp").rglob("*"))
