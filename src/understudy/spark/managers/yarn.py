"""Hadoop YARN: queries its ResourceManager through Hadoop's own client in the driver's JVM.

The configuration is Spark's: ``HADOOP_CONF_DIR`` or ``YARN_CONF_DIR``, and ``spark.hadoop.*``. YARN
converts tags to lower case and limits each to 100 characters of ASCII, so one tag of ours becomes
several, with its capitals marked.
"""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from py4j.protocol import Py4JError

from understudy.core.executors import ActiveApplication, Capacity, CoreHolder, Tag, master_cores

TAGS = "spark.yarn.tags"
QUEUE = "spark.yarn.queue"
MEMORY = "spark.executor.memory"
STAGING = "spark.yarn.stagingDir"
PRESERVE = "spark.yarn.preserve.staging.files"
DEFAULT_QUEUE = "default"
ROOT = "root"

MARK = "understudy"
"""The tag of all our applications: ``yarn application -list -appTags understudy`` shows them."""

PIECE_CHARS = 80
"""Length of a piece; with its number it stays below YARN's limit of 100."""

CAPITAL = "^"
"""Marks the next letter as a capital; our tags never contain this character."""

ASK = {
    "yarn.resourcemanager.connect.max-wait.ms": "1000",
    "yarn.resourcemanager.connect.retry-interval.ms": "1000",
    "ipc.client.connect.timeout": "5000",
    "ipc.client.connect.max.retries": "0",
    "ipc.client.connect.max.retries.on.timeouts": "0",
    "ipc.client.rpc-timeout.ms": "5000",
    "yarn.client.application-client-protocol.poll-timeout-ms": "30000",
}
"""Time limits of our client. By default Hadoop's client retries for 15 minutes and waits forever
for the end of a killed application, which would block a driver. Spark's own client is unchanged."""

NO_LABEL = ""
"""The label of unlabelled nodes, on which executors run by default."""

FILTER_WORDS = ("SparkUI.$anonfun$attachAllHandlers", "AmIpFilter")
"""Spark adds YARN's filter to the pages of its UI when the ApplicationMaster says so, and at that
moment starts these pages, without a lock between the two. Now and then the start of a SparkContext
fails by that: "No filter named …AmIpFilter", or "ConcurrentModificationException"."""

RUNNING = ("RUNNING",)
ALIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", *RUNNING)

HOLDERS_MAX = 100
"""Of so many applications at most a job that waits reads the cores: each costs calls of the JVM."""

HOLDERS_S = 5.0
"""How long that holds: a job that waits looks each second."""

_log = logging.getLogger(__name__)
_piece = re.compile(rf"{MARK}\.(\d+):(.*)")


class Yarn:
    """The YARN cluster that the driver's Hadoop configuration names."""

    def __init__(self, jvm: Any, conf: Mapping[str, str]) -> None:
        self._jvm = jvm
        self._settings = conf
        self._client: Any = None
        self._holders: tuple[CoreHolder, ...] = ()
        self._held_at: float | None = None
        """When ``_holders`` were read."""

    def answers(self) -> bool:
        """Return whether YARN reports its cluster metrics."""
        try:
            self._asked().getYarnClusterMetrics()
        except Py4JError as error:
            _log.warning("YARN does not answer: %s", _message(error))
            return False
        return True

    def capacity(self, waiting: str = "") -> Capacity | None:
        """Return the virtual cores that the queue may use; without holders if nobody waits.

        YARN maintains the sum over all nodes; to query thousands of nodes would take seconds.
        """
        try:
            queue = self._asked().getQueueInfo(ROOT)
            if queue is None:  # The FIFO scheduler has none.
                return None
            root = queue.getQueueStatistics()
            room, memory = root.getAvailableVCores(), root.getAvailableMemoryMB()
            cores = room + root.getAllocatedVCores() + root.getReservedVCores()
            share, taken = self._share()
            if memory < self._executor_mib():
                room = 0
            holders = (self._own(waiting), *self._others(waiting)) if waiting else ()
        except Py4JError as error:
            _log.debug("YARN does not say what it has: %s", error)
            return None
        free = min(room, round(cores * (share - taken)))
        return Capacity(cores=int(cores * share), free=max(0, free), holders=holders)

    def conf(self, tag: Tag) -> dict[str, str]:
        """Add our tags to those that the user has set."""
        own = [one for one in self._settings.get(TAGS, "").split(",") if one.strip()]
        return {TAGS: ",".join([*own, *written(tag)])}

    def applications(self) -> list[ActiveApplication]:
        """Return the live applications that carry our tag."""
        try:
            return [
                ActiveApplication(one.getApplicationId().toString(), one.getName(), tag)
                for one in self._reports(ALIVE, MARK)
                if (tag := read(one.getApplicationTags()))
            ]
        except Py4JError as error:
            _log.warning("YARN does not say which applications it runs: %s", _message(error))
            return []

    def end(self, application_id: str) -> None:
        """Kill an application and wait until YARN has ended it.

        This also removes its staged files, as Spark's client and ApplicationMaster are dead.
        """
        try:
            which = self._records.ApplicationId.fromString(application_id)
            self._asked().killApplication(which, "ended by Understudy: it has no driver")
            self._remove_staged(application_id)
        except Py4JError as error:
            _log.warning("YARN does not end %s: %s", application_id, _message(error))

    def may_start_again(self, error: Py4JError) -> bool:
        """See `ClusterManager.may_start_again`."""
        return any(word in str(error) for word in FILTER_WORDS)

    def _remove_staged(self, application_id: str) -> None:
        if self._settings.get(PRESERVE, "false").strip().lower() == "true":
            return
        files = self._jvm.org.apache.hadoop.fs
        hadoop = self._asked().getConfig()
        home = (
            self._settings.get(STAGING)
            or files.FileSystem.get(hadoop).getHomeDirectory().toString()
        )
        staged = files.Path(home, f".sparkStaging/{application_id}")
        staged.getFileSystem(hadoop).delete(staged, True)

    @property
    def _records(self) -> Any:
        return self._jvm.org.apache.hadoop.yarn.api.records

    def _asked(self) -> Any:
        """Return Hadoop's client, which needs no SparkContext and outlives each."""
        if self._client is None:
            spark = self._jvm.org.apache.spark
            conf = spark.SparkConf()
            for key, value in self._settings.items():
                conf.set(key, value)
            hadoop = spark.deploy.SparkHadoopUtil.get().newConfiguration(conf)
            settings = self._jvm.org.apache.hadoop.yarn.conf.YarnConfiguration(hadoop)
            for key, value in ASK.items():
                settings.set(key, value)
            client = self._jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
            client.init(settings)
            client.start()
            self._client = client
        return self._client

    def _executor_mib(self) -> int:
        to_mib = self._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb
        memory = int(to_mib(self._settings.get(MEMORY, "1g")))
        overhead = self._settings.get(f"{MEMORY}Overhead")
        return memory + (to_mib(overhead) if overhead else max(384, memory // 10))

    def _reports(self, states: tuple[str, ...], *tags: str) -> Any:
        """Return the applications in these states; with tags, those that have one of them."""
        wanted_states = [getattr(self._records.YarnApplicationState, name) for name in states]
        wanted = self._jvm.java.util.HashSet()
        for tag in tags:
            wanted.add(tag)
        any_type = self._jvm.java.util.HashSet()
        alive = self._jvm.java.util.EnumSet.of(*wanted_states)
        return self._asked().getApplications(any_type, alive, wanted)

    def _own(self, application_id: str) -> CoreHolder:
        which = self._records.ApplicationId.fromString(application_id)
        return self._holder(self._asked().getApplicationReport(which))

    def _others(self, application_id: str) -> Iterable[CoreHolder]:
        """Return other applications that run, as they were not long ago."""
        now = time.monotonic()
        if self._held_at is None or now - self._held_at > HOLDERS_S:
            reports = itertools.islice(self._reports(RUNNING), HOLDERS_MAX)
            self._holders, self._held_at = tuple(map(self._holder, reports)), now
        return [one for one in self._holders if one.application_id != application_id]

    def _holder(self, report: Any) -> CoreHolder:
        """Return the cores that an application holds; for ours, those of its executors."""
        usage = report.getApplicationResourceUsageReport()
        containers = usage.getNumUsedContainers()
        cores = max(0, usage.getUsedResources().getVirtualCores()) if containers > 0 else 0
        if cores and MARK in report.getApplicationTags():
            cores = max(1, cores - master_cores(self._settings)) if containers > 1 else 0
        return CoreHolder(report.getApplicationId().toString(), report.getName(), cores)

    def _share(self) -> tuple[float, float]:
        """Return the share of the cluster that the queue may use, and the share that it uses."""
        queue = self._asked().getQueueInfo(self._settings.get(QUEUE, DEFAULT_QUEUE))
        of_nodes = queue and queue.getQueueConfigurations().get(NO_LABEL)
        if not of_nodes:  # Only the capacity scheduler says so.
            return 1.0, 0.0
        taken = queue.getCurrentCapacity() * of_nodes.getAbsoluteCapacity()
        return of_nodes.getAbsoluteMaxCapacity(), taken


def _message(error: Py4JError) -> str:
    """Return the Java error's first line, without the stack trace."""
    java = getattr(error, "java_exception", None)
    return str(java.toString() if java is not None else error).partition("\n")[0]


def written(tag: Tag) -> list[str]:
    """Encode a tag as a list of YARN's tags."""
    text = re.sub("[A-Z]", lambda found: CAPITAL + found[0].lower(), tag.encode())
    starts = range(0, len(text), PIECE_CHARS)
    pieces = [text[start : start + PIECE_CHARS] for start in starts]
    return [MARK, *(f"{MARK}.{number}:{piece}" for number, piece in enumerate(pieces))]


def read(tags: Iterable[str]) -> Tag | None:
    """Decode the output of `written`, which may be mixed with other tags; None if absent."""
    pieces = sorted((int(one[1]), one[2]) for one in map(_piece.fullmatch, tags) if one)
    text = "".join(piece for _, piece in pieces)
    return Tag.decode(re.sub(rf"\{CAPITAL}(.)", lambda found: found[1].upper(), text))
