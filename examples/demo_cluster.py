"""Run the pipeline on a Spark cluster, and kill one of each kind of process while it runs.

    make demo-cluster

Starts on loopback addresses of this machine: a ZooKeeper, a standalone Spark cluster (a Master and
two Workers), two JobManagers, and two TaskManagers, each with its own address. Runs ``flights.py``,
kills an executor, the leading JobManager, a driver and a Worker, each in the middle of a job, and
prints what was adopted, restarted and lost. Exits with 0 if the application has finished.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from demo import BOLD, DIM, GREEN, RED, paint
from pyspark.find_spark_home import _find_spark_home

from understudy.spark.java import find_java

HERE = Path(__file__).parent
LOOK_S = 0.2
START_S = 180.0
DEADLINE_S = 1200.0
"""The whole run takes two minutes on two idle cores."""

CLOSE_S = 60.0
ANSWER_S = 5.0
UNDERSTUDY = [sys.executable, "-m", "understudy"]
TASKMANAGERS = ("127.0.0.2", "127.0.0.3")
WORKER_MEMORY = "4g"
OVER = {"FINISHED", "FAILED", "CANCELED"}
EXECUTOR = b"CoarseGrainedExecutorBackend"
SUBMIT = (
    *("--conf", "spark.sql.shuffle.partitions=4"),
    *("--conf", "spark.executor.memory=768m"),
)

Json = dict[str, Any]


class DemoError(Exception):
    """The demo cannot continue; the message gives the reason."""


class Demo:
    """Starts the processes, kills some of them, and prints what happens."""

    def __init__(self, home: Path) -> None:
        self._start = time.monotonic()
        self._home = home
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._rest = [free_port(), free_port()]
        self._timeline: list[str] = []
        self._seen: dict[str, tuple[str, int]] = {}
        self._waits: dict[str, str | None] = {}
        self._adopted: set[str] = set()
        self._killed: set[str] = set()
        self._term = 0

    # --- the processes ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything; each part waits for the previous one."""
        self._tell("a ZooKeeper, a Spark Master and two Workers start", BOLD)
        quorum = self._start_zookeeper()
        master, page = self._start_spark()
        settings = {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": quorum,
            "high-availability.zookeeper.client.connection-timeout": "2 min",
            "high-availability.storageDir": self._dir("storage"),
            "high-availability.cluster-id": "demo-cluster",
            "env.log.dir": self._dir("logs"),
        }
        options = [part for item in settings.items() for part in ("-D", "=".join(item))]
        app = [str(HERE / "flights.py"), "--out", str(self._home / "out")]
        submit = ["--master", master, *SUBMIT]
        self._tell("two JobManagers and two TaskManagers start", BOLD)
        for number, port in enumerate(self._rest):
            rest = ["--host", "127.0.0.1", "--port", str(port)]
            brought = [*submit, *app] if number == 0 else []
            self._launch(
                f"jobmanager-{number}", *UNDERSTUDY, "jobmanager", *options, *rest, *brought
            )
        for number, address in enumerate(TASKMANAGERS):
            one = [*options, "--host", address, "-D", "taskmanager.numberOfTaskSlots=1"]
            self._launch(f"taskmanager-{number}", *UNDERSTUDY, "taskmanager", *one)
        self._page = page

    def _start_zookeeper(self) -> str:
        port = free_port()
        config = self._home / "zoo.cfg"
        config.write_text(
            f"dataDir={self._dir('zk')}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\ntickTime=1000\n"
        )
        command = ("zookeeper", "start", "--foreground", "--config", str(config))
        self._launch("zookeeper", *UNDERSTUDY, *command)
        return f"127.0.0.1:{port}"

    def _start_spark(self) -> tuple[str, str]:
        port, page_port = free_port(), free_port()
        master = f"spark://127.0.0.1:{port}"
        ports = ("--port", str(port), "--webui-port", str(page_port))
        self._launch("master", *java("deploy.master.Master"), "--host", "127.0.0.1", *ports)
        page = f"http://127.0.0.1:{page_port}"
        self._await("the Spark Master", lambda: read(f"{page}/json/"))
        for number in range(2):
            self.start_worker(f"worker-{number}", master)
        self._await("two Workers", lambda: read(f"{page}/json/")["aliveworkers"] == 2)
        return master, page

    def start_worker(self, name: str, master: str) -> None:
        """Start a Worker with two cores."""
        size = ("--cores", "2", "--memory", WORKER_MEMORY, "--work-dir", self._dir(name))
        where = ("--host", "127.0.0.1", "--webui-port", "0")
        self._launch(name, *java("deploy.worker.Worker"), *where, *size, master)

    def _launch(self, name: str, *command: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(_find_spark_home()),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_HOME": str(find_java().home),
            "PYTHONUNBUFFERED": "1",
        }
        with (self._home / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def _dir(self, name: str) -> str:
        path = self._home / name
        path.mkdir(parents=True, exist_ok=True)
        return str(path)

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> int:
        """Follow the run to its end and do the kills; return the exit code."""
        self._kill_when("load", "executor", self._kill_executor)
        self._kill_when("weather by hour", "leader", self._kill_leader)
        self._kill_when("planes and airports", "driver", self._kill_driver)
        self._kill_when("planes and airports", "worker", self._kill_worker)
        self._await("the end of the application", self._has_ended, DEADLINE_S)
        return self._conclude()

    def _kill_when(self, job: str, what: str, kill: Callable[[Json], str]) -> None:
        """Kill something while a job runs; if that was too quick, during any later job."""

        def due() -> bool:
            if self._has_ended():
                return True
            names = list(self._seen)
            later = names[names.index(job) :] if job in names else []
            running = [name for name in later if self._seen[name][0] == "RUNNING"]
            if not running:
                return False
            jobs = {one["name"]: one for one in self._jobs()}
            told = kill(jobs[running[0]])
            if not told:
                return False
            self._killed.add(what)
            self._note(f">>> kill -9: {told}, in the middle of {running[0]!r} <<<", RED)
            return True

        self._await(f"{job!r} to run", due, DEADLINE_S)

    def _kill_executor(self, job: Json) -> str:
        for pid in executors(self._home):
            kill(pid)
            return f"executor {pid}"
        return ""

    def _kill_leader(self, job: Json) -> str:
        status = self._ask("/ha/status")
        if not any(one["ready"] for one in status["standbys"]):
            return ""
        leader = status["leader"]
        kill(leader["pid"])
        return f"{leader['id']}, the leader"

    def _kill_driver(self, job: Json) -> str:
        for manager in self._ask("/taskmanagers")["taskmanagers"]:
            for slot in manager["slots"]:
                if slot["job_id"] == job["jid"] and slot["driver_pid"]:
                    kill(slot["driver_pid"])
                    return f"driver {slot['driver_pid']}, and with it its Spark application"
        return ""

    def _kill_worker(self, job: Json) -> str:
        if job["attempt"] < 2 or not list(executors(self._home)):
            return ""  # The driver's death comes first, and the restarted attempt has executors.
        worker = self._processes["worker-1"]
        worker.kill()
        worker.wait()
        return f"Worker {worker.pid}, with its executors"

    def _has_ended(self) -> bool:
        for one in self._jobs():
            self._hear(one)
        with contextlib.suppress(OSError, ValueError):
            listed = self._ask("/applications/overview")["applications"]
            self._status = listed[-1]["status"] if listed else "CREATED"
        first = self._processes["jobmanager-0"], self._processes["jobmanager-1"]
        return all(one.poll() is not None for one in first)

    def _jobs(self) -> list[Json]:
        with contextlib.suppress(OSError, ValueError):
            status = self._ask("/ha/status")["leader"]
            if status["term"] != self._term:
                self._term = status["term"]
                self._note(f"{status['id']} leads, term {self._term}", BOLD)
            return list(self._ask("/jobs/overview")["jobs"])
        return []

    def _hear(self, job: Json) -> None:
        name, now = job["name"], (job["state"], job["attempt"])
        if self._seen.get(name) != now and (now[0] in OVER or now[0] == "RUNNING"):
            attempt = f", attempt {job['attempt']}" if job["attempt"] > 1 else ""
            self._tell(f"job {name!r} is {job['state']}{attempt}")
        if job.get("adopted") and name not in self._adopted:
            self._adopted.add(name)
            self._tell(f"job {name!r} runs on: the new leader has adopted it", GREEN)
        if job.get("waits") and self._waits.get(name) != job["waits"]:
            self._tell(f"job {name!r} {job['waits']}", DIM)
        self._waits[name] = job.get("waits")
        self._seen[name] = now

    def _conclude(self) -> int:
        codes = {self._processes[f"jobmanager-{number}"].returncode for number in range(2)}
        code = 0 if 0 in codes else 1
        lost = [name for name, (state, _) in self._seen.items() if state != "FINISHED"]
        again = [name for name, (_, attempt) in self._seen.items() if attempt > 1]
        page = read(f"{self._page}/json/")
        names = sorted(one["name"] for one in page["completedapps"])
        self._note(f"killed: {', '.join(sorted(self._killed)) or 'nothing'}")
        self._note(f"adopted: {', '.join(sorted(self._adopted)) or 'nothing'}", GREEN)
        self._note(f"restarted: {', '.join(again) or 'nothing'}", GREEN)
        self._note(f"lost: {', '.join(lost) or 'nothing'}", RED if lost else GREEN)
        held = page["coresused"]
        self._note(f"Spark's Master: {held} cores are held, {len(names)} applications have ended")
        print(paint("\nWhat happened", BOLD), *self._timeline, sep="\n")
        print("\nSpark applications:", *names, sep="\n  ")
        return code

    def close(self) -> None:
        """End every started process, the youngest first."""
        for one in reversed(self._processes.values()):
            if one.poll() is None:
                one.terminate()
        deadline = time.monotonic() + CLOSE_S
        for one in reversed(self._processes.values()):
            try:
                one.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()

    def _ask(self, path: str) -> Json:
        error: Exception = DemoError("no JobManager")
        for port in self._rest:
            try:
                return read(f"http://127.0.0.1:{port}{path}")
            except (OSError, ValueError) as one:
                error = one
        raise error

    def _await(self, what: str, look: Callable[[], object], limit_s: float = START_S) -> None:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError, KeyError):
                if look():
                    return
            time.sleep(LOOK_S)
        raise DemoError(f"no sign of {what} after {limit_s:.0f} s: see the logs in {self._home}")

    def _note(self, text: str, style: str = "") -> None:
        self._timeline.append(self._tell(text, style))

    def _tell(self, text: str, style: str = "") -> str:
        line = f"{time.monotonic() - self._start:6.1f} s  {paint(text, style)}"
        print(line, flush=True)
        return line


def java(main: str) -> list[str]:
    """Return the command line of one of Spark's own daemons."""
    jars = f"{_find_spark_home()}/jars/*"
    quiet = ("-Xmx256m", "-Dspark.master.rest.enabled=false")
    return [str(find_java().program), *quiet, "-cp", jars, f"org.apache.spark.{main}"]


def executors(home: Path) -> Iterator[int]:
    """Yield the executors of this demo: those that its Workers have started below ``home``."""
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            is_executor = path.name.isdigit() and EXECUTOR in (path / "cmdline").read_bytes()
            if is_executor and home in (path / "cwd").readlink().parents:
                yield int(path.name)


def kill(pid: int) -> None:
    """Kill a process, which may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def read(url: str) -> Json:
    """Read JSON from a page."""
    with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
        found: Json = json.load(answer)
        return found


def free_port() -> int:
    """Return a port at which no process listens now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def main() -> int:
    """Run the demo below ``out/demo-cluster``."""
    home = Path("out/demo-cluster").resolve()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    demo = Demo(home)
    try:
        demo.start()
        return demo.run()
    except DemoError as error:
        print(paint(str(error), RED))
        return 1
    finally:
        demo.close()


if __name__ == "__main__":
    sys.exit(main())
