"""A cluster of ours as it is on several hosts: single processes that find each other by a backend.

Each has scratch of its own (``io.tmp.dirs``): the liveness lock of one is out of the others' reach,
as it would be on other hosts. What tells the standby of a death is the backend alone.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.clusters import APPS
from benchmarks.zookeeper import moments, processes
from benchmarks.zookeeper.moments import Failover
from benchmarks.zookeeper.processes import Process
from tests.journeys import harness
from tests.support.zookeeper import free_port
from understudy.api import own_headers

HOST = "host"
"""What is lost with a host: the leader, and its guardian before it can say so."""

POD = "pod"
"""Of a pod that is deleted, process 1 gets SIGTERM: the guardian."""

SESSION_LESS = {"taskmanager.driver.type": "session-less"}
ON_SPARK = {"spark.master": "local[2]"}


@dataclass(frozen=True)
class Leader:
    """Who leads."""

    slot: int
    holder: str
    """How it signs its answers; a standby that hands a question on gives its signature back."""

    pid: int
    guardian_pid: int


class Ours:
    """Two JobManagers and a TaskManager that run ``steps.py``."""

    def __init__(self, place: Path, options: dict[str, str], how: str) -> None:
        self.place = place
        self._how = [how] if how else []
        self.ports = {0: free_port(), 1: free_port()}
        self.managers: dict[int, Process] = {}
        self.all: list[Process] = []
        self._options = {"high-availability.cluster-id": "bench", **options}
        place.mkdir(parents=True)

    def start_manager(self, slot: int) -> None:
        """Start a JobManager."""
        app = [str(APPS / "steps.py"), *self._how]
        line = ["--port", str(self.ports[slot]), "--run-id", "bench", *app]
        self.managers[slot] = self._start("jobmanager", slot, line)

    def start_taskmanager(self) -> None:
        """Start the TaskManager."""
        self._start("taskmanager", 0, [])

    def ask(self, slot: int, path: str) -> tuple[Any, str]:
        """Return what a JobManager's REST endpoint answers, and who has given it."""
        url = f"http://127.0.0.1:{self.ports[slot]}{path}"
        answer, headers = processes.get(url)
        return answer, headers.get(own_headers.GIVEN_BY, "")

    def ready(self) -> Leader:
        """Wait until somebody leads and a standby is ready; return who leads."""

        def look() -> Leader | None:
            self._tend()
            status, given_by = self.ask(0, "/ha/status")
            if status is None or not any(one["ready"] for one in status["standbys"]):
                return None
            found = status["leader"]
            port = int(found["rest"].rpartition(":")[2])
            slot = next(slot for slot, its in self.ports.items() if its == port)
            return Leader(slot, given_by, found["pid"], found["guardian_pid"])

        return processes.until("a standby", look, self.all)

    def close(self) -> None:
        """Let the job end, and everything with it; what remains is killed."""
        (self.place / "go").touch()
        for process in self.all:
            process.stop()
        # One that is being killed may have begun another: until none is left.
        while found := harness.processes_of(self.place):
            harness.kill(found)

    def _tend(self) -> None:
        """Start again who has ended by itself: a leader that could not keep its session."""
        for slot, process in self.managers.items():
            if process.ended:
                self.start_manager(slot)

    def _start(self, role: str, number: int, line: list[str]) -> Process:
        scratch = self.place / f"host-of-{role}-{number}"
        scratch.mkdir(exist_ok=True)
        settings = {**self._options, "io.tmp.dirs": str(scratch)}
        options = [word for key, text in settings.items() for word in ("-D", f"{key}={text}")]
        command = [sys.executable, "-m", "understudy", role, *options, *line]
        variables = {"XDG_STATE_HOME": str(self.place / "state"), "PYTHONUNBUFFERED": "1"}
        process = processes.start(f"{role}-{number}", command, self.place, variables)
        self.all.append(process)
        return process


@contextlib.contextmanager
def cluster(place: Path, options: dict[str, str], how: str) -> Iterator[Ours]:
    """Have a cluster, with the job running and a standby ready, as long as the block lasts."""
    found = Ours(place, options, how)
    try:
        for slot in (0, 1):
            found.start_manager(slot)
        found.start_taskmanager()
        processes.until("steps", lambda: moments.goes(place / "steps.jsonl"), found.all)
        yield found
    finally:
        found.close()


def on_zookeeper(place: Path, quorum: str) -> dict[str, str]:
    """Return the options of a cluster on ZooKeeper; each place has its own part of it."""
    return {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": quorum,
        "high-availability.zookeeper.path.root": f"/ours-{place.name}",
    }


def failovers(
    place: Path,
    kinds: dict[signal.Signals | str, int],
    options: dict[str, str],
    how: str = "",
) -> dict[signal.Signals | str, list[Failover]]:
    """End the leader so often in each way; a new standby is ready before the next time."""
    with cluster(place, options, how) as one:
        return {
            kind: [_fail_over(one, kind) for _ in range(often)] for kind, often in kinds.items()
        }


def _fail_over(one: Ours, kind: signal.Signals | str) -> Failover:
    leader = one.ready()
    if isinstance(kind, signal.Signals):
        killed = processes.send(kind, leader.pid)
    elif kind == POD:
        killed = processes.send(signal.SIGTERM, leader.guardian_pid)
    else:
        killed = processes.send(signal.SIGKILL, leader.guardian_pid, leader.pid)

    def look() -> tuple[bool, bool]:
        answer, given_by = one.ask(1 - leader.slot, "/jobs/overview")
        # A standby hands questions on as long as the old leader answers them.
        if answer is None or given_by == leader.holder:
            return False, False
        return True, [job["state"] for job in answer["jobs"]] == ["RUNNING"]

    found = moments.judge(one.place / "steps.jsonl", killed, *moments.watch(look, killed))
    one.managers[leader.slot].stop()
    one.start_manager(leader.slot)
    return found
