"""A streaming job loses everything it can lose: each input row is in its output exactly once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import Event, Run, stored
from tests.journeys.spark.conftest import Begin, left_behind, put
from tests.support.feed import Feed
from tests.support.sampling import quickly

pytestmark = pytest.mark.spark

LOST = ((), ("jvm_pid",), ("driver_pid", "jvm_pid", "taskmanager"))
"""What is killed, one after the other; at last Python and JVM of a driver are frozen."""

FEW = ("--slots", "1", "-D", "taskmanager.driver.heartbeat-timeout=8s")


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    feed: Feed
    lost: tuple[str, ...]
    before: list[str] = field(default_factory=list)
    """How often the query had been started when the leaders were dead."""
    first: Event = field(default_factory=dict)
    after_leaders: Event = field(default_factory=dict)
    zombies: list[int] = field(default_factory=list)
    zombies_left: list[int] = field(default_factory=list)
    code: int = -1
    left: dict[int, str] = field(default_factory=dict)


@pytest.fixture(
    scope="module",
    params=quickly([(lost,) for lost in LOST], [(LOST[0],)]),
    ids=lambda lost: f"{len(lost)} kills",
)
def story(request: pytest.FixtureRequest, begin: Begin, ground: Path) -> Iterator[Story]:
    """Lose the leader twice, then what is to be lost; freeze Python and JVM."""
    lost: tuple[str, ...] = request.param
    place = ground / str(len(lost))
    place.mkdir()
    run = begin("live.py", options=FEW, place=place)
    run.running("live")
    feed = Feed(place)
    story = Story(run, feed, lost)
    story.first = run.wait("checkpoint-completed")
    for _ in range(2):
        os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
        run.wait("takeover")
        story.after_leaders = run.wait("checkpoint-completed")
    story.before = run.lines("runs.txt")
    for attempt, key in enumerate(lost, start=1):
        taskmanager, slot = _where(run, attempt)
        os.kill(taskmanager["pid"] if key == "taskmanager" else slot[key], signal.SIGKILL)
        run.grown("runs.txt", attempt + 1)
        run.wait("checkpoint-completed", attempt=attempt + 1)
    frozen = len(lost) + 1
    _, slot = _where(run, frozen)
    story.zombies = [slot["driver_pid"], slot["jvm_pid"]]
    for pid in story.zombies:
        os.kill(pid, signal.SIGSTOP)
    run.grown("runs.txt", frozen + 1)
    run.wait("checkpoint-completed", attempt=frozen + 1)
    harness.thaw(story.zombies)
    story.zombies_left = [pid for pid in story.zombies if Path(f"/proc/{pid}").exists()]
    feed.end()
    run.release()
    story.code = run.finish()
    story.left = left_behind(place)
    yield story
    feed.end()


def _where(run: Run, attempt: int) -> tuple[Event, Event]:
    """Return the TaskManager and the slot in which an attempt runs, once another driver is warm."""
    run.busy()
    answer = run.until(
        "/taskmanagers",
        lambda found: any(
            slot["attempt"] == attempt for one in found["taskmanagers"] for slot in one["slots"]
        ),
    )
    return next(
        (one, slot)
        for one in answer["taskmanagers"]
        for slot in one["slots"]
        if slot["attempt"] == attempt
    )


def test_each_input_row_is_in_the_output_exactly_once(story: Story) -> None:
    rows = story.feed.rows

    assert 0 == story.code, story.run.story()
    assert f"streamed None, rows {rows}, distinct {rows}" in story.run.log.read_text()


def test_the_query_does_not_notice_that_leaders_die(story: Story) -> None:
    assert 1 == len(story.before)
    assert 1 == story.after_leaders["attempt"]
    assert story.first["batch_id"] + 1 < story.after_leaders["batch_id"]


def test_each_lost_driver_is_followed_by_one_attempt(story: Story) -> None:
    runs = [line.split() for line in story.run.lines("runs.txt")]

    attempts = [str(number) for number in range(1, len(story.lost) + 3)]

    assert attempts == [attempt for attempt, _, _ in runs]
    assert len(attempts) == len({run_id for _, run_id, _ in runs})


def test_no_batch_is_left_out_of_the_record(story: Story) -> None:
    """Numbers are given without a gap; every batch has one, though not each has an event."""
    told = [
        (one["number"], one["batch_id"], one["count"])
        for one in story.run.of("checkpoint-completed")
    ]
    numbers = [number for number, _, _ in told]

    assert sorted(set(numbers)) == numbers
    assert [number - 1 for number, _, _ in told] == [batch_id for _, batch_id, _ in told]
    assert {"orders"} == {one["of"] for one in story.run.of("checkpoint-completed")}


def test_a_zombie_is_gone_before_the_next_attempt_commits(story: Story) -> None:
    assert [] == story.zombies_left


def test_nothing_is_left(story: Story) -> None:
    assert ({}, []) == (story.left, stored(story.run.place))


@pytest.mark.long  # `test_spark_cached` has a stream in one process, too.
def test_a_streaming_job_runs_in_one_process(tmp_path: Path) -> None:
    script = put(tmp_path, "live.py")
    feed = Feed(tmp_path, files=10)
    (tmp_path / "go").touch()
    done = harness.python(tmp_path, script.name)

    assert f"streamed None, rows {feed.rows}, distinct {feed.rows}" in done.stdout
