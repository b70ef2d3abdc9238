"""What a person sets for executors and event logs holds for each job; kept ones serve the next."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.journeys.harness import WHOLE_S, Run
from tests.journeys.spark.conftest import Begin, left_behind, on
from tests.support.spark_cluster import SparkCluster, State

pytestmark = [pytest.mark.spark, pytest.mark.long]

JOBS = ("shuffles", "shuffles more")
FEW = ("--jobmanagers", "1", "--slots", "1", "-D", "taskmanager.spare-drivers=0")


def _conf(**settings: str) -> tuple[str, ...]:
    return tuple(
        word
        for key, text in settings.items()
        for word in ("--conf", f"spark.{key.replace('_', '.')}={text}")
    )


RUNS = {
    "cores": (
        *_conf(cores_max="1"),
        *("-D", "taskmanager.executors.keep-idle=2min"),
    ),
    "instances": (
        *_conf(executor_instances="2", executor_cores="1"),
        *_conf(eventLog_enabled="true", eventLog_compress="false"),
    ),
    "dynamic": _conf(
        dynamicAllocation_enabled="true",
        dynamicAllocation_minExecutors="0",
        dynamicAllocation_maxExecutors="1",
        executor_cores="1",
    ),
}
"""All at once: together they fill the cluster."""

ALL = tuple(RUNS)

EXPECTED = {"cores": (1, 1), "instances": (2, 2), "dynamic": (1, 1)}
"""How many cores and executors each job has."""


@dataclass
class Story:
    """What was seen of a run."""

    run: Run
    seen: list[tuple[int, int]] = field(default_factory=list)
    """For each job, how many cores and executors it had."""
    pids: list[set[int]] = field(default_factory=list)
    """For each job, the executors."""
    told: list[dict[str, Any]] = field(default_factory=list)
    """What REST says of each job while it runs."""
    code: int = -1
    left: dict[int, str] = field(default_factory=dict)


@pytest.fixture(scope="module", params=[ALL[:2], ALL], ids=lambda kinds: kinds[-1])
def stories(
    request: pytest.FixtureRequest, begin: Begin, ground: Path, spark_cluster: SparkCluster
) -> dict[str, Story]:
    """Run two jobs after one another with each kind of settings, and look at the Master."""
    stories = {}
    kinds: tuple[str, ...] = request.param
    for kind in kinds:
        options, place = RUNS[kind], ground / str(len(kinds)) / kind
        (place / "events").mkdir(parents=True)
        named = ("--name", kind, *FEW, *on(spark_cluster))
        logs = _conf(eventLog_dir=str(place / "events"))
        run = begin("held_on_a_cluster.py", *JOBS, options=(*named, *options, *logs), place=place)
        stories[kind] = Story(run)
    for job in JOBS:
        for kind, story in stories.items():
            story.run.until_line("marks.txt", f"tick {job} 1".__eq__, WHOLE_S)
            wanted = EXPECTED[kind][1]
            pids = _until_so_many(spark_cluster, kind, wanted)
            cores = sum(
                one.cores
                for one in spark_cluster.state().active
                if one.name.startswith(f"{kind} /")
            )
            story.seen.append((cores, len(pids)))
            story.pids.append(pids)
            job_id = story.run.running(job)["job_id"]
            story.told.append(story.run.until(f"/jobs/{job_id}", lambda told: bool(told["spark"])))
            (story.run.place / f"go-{job}").touch()
    for story in stories.values():
        story.code = story.run.finish(WHOLE_S)
        story.left = left_behind(story.run.place)
    return stories


def _until_so_many(cluster: SparkCluster, kind: str, wanted: int) -> set[int]:
    """Wait until a run has executors, as many as it should have or more; return their pids."""
    pids: set[int] = set()

    def enough(state: State) -> bool:
        nonlocal pids
        ours = {one.id for one in state.active if one.name.startswith(f"{kind} /")}
        pids = {pid for pid, owner in cluster.executors().items() if owner in ours}
        return len(pids) >= wanted

    cluster.await_state(enough, what=f"{wanted} executors for {kind}")
    return pids


def test_what_is_set_holds_for_each_job(stories: dict[str, Story]) -> None:
    seen = {kind: story.seen for kind, story in stories.items()}

    assert {kind: [EXPECTED[kind]] * len(JOBS) for kind in stories} == seen


def test_each_attempt_has_an_event_log_which_is_linked_and_names_application_and_job(
    stories: dict[str, Story],
) -> None:
    told = stories["instances"].told
    logs = [_events(Path(urlsplit(one["spark"]["event-log"]).path)) for one in told]
    names = [[one["App Name"] for one in log if "App Name" in one] for log in logs]
    jobs = [[one["Properties"] for one in log if one["Event"].endswith("JobStart")] for log in logs]

    assert [[f"instances / {job} #1"] for job in JOBS] == names
    for job, one, started in zip(JOBS, told, jobs, strict=True):
        group, label = f"{one['jid']}#1", f"{job} #1"
        marks = {(each["spark.jobGroup.id"], each["spark.job.description"]) for each in started}

        assert {(group, label)} == marks


def _events(log: Path) -> list[dict[str, Any]]:
    """Return the events of a log that Spark has written in pieces."""
    pieces = sorted(log.glob("events_*"))
    return [json.loads(line) for piece in pieces for line in piece.read_text().splitlines()]


def test_each_run_ends_and_leaves_nothing(
    stories: dict[str, Story], spark_cluster: SparkCluster
) -> None:
    state = spark_cluster.await_idle()

    for story in stories.values():
        assert 0 == story.code, story.run.story()
        assert {} == story.left
    assert (0, ()) == (state.cores_used, state.active)


def test_executors_that_are_kept_idle_serve_the_next_job(stories: dict[str, Story]) -> None:
    first, second = stories["cores"].pids

    assert first == second


def test_without_it_each_job_has_executors_of_its_own(stories: dict[str, Story]) -> None:
    first, second = stories["instances"].pids

    assert set() == first & second
