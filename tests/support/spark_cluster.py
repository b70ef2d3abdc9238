"""Real Spark standalone clusters for tests: Masters and Workers from PySpark's own jars.

A cluster listens only on loopback, or on a host of a test's network. It ends with the process that
started it, even after a kill: the kernel kills Masters and Workers, and executors end once their
Worker is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from pyspark.find_spark_home import _find_spark_home

from tests.support.daemons import Servers
from tests.support.zookeeper import LOOPBACK, free_port, launch
from understudy.spark import properties
from understudy.spark.java import VECTOR_MODULE, Java, find_java

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

PATIENCE_S = 300.0
"""A Master serves after two seconds, an executor after three; on a machine with thirty busy
processes both have taken two minutes."""

ANSWER_S = 5.0
POLL_S = 0.05

TRIES = 5
"""Another process may take a free port before the Master binds it."""

MARK = "UNDERSTUDY_TESTS_SPARK_CLUSTER"
"""Environment variable with the directory of a process's cluster: Workers pass it on to executors,
and executors to the Python workers of their tasks."""

QUICK_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

CONF = {
    # Otherwise each Master takes port 6066 too.
    "spark.master.rest.enabled": "false",
    # A restarted Master knows after this time which applications and Workers are gone; the default
    # is a minute.
    "spark.worker.timeout": "20",
}

LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class Application:
    """A Spark application, as reported by the Master."""

    id: str
    name: str
    cores: int
    """Cores granted by the Master."""
    state: str


@dataclass(frozen=True)
class State:
    """The state of a cluster, as reported by a Master."""

    status: str
    """ALIVE, STANDBY, RECOVERING …"""
    cores: int
    cores_used: int
    living: frozenset[str]
    """Ids of the Workers that the Master holds for alive: a killed one too, until it notices."""
    active: tuple[Application, ...]
    completed: tuple[Application, ...]
    """The newest last; the Master keeps 200."""

    @property
    def workers(self) -> int:
        """Return the number of living Workers."""
        return len(self.living)

    @property
    def names(self) -> list[str]:
        """Return the names of the active applications."""
        return [application.name for application in self.active]

    @property
    def idle(self) -> bool:
        """Return whether no application is registered and all cores are free."""
        return not self.active and not self.cores_used

    def application(self, name: str) -> Application:
        """Return the active application with a name."""
        return next(one for one in self.active if one.name == name)


class Daemon:
    """The JVM of a Master or a Worker; killed with its parent process."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.process.pid

    @property
    def runs(self) -> bool:
        """Return whether the process runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill the process (SIGKILL); return when it is dead. Idempotent."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def last_lines(self) -> str:
        """Return the end of the log, for the message of a failing test."""
        lines = self.log.read_text(errors="replace").splitlines()[-20:]
        return "\n".join([f"--- {self.name} ---", *lines])


class Worker(Daemon):
    """A Worker with the directory of its executors."""

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], log: Path, directory: Path
    ) -> None:
        super().__init__(name, process, log)
        self.directory = directory

    def executors(self) -> dict[int, str]:
        """Return the Worker's executor processes and the application of each.

        Works after the Worker's death too.
        """
        found = {}
        for pid in _processes():
            with contextlib.suppress(OSError):
                place = Path(f"/proc/{pid}/cwd").readlink()  # …/<application id>/<number>
                line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if place.parent.parent == self.directory and EXECUTOR.encode() in line:
                    found[pid] = place.parent.name
        return found


@dataclass
class _Seat:
    """The ports of a Master, kept across its restarts."""

    port: int
    page: int
    daemon: Daemon | None = None

    @property
    def runs(self) -> bool:
        return self.daemon is not None and self.daemon.runs


class SparkCluster(Servers):
    """A standalone cluster; nothing runs before `start`.

    Without ``ha`` there is one Master, which keeps its recovery state in a file. With ``ha``, the
    connect string of a ZooKeeper, there are two Masters, and one of them leads. All listen at
    ``host``; ``prefix`` is put before their command lines (a network namespace). ``conf``, which
    may hold secrets, is in a file that only its owner can read.
    """

    def __init__(
        self,
        directory: Path,
        workers: int = 2,
        cores: int = 2,
        memory: str = "8g",
        *,
        ha: str | None = None,
        conf: dict[str, str] | None = None,
        host: str = LOOPBACK,
        prefix: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.host = host
        self.workers: list[Worker] = []
        """The started Workers without those killed by `kill_worker`."""
        self._count = workers
        self._sizes = ["--cores", str(cores), "--memory", memory]
        self._started = 0
        self._daemons: list[Daemon] = []
        self._seats = [_Seat(0, 0) for _ in range(2 if ha else 1)]
        self._options = {**CONF, **self._recovery(ha)}
        self._conf = conf or {}
        self._settings = directory / "settings"
        self._java = find_java()
        self._prefix = (*prefix,)

    @property
    def url(self) -> str:
        """Return the value for ``--master``."""
        return "spark://" + ",".join(f"{self.host}:{seat.port}" for seat in self._seats)

    @property
    def cores(self) -> int:
        """Return the number of cores of the initial Workers."""
        return self._count * int(self._sizes[1])

    # --- state ------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return the leading Master's state; raises ``AssertionError`` if none leads."""
        states = [self._ask(seat) for seat in self._seats if seat.runs]
        leading = [state for state in states if state is not None and state.status == "ALIVE"]
        assert leading, f"no Master leads: {states}\n{self.story()}"
        return leading[0]

    def await_state(
        self, holds: Callable[[State], bool], timeout_s: float = PATIENCE_S, what: str = "it"
    ) -> State:
        """Poll until a condition on the leading Master's state holds; return the state.

        While no Master leads, no condition holds. Raises ``AssertionError`` with the last state.
        """
        last: State | None = None

        def look() -> bool:
            nonlocal last
            with contextlib.suppress(AssertionError):
                last = self.state()
                return holds(last)
            return False

        _until(look, lambda: f"{what} does not come: {last}\n{self.story()}", timeout_s)
        assert last is not None
        return last

    def await_idle(self, timeout_s: float = PATIENCE_S) -> State:
        """Wait until no application is registered, no core is used and no executor runs.

        An executor ends a moment after the Master counts its cores as free.
        """
        state = self.await_state(lambda state: state.idle, timeout_s, "an idle cluster")
        _until(
            lambda: not self.executors(),
            lambda: f"executors stay: {self.executors()}\n{self.story()}",
            timeout_s,
        )
        return state

    def executors(self) -> dict[int, str]:
        """Return the executors of all Workers, killed ones too, and the application of each."""
        started = [one for one in self._daemons if isinstance(one, Worker)]
        return {pid: name for worker in started for pid, name in worker.executors().items()}

    def processes(self) -> dict[int, str]:
        """Return all processes of the cluster: Masters, Workers, executors, Python workers."""
        mark = f"{MARK}={self.directory}".encode()
        found = {}
        for pid in _processes():
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                    found[pid] = line.replace(b"\0", b" ").decode(errors="replace")
        return found

    def story(self) -> str:
        """Return the ends of the logs, for the message of a failing test."""
        return "\n".join(daemon.last_lines() for daemon in self._daemons)

    # --- actions ----------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start Masters and Workers; return when the leading Master knows all Workers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.properties").write_text(LOGGING)
        properties.write(self._settings, self._conf)
        if not self._java.has_vector_module:
            self._java = _without_vector_module(self._java, self.directory / "java")
        for seat in self._seats:
            self._start_master_on_free_ports(seat)
        for _ in range(self._count):
            self.start_worker(wait=False)
        self.await_state(lambda state: state.workers == self._count, what="Workers")
        return self

    def start_worker(self, *, wait: bool = True) -> Worker:
        """Start one more Worker; return when the leading Master knows it."""
        before = self.state().living if wait else frozenset()
        self._started += 1
        name = f"worker-{self._started}"
        directory = self.directory / name
        directory.mkdir()
        places = ["--port", "0", "--webui-port", "0", "--work-dir", str(directory)]
        process, log = self._launch(name, WORKER, [*self._sizes, *places, self.url])
        worker = Worker(name, process, log, directory)
        self.workers.append(worker)
        self._daemons.append(worker)
        if wait:
            self.await_state(lambda state: bool(state.living - before), what=name)
        return worker

    def kill_worker(self, worker: Worker | None = None) -> Worker:
        """Kill a Worker, the first by default; its executors then end themselves."""
        killed = worker or self.workers[0]
        self.workers.remove(killed)
        killed.kill()
        return killed

    def kill_master(self) -> None:
        """Kill the leading Master; with ``ha`` the other one leads next."""
        for seat in self._seats:
            state = self._ask(seat) if seat.runs else None
            if state is not None and state.status == "ALIVE":
                assert seat.daemon is not None
                seat.daemon.kill()
                return
        raise AssertionError(f"no Master leads\n{self.story()}")

    def restart_master(self) -> None:
        """Start each stopped Master on its old ports; return when one leads with all Workers.

        The Master recovers the applications and Workers that still run.
        """
        for seat in self._seats:
            if not seat.runs:
                self._start_master(seat)
        for seat in self._seats:
            self._await_answer(seat)
        count = len([worker for worker in self.workers if worker.runs])
        self.await_state(lambda state: state.workers >= count, what="a Master with its Workers")

    def kill(self) -> None:
        """Kill all processes of the cluster; return when none is left."""
        for daemon in reversed(self._daemons):
            daemon.kill()

        def none_left() -> bool:
            for pid in (left := self.processes()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        _until(none_left, lambda: f"processes stay: {self.processes()}")

    # --- details ----------------------------------------------------------------------------------

    def _recovery(self, ha: str | None) -> dict[str, str]:
        if ha is None:
            return {
                "spark.deploy.recoveryMode": "FILESYSTEM",
                "spark.deploy.recoveryDirectory": str(self.directory / "recovery"),
            }
        return {
            "spark.deploy.recoveryMode": "ZOOKEEPER",
            "spark.deploy.zookeeper.url": ha,
            "spark.deploy.zookeeper.dir": f"/spark-{self.directory.name}",
        }

    def _start_master_on_free_ports(self, seat: _Seat) -> None:
        for left in reversed(range(TRIES)):
            seat.port, seat.page = free_port(), free_port()
            daemon = self._start_master(seat)
            try:
                self._await_answer(seat)
            except AssertionError:
                if not left or "BindException" not in daemon.log.read_text():
                    raise
                daemon.kill()
                self._daemons.remove(daemon)
            else:
                return

    def _start_master(self, seat: _Seat) -> Daemon:
        self._started += 1
        name = f"master-{self._started}"
        ports = ["--port", str(seat.port), "--webui-port", str(seat.page)]
        process, log = self._launch(name, MASTER, ports)
        seat.daemon = Daemon(name, process, log)
        self._daemons.append(seat.daemon)
        return seat.daemon

    def _await_answer(self, seat: _Seat) -> None:
        """Wait until a Master answers at its own port (a taken port makes it use the next)."""

        def answers() -> bool:
            assert seat.runs, f"a Master has ended\n{self.story()}"
            return self._ask(seat) is not None

        _until(answers, lambda: f"a Master does not answer\n{self.story()}")

    def _ask(self, seat: _Seat) -> State | None:
        try:
            page = f"http://{self.host}:{seat.page}/json/"
            with urllib.request.urlopen(page, timeout=ANSWER_S) as answer:
                told = json.load(answer)
        except (OSError, ValueError):
            return None
        if told["url"] != f"spark://{self.host}:{seat.port}":
            return None  # Another server has taken that port.
        return _state(told)

    def _launch(
        self, name: str, main: str, line: list[str]
    ) -> tuple[subprocess.Popen[bytes], Path]:
        home = os.environ.get("SPARK_HOME") or _find_spark_home()
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            # Without SPARK_HOME and SPARK_SCALA_VERSION a Worker cannot start an executor: "Cannot
            # find any build directories".
            "SPARK_SCALA_VERSION": "2.13",
            "JAVA_HOME": str(self._java.home),
            "SPARK_LOCAL_IP": self.host,
            "SPARK_PUBLIC_DNS": self.host,
            "PYSPARK_PYTHON": sys.executable,
            MARK: str(self.directory),
        }
        command = [
            *(*self._prefix, self._java.program, *QUICK_JVM),
            *(f"-D{key}={text}" for key, text in self._options.items()),
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            *("-cp", str(Path(home) / "jars" / "*"), main, "--host", self.host),
            *("--properties-file", str(self._settings), *line),
        ]
        log = self.directory / f"{name}.log"
        with log.open("ab") as output:
            return launch(command, output.fileno(), environment), log


def _state(told: dict[str, Any]) -> State:
    active, completed = (
        tuple(Application(one["id"], one["name"], one["cores"], one["state"]) for one in told[kind])
        for kind in ("activeapps", "completedapps")
    )
    # The Master writes its sums before the list, and a Worker may be lost in between.
    living = {one["id"]: one["cores"] for one in told["workers"] if one["state"] == "ALIVE"}
    cores = sum(living.values())
    return State(told["status"], cores, told["coresused"], frozenset(living), active, completed)


def _without_vector_module(java: Java, home: Path) -> Java:
    """Create a Java home whose launcher drops the module that Spark demands of executors."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    for path in java.home.iterdir():
        if path.name != "bin":
            (home / path.name).symlink_to(path)
    program.write_text(
        "#!/bin/sh\n"
        "for word do\n"
        "    shift\n"
        f'    [ "$word" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$word"\n'
        "done\n"
        f'exec "{java.program}" "$@"\n'
    )
    program.chmod(0o755)
    return Java(home, java.version, has_vector_module=True)


def _until(
    holds: Callable[[], bool], otherwise: Callable[[], str], timeout_s: float = PATIENCE_S
) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(POLL_S)


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


@pytest.fixture(scope="session")
def shared_spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Start a cluster of one Worker with four cores, for all tests of a pytest process.

    One Worker gives an application one executor instead of two; what needs two Workers starts them.
    """
    place = tmp_path_factory.mktemp("spark-cluster")
    with SparkCluster(place, workers=1, cores=4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spark_cluster(shared_spark_cluster: SparkCluster) -> SparkCluster:
    """Return the shared cluster once it is idle.

    Tests leave the cluster unchanged. A test that kills a Master or a Worker needs its own cluster.
    """
    shared_spark_cluster.await_idle()
    return shared_spark_cluster
