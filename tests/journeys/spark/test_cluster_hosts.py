"""Drivers on several hosts, a Spark cluster on another one, and the loss of a driver's host."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, WHOLE_S
from tests.journeys.spark.conftest import SMALL, on, put
from tests.support import namespaces
from tests.support.namespaces import Network
from tests.support.spark_cluster import SparkCluster
from tests.support.zookeeper import Server

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.filesystem,  # With a backend of its own.
    pytest.mark.skipif(not namespaces.available(), reason=namespaces.unavailable()),
]

LEADS, SPARK, DRIVERS = "leads", "spark", ("left", "right")
HOSTS = (LEADS, SPARK, *DRIVERS)
"""ZooKeeper and the JobManager are on the first: a host that is cut off hears neither of them."""

JOBS = ("one", "two")
KEYS, EACH = 40, 25

Note = dict[str, Any]


class Site:
    """The processes of an Understudy cluster, each on a host and with a state of its own."""

    def __init__(self, place: Path, network: Network, quorum: str) -> None:
        self.place = place
        self.network = network
        secret = place / "secret"
        secret.write_text("a secret of this journey")
        secret.chmod(0o600)
        settings = {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": quorum,
            "high-availability.storageDir": str(place / "ha"),
            "high-availability.cluster-id": "hosts",
            "security.secret-file": str(secret),
        }
        self._shared = (
            *harness.impatient(),
            *harness.LASTING,
            *(word for key, text in settings.items() for word in ("-D", f"{key}={text}")),
        )
        self._processes: list[subprocess.Popen[bytes]] = []

    def begin(self, host: str, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a process of the cluster on a host."""
        home = self.place / host
        home.mkdir()
        line = (role, "--host", self.network.address(host), *self._shared, *arguments)
        with (home / "said.log").open("wb") as log:
            process = subprocess.Popen(
                [*self.network.prefix(host), *COMMAND, *line],
                cwd=home,
                env={**harness.environment(home), "PYSPARK_PYTHON": sys.executable},
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def notes(self) -> list[Note]:
        """Return what the attempts have noted."""
        return [json.loads(line) for line in harness.lines(self.place, "attempts.txt")]

    def note_of(self, job: str, attempt: int) -> Note:
        """Wait until the function of an attempt has begun; return what it has noted."""

        def found() -> Note | None:
            for one in self.notes():
                if (one["job"], one["attempt"]) == (job, attempt):
                    return one
            return None

        self.until(lambda: found() is not None, f"attempt {attempt} of {job} does not begin")
        note = found()
        assert note is not None
        return note

    def ticks(self, job: str, attempt: int) -> None:
        """Wait until a task of an attempt ticks."""
        mark = f"tick {job} {attempt}"
        self.until(lambda: mark in harness.lines(self.place, "marks.txt"), f"no {mark}")

    def release(self, job: str) -> None:
        """Let a job end."""
        (self.place / f"go-{job}").touch()

    def until(self, holds: Callable[[], bool], otherwise: str) -> None:
        """Wait until something holds; nobody of the cluster may end before that."""
        deadline = time.monotonic() + WHOLE_S
        while not holds():
            over = [one.args for one in self._processes if one.poll() is not None]
            assert not over, f"{otherwise}: {over} have ended\n{self.story()}"
            assert time.monotonic() < deadline, f"{otherwise}\n{self.story()}"
            time.sleep(0.05)

    def said(self, host: str) -> str:
        """Return all logs of the processes on a host."""
        logs = sorted((self.place / host).rglob("*.log"))
        return "\n".join(f"--- {one}\n{one.read_text(errors='replace')}" for one in logs)

    def story(self) -> str:
        """Return the ends of all logs, for the message of a failing test."""
        return "\n".join(self.said(host)[-5000:] for host in (LEADS, *DRIVERS))

    def close(self) -> None:
        """End what was started, and all that belongs to it."""
        for process in self._processes:
            process.kill()
            process.wait(harness.PATIENCE_S)
        for host in HOSTS:
            harness.kill(harness.processes_of(self.place / host))


@dataclass
class Story:
    """What was seen of the run."""

    site: Site
    cluster: SparkCluster
    both: dict[str, Note] = field(default_factory=dict)
    """What each first attempt has noted."""
    names: list[str] = field(default_factory=list)
    """... and the Spark applications while both ran."""
    driver_urls: dict[str, set[str]] = field(default_factory=dict)
    """... and where the executors of each application look for their driver."""
    alone: list[str] = field(default_factory=list)
    """The Spark applications just before a host is cut off."""
    again: Note = field(default_factory=dict)
    """What the second attempt has noted."""
    driver_lived: bool = True
    """Whether the driver of the lost attempt was still there then."""
    at_begin: list[str] = field(default_factory=list)
    """The Spark applications while the tasks of the second attempt tick."""
    code: int = -1
    values: dict[str, Any] = field(default_factory=dict)
    at_end: list[str] = field(default_factory=list)
    """The Spark applications when the run has ended; the host is still cut off."""


def _driver_urls(cluster: SparkCluster) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pid, application in cluster.executors().items():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            found.setdefault(application, set()).add(words[words.index("--driver-url") + 1])
    return found


def _tell(story: Story, jobmanager: subprocess.Popen[bytes]) -> None:
    site, cluster = story.site, story.cluster
    for job in JOBS:
        site.ticks(job, 1)
    story.both = {job: site.note_of(job, 1) for job in JOBS}
    story.names = sorted(cluster.state().names)
    story.driver_urls = _driver_urls(cluster)
    stays, lost = JOBS
    site.release(stays)
    story.alone = cluster.await_state(lambda state: len(state.names) == 1).names
    address = story.both[lost]["host"]
    site.network.isolate(next(one for one in HOSTS if site.network.address(one) == address))
    story.again = site.note_of(lost, 2)
    story.driver_lived = Path(f"/proc/{story.both[lost]['pid']}").exists()
    site.ticks(lost, 2)
    story.at_begin = cluster.state().names
    site.release(lost)
    story.code = jobmanager.wait(WHOLE_S)
    story.at_end = cluster.state().names
    story.values = json.loads((site.place / "values.json").read_text())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Run two jobs in drivers on two hosts; cut one host off, with the job on it."""
    place = tmp_path_factory.mktemp("hosts")
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(HOSTS))
        quorum = Server(
            place / "zookeeper", network.address(LEADS), 2181, prefix=network.prefix(LEADS)
        )
        stack.enter_context(quorum)
        cluster = stack.enter_context(
            SparkCluster(
                place / "cluster", host=network.address(SPARK), prefix=network.prefix(SPARK)
            )
        )
        site = Site(place, network, quorum.connect_string)
        stack.callback(site.close)
        app = put(place, "at_once_on_a_cluster.py")
        few = ("-D", "taskmanager.numberOfTaskSlots=1", "-D", "taskmanager.spare-drivers=0")
        for host in DRIVERS:
            site.begin(host, "taskmanager", *few)
        brought = (*SMALL, *on(cluster), "--name", "hosts", str(app), str(place), *JOBS)
        jobmanager = site.begin(LEADS, "jobmanager", *brought)
        found = Story(site, cluster)
        try:
            _tell(found, jobmanager)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{site.story()}") from error
        yield found


def test_jobs_run_in_drivers_on_both_hosts_at_once(story: Story) -> None:
    addresses = {story.site.network.address(host) for host in DRIVERS}

    assert addresses == {note["host"] for note in story.both.values()}
    assert [f"hosts / {job} #1" for job in JOBS] == story.names


def test_executors_reach_each_driver_at_the_address_of_its_host(story: Story) -> None:
    expected = {
        note["application"]: {f"spark://CoarseGrainedScheduler@{note['host']}:{note['port']}"}
        for note in story.both.values()
    }

    assert expected == story.driver_urls
    assert [] == [
        note for note in story.both.values() if note["blocks"].partition(":")[0] != note["host"]
    ]


def test_the_job_of_a_host_that_is_cut_off_runs_again_on_the_other_one(story: Story) -> None:
    stays, lost = JOBS

    assert story.both[stays]["host"] == story.again["host"]
    assert [(stays, 1), (lost, 1), (lost, 2)] == sorted(
        (note["job"], note["attempt"]) for note in story.site.notes()
    )
    assert not story.driver_lived


def test_the_results_are_right(story: Story) -> None:
    shuffled = {str(key): EACH for key in range(KEYS)}

    assert 0 == story.code, story.site.story()
    assert dict.fromkeys(JOBS, shuffled) == story.values


def test_the_spark_application_of_the_lost_attempt_is_ended_first(story: Story) -> None:
    """Of the loss the Master has not heard: an orphan's last words go nowhere."""
    _, lost = JOBS
    host = next(one for one in DRIVERS if story.site.network.address(one) == story.again["host"])
    application = story.both[lost]["application"]

    assert [f"hosts / {lost} #1"] == story.alone
    assert f"{application} (hosts / {lost} #1) has outlived its driver" in story.site.said(host)
    assert [f"hosts / {lost} #2"] == story.at_begin
    assert [] == story.at_end


def test_the_cluster_is_idle_at_the_end(story: Story) -> None:
    state = story.cluster.await_idle()

    assert (0, ()) == (state.cores_used, state.active)
