"""``python -m benchmarks.losses``: what each loss costs a cluster of several hosts, measured.

Three hosts (network namespaces), one ZooKeeper server, timeouts as they are by default. While a job
runs, something is lost; noted is when somebody leads again, and what became of the job. Prints the
table of docs/many-machines.md.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.journeys import harness
from tests.journeys.many_hosts import Hosts
from tests.support.namespaces import OUTSIDE, Network
from tests.support.zookeeper import Server

SHORT_S, LONG_S = 8.0, 40.0
"""How long the quorum is away: less, and more, than the session timeout of 20 s."""

POLL_S = 0.02
PATIENCE_S = 150.0
HEAD = "| what is lost | somebody leads after | the running job |\n|---|---:|---|"


class Scene:
    """A cluster with a running job: JobManagers on alpha and beta, TaskManagers on beta, gamma."""

    def __init__(self, hosts: Hosts, server: Server) -> None:
        self.hosts = hosts
        self.server = server
        impatient = {option.removeprefix("-D ").split("=")[0] for option in harness.IMPATIENT}
        session = "high-availability.zookeeper.client.session-timeout"
        hosts.settings = {
            key: text
            for key, text in hosts.settings.items()
            if key not in impatient and key != session
        }
        hosts.configure()
        hosts.ask_for(masters=["alpha", "beta"], workers=["beta", "gamma"])
        hosts.start()
        hosts.until(lambda: "long 1" in hosts.lines("jobs.txt"), "the job does not run")
        self.host_of_leader = self._host_of_leader()

    def _host_of_leader(self) -> str:
        said = self.hosts.cluster("status", "--json", code=None).splitlines()[0]
        leading = next(one["host"] for one in json.loads(said)["processes"] if one["leads"])
        return next(name for name in self.hosts.names if self.hosts.address(name) == leading)

    def mains(self) -> int:
        """Return how often ``main`` was executed: once for each leader that recovered."""
        return len(self.hosts.lines("main.txt"))

    def attempts(self) -> list[str]:
        """Return the attempts of the long job, in order."""
        return [line for line in self.hosts.lines("jobs.txt") if line.startswith("long")]


def until(holds: Callable[[], bool]) -> float:
    """Wait until something holds; return how long it took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError
        time.sleep(POLL_S)
    return time.monotonic() - began


def jobmanager_killed(scene: Scene) -> tuple[str, str]:
    """Kill the leader's process, not its guardian."""
    harness.kill([_worker(scene, scene.host_of_leader)])
    return _led_again(scene)


def leaders_host_lost(scene: Scene) -> tuple[str, str]:
    """Kill all that runs on the leader's host, guardians first."""
    scene.hosts.lose(scene.host_of_leader)
    return _led_again(scene)


def leaders_host_cut_off(scene: Scene) -> tuple[str, str]:
    """Let no packet of the leader's host arrive, nor any at it."""
    network = scene.hosts.network
    others = [name for name in network.hosts if name != scene.host_of_leader]
    network.partition(scene.host_of_leader, [OUTSIDE, *others])
    try:
        return _led_again(scene)
    finally:
        network.heal()


def taskmanagers_host_lost(scene: Scene) -> tuple[str, str]:
    """Kill all that runs on the host whose TaskManager runs the job."""
    # The leader may be on it, too: then the other one waits for what is silent from its grant on.
    scene.hosts.lose(next(name for name in ("gamma", "beta") if _runs_the_job(scene, name)))
    took = until(lambda: len(scene.attempts()) == 2)
    led = "the same leads" if scene.mains() == 1 else "another leads"
    return led, f"starts again after {took:.1f} s"


def quorum_lost_for_less(scene: Scene) -> tuple[str, str]:
    """Let the server be away for less than the session timeout."""
    return _without_server(scene, SHORT_S)


def quorum_lost_for_more(scene: Scene) -> tuple[str, str]:
    """Let the server be away for longer than the session timeout."""
    return _without_server(scene, LONG_S)


def _without_server(scene: Scene, seconds: float) -> tuple[str, str]:
    mains = scene.mains()
    scene.server.kill()
    time.sleep(seconds)
    scene.server.start()
    if seconds < LONG_S:
        time.sleep(5)
        led = "the same leads" if scene.mains() == mains else "another leads"
    else:
        led = f"{until(lambda: scene.mains() > mains):.1f} s after it is back"
    return led, _fate(scene)


def _led_again(scene: Scene) -> tuple[str, str]:
    mains = scene.mains()
    return f"{until(lambda: scene.mains() > mains):.1f} s", _fate(scene)


def _fate(scene: Scene) -> str:
    time.sleep(3)
    return "goes on" if len(scene.attempts()) == 1 else "starts again"


def _runs_the_job(scene: Scene, name: str) -> bool:
    """Say whether a driver of this host runs a job: it looks for the file ``go`` all the time."""
    drivers = [pid for pid, line in scene.hosts.processes(name).items() if "driver" in line]
    before = {pid: _switches(pid) for pid in drivers}
    time.sleep(1)
    return any(_switches(pid) - before[pid] > 20 for pid in drivers)


def _switches(pid: int) -> int:
    """Return how often the threads of a process have waited for something."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        words = status.read_text().split()
        found += int(words[words.index("voluntary_ctxt_switches:") + 1])
    return found


def _worker(scene: Scene, name: str) -> int:
    """Return the JobManager's own process on a host, not its guardian."""
    return next(
        pid
        for pid, line in scene.hosts.processes(name).items()
        if "understudy.cli.launch.jobmanager_process" in line and "guardian.py" not in line
    )


LOSSES: dict[str, Callable[[Scene], tuple[str, str]]] = {
    "the process of the leader (`kill -9`)": jobmanager_killed,
    "the leader's host, guardians too": leaders_host_lost,
    "the network of the leader's host": leaders_host_cut_off,
    "the host of the TaskManager that runs the job": taskmanagers_host_lost,
    f"the quorum, for {SHORT_S:g} s": quorum_lost_for_less,
    f"the quorum, for {LONG_S:g} s": quorum_lost_for_more,
}


@contextmanager
def scene() -> Iterator[Scene]:
    """Yield a cluster with a running job; nothing of it is left afterwards."""
    place = Path(tempfile.mkdtemp(prefix="understudy-losses-"))
    with Network(["alpha", "beta", "gamma"]) as network:
        address = network.address(OUTSIDE)
        with Server(place / "zookeeper", address, tick_ms=2000) as server:
            hosts = Hosts(place, network, server.connect_string)
            try:
                yield Scene(hosts, server)
            finally:
                hosts.close()
    shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    """Measure each loss, or those whose names hold a word that was given."""
    print(HEAD, flush=True)
    for name, lose in LOSSES.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        with scene() as stage:
            led, job = lose(stage)
        print(f"| {name} | {led} | {job} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
