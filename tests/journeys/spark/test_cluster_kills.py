"""Each process on both sides is killed, one after the other, in a shuffle and in a safe write.

On a cluster of its own, with two Masters on a ZooKeeper. The job is held in its second stage: some
reducers have ended, others tick.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import WHOLE_S, Event, Run, stored
from tests.journeys.spark.conftest import Begin, left_behind, on
from tests.support.spark_cluster import SparkCluster, State
from tests.support.zookeeper import Server

pytestmark = pytest.mark.spark

FEW = ("--slots", "1", "--name", "held")
KEYS, EACH, FIRST = 40, 25, 100

LOST = (("jvm_pid",), ("driver_pid", "jvm_pid", "pid"))
"""A JVM; or a driver's Python, its JVM and the TaskManager, each costs one attempt. All else costs
none."""

SHORT_SESSIONS = "minSessionTimeout=1000\nmaxSessionTimeout=10000\n"
"""Spark asks for 60 s, and so long nobody would lead; a busy machine stalls for seconds."""


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    lost: tuple[str, ...]
    takeovers: list[Event] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    """The last line of ``jobs.txt`` after the death of leader, executor, Worker and Master."""
    names: list[list[str]] = field(default_factory=list)
    """What was registered after each kill."""
    code: int = -1
    values: dict[str, Any] = field(default_factory=dict)
    after: State | None = None
    executors: dict[int, str] = field(default_factory=dict)
    left: dict[int, str] = field(default_factory=dict)


class Killing:
    """Kills one thing after the other under a job that is held."""

    def __init__(self, story: Story, cluster: SparkCluster, job: str) -> None:
        self._story = story
        self._run = story.run
        self._cluster = cluster
        self._job = job
        self._attempt = 1

    def all(self) -> None:
        """Kill everything once; then let the job end."""
        self._ticks()
        for kill in (self._leader, self._executor, self._worker, self._master):
            kill()
            self._ticks()
            self._story.adopted.append(self._run.lines("jobs.txt")[-1])
        for whom in self._story.lost:
            taskmanager, slot = self._run.busy()
            self._lose({**slot, "pid": taskmanager["pid"]}[whom])
        (self._run.place / f"go-{self._job}").touch()

    def _ticks(self) -> None:
        """Wait until tasks of this attempt tick, from now on."""
        mark = f"tick {self._job} {self._attempt}"
        before = self._run.lines("marks.txt").count(mark)
        many = len(self._run.lines("marks.txt"))
        while self._run.lines("marks.txt").count(mark) == before:
            many = len(self._run.grown("marks.txt", many + 1, WHOLE_S))

    def _leader(self) -> None:
        leader = self._run.standby_is_ready()["leader"]
        os.kill(leader["pid"], signal.SIGKILL)
        self._story.takeovers.append(self._run.wait("takeover"))

    def _executor(self) -> None:
        self._until_others(lambda pid: os.kill(pid, signal.SIGKILL))

    def _worker(self) -> None:
        """Kill the Worker that has an executor; it ends by itself, and another Worker comes."""
        # An executor that still starts does not watch its Worker yet, and outlives the Worker.
        worker = min(
            (one for one in self._cluster.workers if one.executors()),
            key=lambda one: min(started(pid) for pid in one.executors()),
        )
        self._cluster.kill_worker(worker)
        other = self._cluster.start_worker()
        self._cluster.await_state(
            lambda _: not worker.executors() and bool(other.executors()),
            what="an executor on the new Worker",
        )

    def _master(self) -> None:
        """Kill the Master that leads: the other one knows Workers and application."""
        names = self._cluster.state().names
        self._cluster.kill_master()
        self._cluster.restart_master()
        self._cluster.await_state(lambda state: state.names == names, what=f"{names}")

    def _until_others(self, kill: Callable[[int], None]) -> None:
        before = self._cluster.executors()
        victim = min(before)
        kill(victim)
        self._cluster.await_state(
            lambda _: (
                victim not in self._cluster.executors()
                and len(self._cluster.executors()) >= len(before)
            ),
            what="another executor",
        )

    def _lose(self, pid: int) -> None:
        """Kill what takes the attempt with it; wait until tasks of the next one tick."""
        jobs = len(self._run.lines("jobs.txt"))
        os.kill(pid, signal.SIGKILL)
        self._run.grown("jobs.txt", jobs + 1, WHOLE_S)
        self._attempt += 1
        self._ticks()
        self._story.names.append(self._cluster.state().names)


def started(pid: int) -> int:
    """Return when a process started, in ticks since the host did."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return sys.maxsize


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Start a Worker and two Masters that elect a leader on a ZooKeeper."""
    place = tmp_path_factory.mktemp("ha")
    with (
        Server(place / "zookeeper", configuration=SHORT_SESSIONS) as server,
        SparkCluster(place / "cluster", workers=1, ha=server.connect_string) as cluster,
    ):
        yield cluster


def _tell(
    begin: Begin, place: Path, cluster: SparkCluster, job: str, lost: tuple[str, ...]
) -> Story:
    place.mkdir()
    run = begin("held_on_a_cluster.py", job, options=(*on(cluster), *FEW), place=place)
    story = Story(run, lost)
    Killing(story, cluster, job).all()
    story.code = run.finish(WHOLE_S)
    story.after = cluster.await_idle()
    story.executors = cluster.executors()
    story.left = left_behind(place)
    if (place / "values.json").exists():
        story.values = json.loads((place / "values.json").read_text())
    return story


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("shuffles", LOST[1]), marks=pytest.mark.long),
        ("writes", LOST[0]),
        pytest.param(("writes", LOST[1]), marks=pytest.mark.long),
    ],
    ids=lambda param: f"{param[0]}-{len(param[1])}",
)
def story(
    request: pytest.FixtureRequest, begin: Begin, ground: Path, cluster: SparkCluster
) -> Story:
    """Kill everything under a job that returns what it has shuffled, or writes it."""
    job, lost = request.param
    return _tell(begin, ground / f"{job}-{len(lost)}", cluster, job, lost)


def test_the_result_is_right_and_each_row_is_there_once(story: Story) -> None:
    shuffled = {str(key): EACH for key in range(KEYS)}
    written = {"rows": KEYS + FIRST, "distinct": KEYS + FIRST, "shuffled": KEYS * EACH}
    job = next(iter(story.values), "")
    expected = {"shuffles": {job: shuffled}, "writes": {job: {}, "count": written}}

    assert 0 == story.code, story.run.story()
    assert expected[job] == story.values


def test_the_leader_an_executor_a_worker_and_a_master_cost_no_attempt(story: Story) -> None:
    job = next(iter(story.values), "")

    assert [f"{job} 1"] * 4 == story.adopted
    assert [([job], [])] == [(one["adopted"], one["restarted"]) for one in story.takeovers]


def test_each_lost_driver_costs_one_attempt_with_a_spark_application_of_its_own(
    story: Story,
) -> None:
    job = next(iter(story.values), "")
    attempts = range(1, len(story.lost) + 2)

    assert [f"{job} {number}" for number in attempts] == story.run.lines("jobs.txt")
    assert [[f"held / {job} #{number}"] for number in attempts[1:]] == story.names


def test_nothing_is_left_of_run_cluster_and_write(story: Story) -> None:
    place = story.run.place

    assert story.after is not None
    assert (0, (), {}) == (story.after.cores_used, story.after.active, story.executors)
    assert ({}, []) == (story.left, stored(place))
    assert [] == [path.name for path in place.rglob("*understudy-*")]
    assert {} == harness.processes_of(place)
