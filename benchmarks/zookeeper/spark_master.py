"""Spark's standalone Master with recovery by ZooKeeper, started from PySpark's jars."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pyspark

from benchmarks.clusters import APPS
from benchmarks.zookeeper import moments, processes
from benchmarks.zookeeper.moments import Failover
from benchmarks.zookeeper.processes import Process, java_command
from tests.support.zookeeper import free_port

HOME = Path(pyspark.__file__).parent
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


class Standalone:
    """Two Masters, a Worker, and a PySpark driver in client mode."""

    def __init__(self, place: Path, quorum: str) -> None:
        self.place = place
        self.masters: dict[int, Process] = {}
        self._ports = {0: free_port(), 1: free_port()}
        self._pages = {0: free_port(), 1: free_port()}
        self._others: list[Process] = []
        self._options = [
            "-Xmx384m",
            "-Dspark.deploy.recoveryMode=ZOOKEEPER",
            f"-Dspark.deploy.zookeeper.url={quorum}",
            f"-Dspark.deploy.zookeeper.dir=/spark-{place.name}",
            f"-Dlog4j2.configurationFile={place}/log4j2.properties",
        ]
        self._variables = {
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_PUBLIC_DNS": "127.0.0.1",
            "SPARK_SCALA_VERSION": "2.13",
            "PYSPARK_PYTHON": sys.executable,
        }
        place.mkdir(parents=True)
        (place / "log4j2.properties").write_text(processes.LOGGING)

    def start_master(self, slot: int, status: str) -> None:
        """Start a Master; return when it says that it has a status."""
        self.masters[slot] = self._java(
            f"master-{slot}",
            MASTER,
            ["--port", self._ports[slot], "--webui-port", self._pages[slot]],
        )
        processes.until(
            f"a Master that is {status}",
            lambda: (self.ask(slot) or {}).get("status") == status,
            [self.masters[slot]],
        )

    def start_worker(self) -> None:
        """Start the Worker, and a driver that does one small job after the other."""
        url = "spark://" + ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        sizes = ["--cores", 2, "--memory", "1536m", "--webui-port", free_port()]
        line = [*sizes, "--work-dir", self.place / "work", url]
        self._others.append(self._java("worker", WORKER, line))
        processes.until("a Worker", lambda: (self.ask(0) or {}).get("aliveworkers"), self._others)
        command = [sys.executable, APPS / "plain_steps.py", url]
        self._others.append(processes.start("driver", command, self.place, self._variables))

    def ask(self, slot: int) -> dict[str, Any] | None:
        """Return what a Master says of itself."""
        found: dict[str, Any] | None
        found, _ = processes.get(f"http://127.0.0.1:{self._pages[slot]}/json/")
        return found

    def close(self) -> None:
        """End all of it: the driver first, so that its executors end."""
        for process in reversed(self._others):
            process.stop()
        for process in self.masters.values():
            process.kill()

    def _java(self, name: str, main: str, line: list[object]) -> Process:
        command = java_command(
            main, [HOME / "jars" / "*"], self._options, ["--host", "127.0.0.1", *line]
        )
        return processes.start(name, command, self.place, self._variables)


def failovers(place: Path, quorum: str, often: int) -> list[Failover]:
    """Kill the leading Master so often."""
    one = Standalone(place, quorum)
    try:
        one.start_master(0, "ALIVE")
        one.start_worker()
        notes = place / "steps.jsonl"
        processes.until("steps", lambda: moments.goes(notes))
        return [_fail_over(one, number % 2, notes) for number in range(often)]
    finally:
        one.close()


def _fail_over(one: Standalone, leader: int, notes: Path) -> Failover:
    one.start_master(1 - leader, "STANDBY")
    killed = processes.send(signal.SIGKILL, one.masters[leader].popen.pid)

    def look() -> tuple[bool, bool]:
        answer = one.ask(1 - leader) or {}
        leads = answer.get("status") == "ALIVE"
        return leads, leads and answer["aliveworkers"] == 1

    found = moments.judge(notes, killed, *moments.watch(look, killed))
    one.masters[leader].kill()
    return found
