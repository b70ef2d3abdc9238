"""Hosts that share nothing but a directory: a cluster of ours, Spark on a host of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
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

MARKS = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.filesystem,  # With a backend of its own.
    pytest.mark.skipif(not namespaces.available(), reason=namespaces.unavailable()),
]

LEADS, SPARK, DRIVERS = "leads", "spark", ("left", "right")
HOSTS = (LEADS, SPARK, *DRIVERS)
"""ZooKeeper and the JobManager are on the first: a host that is cut off hears neither of them."""

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

    def cut_off(self, address: object) -> None:
        """Cut off the host with this address."""
        self.network.isolate(next(one for one in HOSTS if self.network.address(one) == address))

    def close(self) -> None:
        """End what was started, and all that belongs to it."""
        for process in self._processes:
            process.kill()
            process.wait(harness.PATIENCE_S)
        for host in HOSTS:
            harness.kill(harness.processes_of(self.place / host))


@contextlib.contextmanager
def running(
    place: Path, name: str, jobs: tuple[str, ...], *settings: str
) -> Iterator[tuple[Site, SparkCluster, subprocess.Popen[bytes]]]:
    """Run jobs in drivers on two hosts; yield the site, Spark's cluster and the JobManager."""
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
            site.begin(host, "taskmanager", *few, *settings)
        brought = (*SMALL, *on(cluster), "--name", name, str(app), str(place), *jobs)
        jobmanager = site.begin(LEADS, "jobmanager", *brought)
        try:
            yield site, cluster, jobmanager
        except AssertionError as error:
            raise AssertionError(f"{error}\n{site.story()}") from error
