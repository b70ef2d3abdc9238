"""What the API server is asked for, as its audit log has it: by an idle cluster, and by a job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks import clusters
from benchmarks.clusters import cluster
from benchmarks.figures import Chapter, Effort, Table
from benchmarks.kubernetes.failover import on_kubernetes
from benchmarks.zookeeper import processes
from benchmarks.zookeeper.processes import Process
from tests.kubernetes.control_plane import ControlPlane
from tests.support.zookeeper import free_port
from understudy.clock import SystemClock
from understudy.config import Configuration, options
from understudy.core.lease import Timing
from understudy.ha.backends.kubernetes.register import open_register
from understudy.ha.retrieval import retrieve

JOBMANAGERS, TASKMANAGERS = 3, 100
READS = frozenset({"get", "list"})
LOOK_S = 0.5
FEW, MANY = 2, 12
"""Jobs of two applications: what one more job costs is their difference."""


def run(effort: Effort, plane: ControlPlane, place: Path) -> Chapter:
    """Count the requests of an idle cluster, and the writes that a job adds."""
    retry_s = Configuration({}).get(options.RETRY_PERIOD)
    idle_s = retry_s * effort.of(30, 5)
    idle = _idle(plane, place, idle_s)
    writes = {jobs: _writes(plane, jobs) for jobs in (FEW, MANY)}
    per_job = (writes[MANY] - writes[FEW]) / (MANY - FEW)
    renewals = idle.pop("patch leases", 0)
    reads = sum(count for what, count in idle.items() if what.partition(" ")[0] in READS)
    others = sum(idle.values()) - reads
    return Chapter(
        "What the API server is asked for",
        f"Counted by the audit log of the API server. An idle session of {JOBMANAGERS} JobManagers "
        f"and {TASKMANAGERS} TaskManagers, for {idle_s:g} s, with a retry period of {retry_s:g} s; "
        "the TaskManagers are one process that follows the leader with "
        f"{TASKMANAGERS} registers of the product, as each TaskManager does. Then two "
        f"applications, of {FEW} and {MANY} jobs that return at once, from their submission "
        "until they are cleaned up; renewals of the lease and Events are left out.",
        (
            Table(
                ("an idle cluster", "requests", "in a retry period"),
                tuple(
                    (what, str(count), f"{count * retry_s / idle_s:.2f}")
                    for what, count in (
                        ("renewals of the lease", renewals),
                        ("reads", reads),
                        ("watches that begin again, and others", others),
                    )
                ),
            ),
            Table(
                ("writes of an application", "all", "for each further job"),
                (
                    (f"of {FEW} jobs", str(writes[FEW]), ""),
                    (f"of {MANY} jobs", str(writes[MANY]), f"{per_job:.1f}"),
                ),
            ),
        ),
        f"An idle cluster of {JOBMANAGERS} JobManagers and {TASKMANAGERS} TaskManagers sends "
        f"{renewals * retry_s / idle_s:.2f} writes and {reads * retry_s / idle_s:.2f} reads in a "
        f"retry period; a job costs {per_job:.1f} writes from its submission until it is cleaned "
        "up.",
    )


# --- idle --------------------------------------------------------------------------------------


def _idle(plane: ControlPlane, place: Path, idle_s: float) -> Counter[str]:
    with plane.namespace() as namespace:
        settings = {
            **on_kubernetes(plane, namespace),
            "high-availability.cluster-id": "idle",
            "jobmanager.session": "true",
        }
        plane.audit.begin()
        with _session(place / "idle", settings):
            watches = JOBMANAGERS + TASKMANAGERS
            processes.until(
                "watches", lambda: _watches(plane, namespace) >= watches, pause_s=LOOK_S
            )
            plane.audit.begin()
            time.sleep(idle_s)  # What is counted is what happens in this time.
            asked = plane.audit.requests(namespace=namespace)
    return Counter(f"{one.verb} {one.resource}" for one in asked)


@contextlib.contextmanager
def _session(place: Path, settings: dict[str, str]) -> Iterator[None]:
    """Have an idle session, with all its followers, as long as the block lasts."""
    place.mkdir()
    words = [word for key, text in settings.items() for word in ("-D", f"{key}={text}")]
    ports = [free_port() for _ in range(JOBMANAGERS)]
    line = [sys.executable, "-m", "understudy", "jobmanager", *words]
    state = {"XDG_STATE_HOME": str(place / "state")}
    all_: list[Process] = []
    try:
        for number, port in enumerate(ports):
            command = [*line, "--port", port]
            all_.append(processes.start(f"jobmanager-{number}", command, place, state))
        followers = [sys.executable, "-m", "benchmarks.kubernetes.load", json.dumps(settings)]
        all_.append(processes.start("followers", followers, place, _here()))
        processes.until("standbys", lambda: _is_complete(ports[0]), all_)
        processes.until("followers", lambda: _follow(all_[-1]), all_)
        yield
    finally:
        for one in all_:
            one.stop()


def _watches(plane: ControlPlane, namespace: str) -> int:
    """Return how many watches of the leader have begun, by everybody who follows it."""
    return sum(
        (one.verb, one.resource) == ("watch", "leases")
        for one in plane.audit.requests(namespace=namespace)
    )


def _is_complete(port: int) -> bool:
    status, _ = processes.get(f"http://127.0.0.1:{port}/ha/status")
    return status is not None and len(status["standbys"]) == JOBMANAGERS - 1


def _follow(process: Process) -> bool:
    return process.log.read_text().count("follows") == TASKMANAGERS


def _here() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(filter(None, sys.path))}


async def _follow_all(settings: dict[str, str]) -> None:
    """Follow the leader as so many TaskManagers do: each has a register and a watch of its own."""
    lease_s = Timing.of(Configuration(settings)).lease_s

    async def follow() -> None:
        register = open_register("idle", settings)
        async for leader in retrieve(register, SystemClock(), lease_s):
            if leader:
                print("follows", flush=True)

    await asyncio.gather(*(follow() for _ in range(TASKMANAGERS)))


# --- a job -------------------------------------------------------------------------------------


def _writes(plane: ControlPlane, jobs: int) -> int:
    """Return how many writes an application of so many empty jobs costs, until it is cleaned up."""
    with plane.namespace() as namespace:
        there = on_kubernetes(plane, namespace)
        words = tuple(word for key, text in there.items() for word in ("-D", f"{key}={text}"))
        plane.audit.begin()
        with cluster("jobs.py", jobs - 1, options=words) as one:
            one.release()
            clusters.end(one)
        asked = plane.audit.requests(namespace=namespace)
    return sum(
        one.is_write and one.resource not in {"leases", "events"} and one.code < 300
        for one in asked
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_follow_all(json.loads(sys.argv[1])))
