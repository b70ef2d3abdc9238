"""A real YARN for tests: a ResourceManager and a NodeManager on loopback, without HDFS.

The daemons are of the Hadoop that PySpark's client is of. Each runs under a guardian of ours, which
kills it with all its containers when the process that tests ends, however that ends.
"""

from __future__ import annotations

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.s3a.__main__ import hadoop
from tests.support.zookeeper import LOOPBACK, free_port
from tests.versions import ground
from understudy.process import guardian
from understudy.spark.java import find_java

JARS = ground.ROOT / "out" / "yarn"
ARTIFACTS = (
    "hadoop-common",
    "hadoop-yarn-server-resourcemanager",
    "hadoop-yarn-server-nodemanager",
    # Both daemons need its classes, and neither's pom says so.
    "hadoop-yarn-server-timelineservice",
)
DEPENDENCY = (
    "<dependency><groupId>org.apache.hadoop</groupId><artifactId>{name}</artifactId>"
    "<version>{version}</version></dependency>\n"
)
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>none</groupId><artifactId>none</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""

SERVER = "org.apache.hadoop.yarn.server"
RESOURCE_MANAGER = f"{SERVER}.resourcemanager.ResourceManager"
NODE_MANAGER = f"{SERVER}.nodemanager.NodeManager"
JVM = (
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
)

CORES = 4
QUEUES = ("nightly", "default")
"""Each is guaranteed half of the cores, and may have all of them."""

APPLICATION_MASTER = "ExecutorLauncher"
EXECUTOR = "YarnCoarseGrainedExecutorBackend"

PATIENCE_S = 400.0
"""Each step starts several JVMs."""

POLL_S = 0.1

DISKS = "yarn.nodemanager.disk-health-checker"
SITE = {
    "yarn.nodemanager.resource.memory-mb": "8192",
    "yarn.nodemanager.resource.cpu-vcores": str(CORES),
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    # A NodeManager on a disk that is nearly full offers nothing, and does not say why.
    f"{DISKS}.max-disk-utilization-per-disk-percentage": "100",
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
    "yarn.resourcemanager.scheduler.class": (
        f"{SERVER}.resourcemanager.scheduler.capacity.CapacityScheduler"
    ),
    "yarn.resourcemanager.scheduler.monitor.enable": "true",
    "yarn.resourcemanager.monitor.capacity.preemption.monitoring_interval": "1000",
    "yarn.resourcemanager.monitor.capacity.preemption.max_wait_before_kill": "1000",
    "yarn.resourcemanager.monitor.capacity.preemption.total_preemption_per_round": "1.0",
    "yarn.resourcemanager.monitor.capacity.preemption.natural_termination_factor": "1.0",
}
SCHEDULER = {
    "yarn.scheduler.capacity.root.queues": ",".join(QUEUES),
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    # The default one counts memory alone.
    "yarn.scheduler.capacity.resource-calculator": (
        "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
    ),
    **{f"yarn.scheduler.capacity.root.{queue}.capacity": "50" for queue in QUEUES},
    **{f"yarn.scheduler.capacity.root.{queue}.maximum-capacity": "100" for queue in QUEUES},
    **{f"yarn.scheduler.capacity.root.{queue}.user-limit-factor": "2" for queue in QUEUES},
}
LOGGING = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1}: %m%n
"""


@dataclass(frozen=True)
class Application:
    """A YARN application, as the ResourceManager tells of it."""

    id: str
    name: str
    queue: str
    state: str
    containers: int
    tags: str
    diagnostics: str

    @property
    def is_over(self) -> bool:
        """Say whether YARN has ended it."""
        return self.state in {"FINISHED", "FAILED", "KILLED"}


@dataclass(frozen=True)
class Container:
    """A process of a container: a launcher's shell, a JVM, a Python of its tasks."""

    pid: int
    application_id: str
    command: str

    @property
    def is_jvm(self) -> bool:
        """Say whether it is a master or an executor."""
        return "bin/java" in self.command.split(" ")[0]


def jars() -> Path:
    """Return the directory with what the daemons need (90 MB), fetched once."""
    if not any(JARS.glob("hadoop-yarn-server-nodemanager-*.jar")):
        JARS.mkdir(parents=True, exist_ok=True)
        version = hadoop()
        lines = [DEPENDENCY.format(name=name, version=version) for name in ARTIFACTS]
        (JARS / "pom.xml").write_text(POM.format(dependencies="".join(lines)))
        line = ["mvn", "-q", "-B", "-f", str(JARS / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*line, f"-DoutputDirectory={JARS}"], check=True)
    return JARS


class Daemon:
    """A daemon's JVM under a guardian; both end with this process."""

    def __init__(self, name: str, main: str, place: Path) -> None:
        self.log = place / f"{name}.log"
        java = find_java()
        line = [java.program, *JVM, "-cp", f"{place / 'conf'}:{jars() / '*'}", main]
        # As long as our end of this line is open, its guardian lets it run.
        self._alive, theirs = socket.socketpair()
        spec = json.dumps({"name": name, "argv": line, "up": theirs.fileno()})
        with self.log.open("ab") as log, theirs:
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, spec],
                cwd=place,
                env={**os.environ, "HADOOP_LOG_DIR": str(place), "JAVA_HOME": str(java.home)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )

    @property
    def runs(self) -> bool:
        """Say whether it is there."""
        return self._guardian.poll() is None

    def kill(self) -> None:
        """Kill it with its containers; return when none of them is left."""
        self._alive.close()
        self._guardian.wait(PATIENCE_S)


class Yarn:
    """A cluster of one node; it listens on ports of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.conf = place / "conf"
        self._page = f"{LOOPBACK}:{free_port()}"
        self._daemons: list[Daemon] = []

    def __enter__(self) -> Yarn:
        self._configure()
        try:
            self._daemons.append(Daemon("resourcemanager", RESOURCE_MANAGER, self.place))
            self._daemons.append(Daemon("nodemanager", NODE_MANAGER, self.place))
            self.until(lambda: self._metrics()["activeNodes"] == 1, "a node")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.kill()

    def variables(self) -> dict[str, str]:
        """Return the environment with which Spark finds it."""
        return {"HADOOP_CONF_DIR": str(self.conf)}

    # --- what it says -----------------------------------------------------------------------------

    def applications(self) -> list[Application]:
        """Return all applications that there were, the oldest first."""
        told = self._ask("apps")["apps"] or {"app": []}
        found = [
            Application(
                one["id"],
                one["name"],
                one["queue"].removeprefix("root."),
                one["state"],
                max(0, one["runningContainers"]),
                one["applicationTags"],
                one["diagnostics"],
            )
            for one in told["app"]
        ]
        return sorted(found, key=lambda one: one.id)

    def named(self, name: str) -> Application:
        """Wait for the application of a name; return what is told of it now."""
        self.until(lambda: name in [one.name for one in self.applications()], name)
        return next(one for one in self.applications() if one.name == name)

    def await_over(self, name: str) -> Application:
        """Wait until an application has ended, and none of its processes is left."""
        application = self.named(name)
        self.until(lambda: self.named(name).is_over, f"the end of {name}")
        self.until(
            lambda: not self.containers(application.id), f"the end of the containers of {name}"
        )
        return self.named(name)

    def await_running(self, name: str) -> Application:
        """Wait until an application's master runs."""
        self.until(lambda: self.named(name).state == "RUNNING", f"{name} to run")
        return self.named(name)

    def await_idle(self) -> None:
        """Wait until nothing is held: a master exits a moment after its application has ended."""
        self.until(lambda: self.held() == (0, []), "an idle cluster")

    def held(self) -> tuple[int, list[Container]]:
        """Return how many cores are allocated, and which container processes there are."""
        return self._metrics()["allocatedVirtualCores"], self.containers()

    def containers(self, application_id: str = "", kind: str = "") -> list[Container]:
        """Return the processes of containers: all, or those of an application, or a kind."""
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                directory = Path(f"/proc/{name}/cwd").readlink()
                if not directory.is_relative_to(self.place / "local"):
                    continue
                line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append(Container(int(name), directory.parent.name, line))
        return [
            one for one in found if application_id in one.application_id and kind in one.command
        ]

    def jvm(self, application_id: str, kind: str) -> int:
        """Wait for the first JVM of a kind; return its process."""

        def java() -> list[Container]:
            found = self.containers(application_id, kind)
            return [one for one in found if one.is_jvm]

        self.until(lambda: bool(java()), f"{kind} of {application_id}")
        return java()[0].pid

    def freeze(self, application_id: str) -> None:
        """Stop the JVMs of an application: its master, and its executors.

        The shells around them are the NodeManager's own: it waits for them.
        """
        for one in self.containers(application_id):
            if one.is_jvm:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGSTOP)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Look again until something holds."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if holds():
                    return
            except (OSError, ValueError):
                pass  # The ResourceManager starts to serve.
            assert all(one.runs for one in self._daemons), f"a daemon has ended\n{self.story()}"
            assert time.monotonic() < deadline, f"no sign of {what}\n{self.story()}"
            time.sleep(POLL_S)

    def story(self) -> str:
        """Return the ends of the logs, for the message of a failing journey."""
        ends = [one.log.read_text(errors="replace")[-3000:] for one in self._daemons]
        with contextlib.suppress(OSError, ValueError):
            ends.append("\n".join(map(str, self.applications())))
        return "\n---\n".join(ends)

    # --- how --------------------------------------------------------------------------------------

    def _ask(self, what: str) -> Any:
        with urllib.request.urlopen(
            f"http://{self._page}/ws/v1/cluster/{what}", timeout=10
        ) as answer:
            return json.load(answer)

    def _metrics(self) -> Any:
        return self._ask("metrics")["clusterMetrics"]

    def _configure(self) -> None:
        self.conf.mkdir(parents=True)
        manager, node = "yarn.resourcemanager", "yarn.nodemanager"
        served = (
            *(f"{manager}{part}.address" for part in ("", ".scheduler", ".resource-tracker")),
            f"{manager}.admin.address",
            *(f"{node}{part}.address" for part in ("", ".localizer", ".webapp")),
            f"{node}.collector-service.address",
        )
        site = {
            **SITE,
            f"{manager}.webapp.address": self._page,
            f"{node}.hostname": LOOPBACK,
            f"{node}.local-dirs": str(self.place / "local"),
            f"{node}.log-dirs": str(self.place / "logs"),
            **{key: f"{LOOPBACK}:{free_port()}" for key in served},
        }
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.place / "tmp")}
        _write(self.conf / "core-site.xml", core)
        _write(self.conf / "yarn-site.xml", site)
        _write(self.conf / "capacity-scheduler.xml", SCHEDULER)
        (self.conf / "log4j.properties").write_text(LOGGING)


def remove_jars() -> None:
    """Remove what was fetched."""
    shutil.rmtree(JARS, ignore_errors=True)


def _write(path: Path, settings: Mapping[str, str]) -> None:
    lines = [
        f"<property><name>{key}</name><value>{escape(text)}</value></property>\n"
        for key, text in settings.items()
    ]
    path.write_text(f"<configuration>\n{''.join(lines)}</configuration>\n")
