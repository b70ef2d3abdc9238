"""Three jobs, the second long in Spark: its leader is killed again and again, Spark runs on."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.harness import BY_PROOF_S, Event, Run, stored
from tests.journeys.spark.conftest import Begin, left_behind

pytestmark = [pytest.mark.spark, pytest.mark.long]

KILLS = 2
ALONE = ("--slots", "1")
NAMED = ("-D", "high-availability.cluster-id=flights", "--run-id", "monday")


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    slots: list[dict[str, Any]] = field(default_factory=list)
    takeovers: list[Event] = field(default_factory=list)
    code: int = -1
    left: dict[int, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def story(begin: Begin, ground: Path) -> Story:
    """Run it: one kill after the other, each when the standby has said that it is ready."""
    run = begin("long_in_spark.py", options=(*ALONE, *NAMED))
    story = Story(run)
    run.running("second job")
    run.grown("marks.txt", 10)
    story.slots.append(run.busy()[1])
    for _ in range(KILLS):
        leader = run.standby_is_ready()["leader"]
        os.kill(leader["pid"], signal.SIGKILL)
        story.takeovers.append(run.wait("takeover"))
        story.slots.append(run.busy()[1])
    run.release()
    story.code = run.finish()
    story.left = left_behind(ground)
    return story


def test_the_result_arrives(story: Story) -> None:
    finished = story.run.of("application-finished")[0]

    assert (0, "FINISHED") == (story.code, finished["status"])
    assert "values {'rows': 10} {'attempt': 1, 'total': 1} {'rows': 10}" in (
        story.run.log.read_text()
    )


def test_the_job_keeps_its_attempt_and_its_driver(story: Story) -> None:
    kept = {(slot["driver_pid"], slot["jvm_pid"], slot["attempt"]) for slot in story.slots}
    finished = story.run.of("application-finished")[0]

    assert 1 == len(kept)
    assert {1} == {job["attempt"] for job in finished["jobs"]}
    assert ["first 1", "long 1", "third 1"] == story.run.lines("jobs.txt")


def test_main_is_executed_once_more_for_each_kill(story: Story) -> None:
    assert KILLS + 1 == len(set(story.run.lines("main.txt"))) == len(story.run.lines("main.txt"))


def test_a_takeover_is_told_with_what_was_adopted_and_skipped_in_time(story: Story) -> None:
    told = [(one["adopted"], one["skipped"], one["restarted"]) for one in story.takeovers]

    assert [(["second job"], ["first job"], [])] * KILLS == told
    assert max(one["seconds"] for one in story.takeovers) < BY_PROOF_S


def test_nothing_is_left_but_the_registry_and_one_tombstone(story: Story, ground: Path) -> None:
    left = [name.partition("~")[0] for name in stored(ground) if "register/registry/" not in name]

    assert {} == story.left
    assert [
        "flights",
        "flights/register",
        "flights/register/registry",
        "flights/tombstones",
        "flights/tombstones/monday",
    ] == left
