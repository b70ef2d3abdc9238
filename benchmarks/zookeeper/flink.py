"""A Flink standalone cluster with ZooKeeper, started from the jars without Flink's scripts."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.zookeeper import moments, processes
from benchmarks.zookeeper.moments import Failover
from benchmarks.zookeeper.processes import Process, java_command
from tests.support.zookeeper import free_port
from tests.versions import ground
from understudy.config.configuration import cache_home
from understudy.spark.java import find_java

PINNED = ground.REQUIREMENTS / "flink.txt"
JAVA = Path(__file__).with_name("java")

SESSION = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
APPLICATION = "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint"
TASKMANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
CLIENT = "org.apache.flink.client.cli.CliFrontend"

CHECKPOINTS_BEFORE = 3
"""So many are complete on a new leader before it is killed."""

SIZES = {
    "taskmanager.cpu.cores": "1.0",
    "taskmanager.memory.task.heap.size": "256m",
    "taskmanager.memory.task.off-heap.size": "0m",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.network.min": "32m",
    "taskmanager.memory.network.max": "32m",
    "taskmanager.memory.managed.size": "32m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
}
"""A TaskManager whose size the scripts have not computed must be told it."""

LOOPBACK = {
    "jobmanager.rpc.address": "127.0.0.1",
    "jobmanager.bind-host": "127.0.0.1",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
}


def jars() -> Path:
    """Return Flink's jars, fetched into the user's cache at the first call (350 MB).

    Raises `subprocess.CalledProcessError` where they cannot be fetched.
    """
    home = cache_home() / "tests" / f"flink-{version()}"
    return ground.fetched(PINNED, home) / "pyflink" / "lib"


def version() -> str:
    """Return which Flink it is."""
    found = re.search(r"==([0-9.]+)", PINNED.read_text())
    assert found, PINNED
    return found[1]


def java() -> str:
    """Return which Java runs it, and the other two."""
    return str(find_java().version)


class Flink:
    """Up to two JobManagers and a TaskManager, in a directory of their own."""

    def __init__(self, place: Path, quorum: str, **changes: str) -> None:
        self.place = place
        self.managers: dict[int, Process] = {}
        self._ports = {0: free_port(), 1: free_port()}
        self._jars = [jars() / "*"]
        self._others: list[Process] = []
        settings = {
            **LOOPBACK,
            **SIZES,
            "taskmanager.numberOfTaskSlots": "2",
            "parallelism.default": "1",
            "jobmanager.memory.heap.size": "512m",
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": quorum,
            "high-availability.zookeeper.path.root": f"/flink-{place.name}",
            "high-availability.storageDir": f"file://{place}/ha",
            "high-availability.cluster-id": "/bench",
            "execution.checkpointing.storage": "filesystem",
            "execution.checkpointing.dir": f"file://{place}/checkpoints",
            "state.backend.type": "hashmap",
            **changes,
        }
        self._heap = settings["jobmanager.memory.heap.size"]
        place.mkdir(parents=True)
        lines = [f"{key}: {text}\n" for key, text in settings.items()]
        (place / "config.yaml").write_text("".join(lines))
        (place / "log4j2.properties").write_text(processes.LOGGING)

    def start_manager(
        self,
        slot: int,
        main: str = SESSION,
        more: Sequence[Path] = (),
        arguments: Sequence[object] = (),
    ) -> Process:
        """Start a JobManager; return when its REST endpoint answers."""
        line = java_command(
            main,
            [*self._jars, *more],
            self._options(self._heap),
            ["--configDir", self.place, "-D", f"rest.port={self._ports[slot]}", *arguments],
        )
        process = self.managers[slot] = processes.start(f"jobmanager-{slot}", line, self.place)
        processes.until("REST", lambda: self.ask(slot, "/overview", 1.0), [process])
        return process

    def start_taskmanager(self, more: Sequence[Path] = ()) -> None:
        """Start the TaskManager; return when the JobManager knows of its slots."""
        options = [
            *self._options("448m"),
            "-XX:MaxDirectMemorySize=192m",
            "-XX:MaxMetaspaceSize=256m",
        ]
        line = java_command(TASKMANAGER, [*self._jars, *more], options, ["--configDir", self.place])
        self._others.append(processes.start("taskmanager", line, self.place))

        def registered() -> bool:
            answer = self.ask(0, "/overview", 1.0)
            return bool(answer and answer.get("slots-total"))

        processes.until("slots", registered, [*self.managers.values(), *self._others])

    def submit(self, jar: Path, *arguments: object) -> str:
        """Submit a jar with the client; return the job's id."""
        line = java_command(
            CLIENT,
            self._jars,
            self._options("256m"),
            ["run", "-d", "-c", jar.stem, jar, *arguments],
        )
        variables = {**os.environ, "FLINK_CONF_DIR": str(self.place)}
        done = subprocess.run(line, env=variables, capture_output=True, text=True, check=False)
        found = re.search(r"JobID ([0-9a-f]{32})", done.stdout)
        assert found, done.stdout + done.stderr
        return found[1]

    def ask(self, slot: int, path: str, timeout_s: float = processes.ANSWER_S) -> Any:
        """Return what a JobManager's REST endpoint answers; None if it does not."""
        return processes.get(self.url(slot, path), timeout_s)[0]

    def url(self, slot: int, path: str) -> str:
        """Return where a JobManager's REST endpoint has something."""
        return f"http://127.0.0.1:{self._ports[slot]}{path}"

    def job(self, slot: int, job_id: str) -> dict[str, Any] | None:
        """Return a job as a JobManager shows it."""
        answer = self.ask(slot, "/jobs/overview") or {}
        return next((one for one in answer.get("jobs", ()) if one["jid"] == job_id), None)

    def checkpoints(self, slot: int, job_id: str, since: float) -> int:
        """Return how many checkpoints that began since then are complete."""
        answer = self.ask(slot, f"/jobs/{job_id}/checkpoints", 1.0) or {}
        return sum(
            one["status"] == "COMPLETED" and one["trigger_timestamp"] > since * 1000
            for one in answer.get("history", ())
        )

    def cancel(self, slot: int, job_id: str) -> None:
        """Cancel a job; return when it has ended."""
        request = urllib.request.Request(self.url(slot, f"/jobs/{job_id}"), method="PATCH")
        urllib.request.urlopen(request).close()

        def ended() -> bool:
            job = self.job(slot, job_id)
            return job is not None and job["state"] == "CANCELED"

        processes.until("the end of the job", ended, [*self.managers.values()])

    def close(self) -> None:
        """End all of it."""
        for process in (*self.managers.values(), *self._others):
            process.kill()

    def _options(self, heap: str) -> list[str]:
        where = self.place / "log4j2.properties"
        return [
            f"-Xmx{heap}",
            f"-Dlog4j2.configurationFile={where}",
            f"-Dlog4j.configurationFile={where}",
        ]


@contextlib.contextmanager
def cluster(place: Path, quorum: str, **changes: str) -> Iterator[Flink]:
    """Have a cluster as long as the block lasts; nothing of it runs yet."""
    found = Flink(place, quorum, **changes)
    try:
        yield found
    finally:
        found.close()


def failovers(
    place: Path, quorum: str, kinds: dict[signal.Signals, int], **changes: str
) -> dict[signal.Signals, list[Failover]]:
    """End the leader of a session cluster with one streaming job so often with each signal."""
    notes = place / "steps.jsonl"
    with cluster(place, quorum, **{"execution.checkpointing.interval": "1 s"}, **changes) as one:
        jar = processes.compiled(JAVA / "StreamJob.java", [jars() / "*"], place)
        one.start_manager(0)
        one.start_taskmanager()
        job_id = one.submit(jar, notes)
        processes.until("steps", lambda: moments.goes(notes), [*one.managers.values()])
        leader = 0
        found: dict[signal.Signals, list[Failover]] = {}
        for number, often in kinds.items():
            found[number] = []
            for _ in range(often):
                found[number].append(_fail_over(one, leader, job_id, number, notes))
                leader = 1 - leader
        return found


def _fail_over(
    one: Flink, leader: int, job_id: str, number: signal.Signals, notes: Path
) -> Failover:
    one.start_manager(1 - leader)
    began = time.time()
    processes.until(
        "checkpoints", lambda: one.checkpoints(leader, job_id, began) >= CHECKPOINTS_BEFORE
    )
    killed = processes.send(number, one.managers[leader].popen.pid)

    def look() -> tuple[bool, bool]:
        job = one.job(1 - leader, job_id)
        # What the standby still has from the leader that ends does not count.
        if job is None or job["start-time"] <= killed * 1000:
            return False, False
        tasks = job["tasks"]
        return True, job["state"] == "RUNNING" and tasks["running"] == tasks["total"]

    found = moments.judge(notes, killed, *moments.watch(look, killed))
    one.managers[leader].stop()
    return found
