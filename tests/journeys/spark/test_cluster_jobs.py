"""Many jobs on few cores; idle drivers hold none; who waits says for whom."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import PATIENCE_S, WHOLE_S, GoneError, Run
from tests.journeys.spark.conftest import Begin, left_behind, on
from tests.support.foreign_application import ROWS, ForeignApplication
from tests.support.spark_cluster import SparkCluster, State

pytestmark = [pytest.mark.spark, pytest.mark.long]

WAVES = ((2,), (2, 4, 8))
"""So many jobs at once, one wave after the other."""

FEW = ("--jobmanagers", "1", "-D", "taskmanager.spare-drivers=0")
"""With one wave; what is set by default is for several."""

NAMED = ("--name", "flights", "--run-id", "monday")
CLUSTER_ID = ("-D", "high-availability.cluster-id=flights")
WAITS = "waits for executors"
HOLDER = "nightly"


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    waves: tuple[int, ...]
    idle: State
    """What the Master said while all drivers were warm and none had a job."""
    counted: int = 0
    """How many rows the foreign application has counted meanwhile."""
    foreign: State | None = None
    """What the Master said then."""
    starved: State | None = None
    """... and while a job waited for the cores of the foreign application."""
    told: dict[str, str] = field(default_factory=dict)
    """What each view said of the job that waited."""
    code: int = -1
    after: State | None = None
    names: list[str] = field(default_factory=list)
    """The Spark applications that have ended since the run began."""
    left: dict[int, str] = field(default_factory=dict)


@pytest.fixture(scope="module", params=WAVES, ids=str)
def story(
    request: pytest.FixtureRequest, begin: Begin, ground: Path, spark_cluster: SparkCluster
) -> Story:
    """Run all waves, then a foreign application, then a job for which that leaves no core."""
    waves: tuple[int, ...] = request.param
    place = ground / str(len(waves))
    place.mkdir()
    sizes = map(str, waves)
    few = FEW if len(waves) == 1 else ()
    options = (*on(spark_cluster), *few, *NAMED, *CLUSTER_ID)
    before = {one.id for one in spark_cluster.state().completed}
    run = begin("waves_of_jobs.py", *sizes, options=options, place=place)
    run.grown("waves.txt", len(waves), WHOLE_S)
    run.until("/taskmanagers", _all_warm)
    story = Story(run, waves, spark_cluster.await_state(lambda state: state.idle))
    with ForeignApplication(spark_cluster.url, HOLDER, place) as nightly:
        story.counted = nightly.counted()
        story.foreign = spark_cluster.state()
        run.release()
        job_id = run.running("late")["job_id"]
        story.told["REST"] = json.dumps(run.until(f"/jobs/{job_id}", _waits))
        story.told["info"] = harness.command(place, "info", "monday", *CLUSTER_ID).stdout
        story.told["an event"] = _event_that_says(run, WAITS)
        story.starved = spark_cluster.state()
    story.code = run.finish(WHOLE_S)
    story.after = spark_cluster.await_idle()
    ours = (one for one in story.after.completed if one.id not in before)
    story.names = [one.name for one in ours]
    story.left = left_behind(place)
    return story


def test_many_jobs_at_once_all_end(story: Story) -> None:
    expected = [f"{wave} {wave * ROWS}" for wave in story.waves]
    finished = story.run.of("application-finished")[0]

    assert expected == story.run.lines("waves.txt")
    assert (0, "FINISHED") == (story.code, finished["status"]), story.run.story()
    assert {1} == {job["attempt"] for job in finished["jobs"]}


def test_warm_drivers_hold_nothing_of_the_cluster(story: Story) -> None:
    assert (0, ()) == (story.idle.cores_used, story.idle.active)


def test_a_foreign_application_gets_all_cores_at_once(story: Story) -> None:
    assert story.foreign is not None
    assert ROWS == story.counted
    assert [(HOLDER, story.foreign.cores)] == [
        (one.name, one.cores) for one in story.foreign.active
    ]


def test_each_spark_application_is_called_after_application_job_and_attempt(story: Story) -> None:
    jobs = [f"{wave}.{number}" for wave in story.waves for number in range(wave)]
    expected = sorted(f"flights / {job} #1" for job in [*jobs, "late"])

    assert expected == sorted(name for name in story.names if name.startswith("flights"))
    assert [] == [name for name in story.names if "understudy" in name]


@pytest.mark.parametrize("view", ["REST", "info", "an event"])
def test_a_job_without_executors_says_why_and_who_holds_the_cores(story: Story, view: str) -> None:
    assert story.starved is not None
    expected = f"{WAITS}: the cluster has 0 of 4 cores free; '{HOLDER}' holds 4"

    assert 0 == story.starved.application("flights / late #1").cores
    assert expected in story.told[view]


def test_it_runs_once_the_cores_are_free(story: Story) -> None:
    assert f"late {ROWS}" in story.run.log.read_text()


def test_nothing_is_left(story: Story) -> None:
    assert story.after is not None
    assert (0, ()) == (story.after.cores_used, story.after.active)
    assert {} == story.left


def _all_warm(answer: Any) -> bool:
    [taskmanager] = answer["taskmanagers"]
    drivers = [*taskmanager["slots"], *taskmanager["spare_drivers"]]
    return {"warm"} == {driver["state"] for driver in drivers}


def _waits(answer: Any) -> bool:
    return WAITS in json.dumps(answer)


def _event_that_says(run: Run, words: str) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and run.process.poll() is None:
        for event in list(run.events):
            if words in (told := json.dumps(event)):
                return told
        time.sleep(0.05)
    raise GoneError(f"no event says {words!r}\n{run.story()}")
