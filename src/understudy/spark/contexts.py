"""How long a SparkContext lives: as long as the driver, or as long as an attempt.

With a local master one context serves all jobs of the driver. On a cluster a context holds cores
of others, so a driver without a job has none: its JVM is warm from a first query with a local
master, and each attempt is a Spark application of its own, with its own name, executors, event log
and pages. Nothing of one attempt can so serve, or disturb, the next. ``keep_idle_s`` lets the next
job of the driver have the executors of the one before.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from understudy.core import executors
from understudy.core.executors import Assignment, Launch, Tag
from understudy.errors import SessionLost
from understudy.model import SparkApplication
from understudy.spark.jvm import RESOLVED
from understudy.spark.managers import ClusterManager, manager_of
from understudy.spark.shipping import ship_code

WARM_UP = {
    "spark.master": "local[1]",
    "spark.app.name": "understudy-warm-up",
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "false",
    "spark.dynamicAllocation.enabled": "false",
    "spark.driver.port": "0",
    "spark.blockManager.port": "0",
    "spark.plugins": "",
    "spark.extraListeners": "",
    # Else a local master makes a secret of its own, and the JVM has that ever after.
    "spark.authenticate": "false",
    "spark.authenticate.enableSaslEncryption": "false",
    "spark.network.crypto.enabled": "false",
}
"""Of the warm-up nobody else is to notice anything."""

ORPHANS_END_S = 10.0
"""A Master has removed an application within milliseconds, YARN within a second or two."""

ORPHANS_LOOK_S = 0.1

LOST_S = 2.0
"""A context that its cluster has ended says so to its jobs a moment before it is stopped."""

LOST_WORDS = (
    "SparkContext was shut down",
    "stopped SparkContext",
    "cluster scheduler",
    "Master removed our application",
    "YARN application",
)
"""What the errors of jobs say whose cluster has ended their Spark application."""

_log = logging.getLogger(__name__)


class Contexts(Protocol):
    """The SparkContexts of one driver, one at a time."""

    keeps: bool
    """A context may serve more than one job."""

    def warm(self) -> SparkSession | None:
        """Warm the JVM; return the session that is there from now on, if there is one."""
        ...

    def begin(self, assignment: Assignment) -> SparkSession:
        """Return the root session for a job."""
        ...

    def finish(self, *, keep: bool) -> bool:
        """Leave a job behind; return whether the context lives on. ``keep``: it may."""
        ...

    def waits(self) -> str:
        """Say why the job that runs has no executors; empty where it has, or needs none."""
        ...

    def carries(self) -> int | None:
        """Return how many jobs the cluster can carry at once; None where that is not known."""
        ...

    def lost(self, error: BaseException) -> str:
        """Say how the cluster has ended the running job's application; empty if it has not."""
        ...


def contexts_for(launch: Launch) -> Contexts:
    """Return what goes with ``spark.master``."""
    local = launch.conf.get("spark.master", "").startswith("local")
    return Standing(launch) if local else PerAttempt(launch)


def facts_of(context: SparkContext) -> SparkApplication:
    """Return what a context is found by."""
    if context._jsc is None:
        return SparkApplication()
    log = context._jsc.sc().eventLogger()
    return SparkApplication(
        ui=context.uiWebUrl or "",
        application_id=context.applicationId,
        event_log=log.get().logWriter().logPath() if log.isDefined() else "",
    )


class Standing:
    """One context for all jobs."""

    keeps = True

    def __init__(self, launch: Launch) -> None:
        self._conf = launch.conf
        self._root: SparkSession | None = None

    def warm(self) -> SparkSession:
        """See `Contexts.warm`."""
        self._root = _session(self._conf)
        self._root.range(1).count()
        return self._root

    def begin(self, assignment: Assignment) -> SparkSession:
        """See `Contexts.begin`."""
        assert self._root is not None
        return self._root

    def finish(self, *, keep: bool) -> bool:
        """See `Contexts.finish`."""
        return True

    def waits(self) -> str:
        """See `Contexts.waits`."""
        return ""

    def carries(self) -> int | None:
        """See `Contexts.carries`."""
        return None

    def lost(self, error: BaseException) -> str:
        """See `Contexts.lost`."""
        return ""


class PerAttempt:
    """A context, and with it a Spark application, for each attempt."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._conf = dict(launch.conf)
        self._manager: ClusterManager
        self._root: SparkSession | None = None
        self._starts: Tag | None = None
        """Whose Spark application starts just now: on YARN, as long as the queue is full."""
        self._path: list[str] = []
        """Where Python found modules before the context."""
        self._changing = threading.Lock()
        self._idle: threading.Timer | None = None
        self.keeps = launch.keep_idle_s > 0

    def warm(self) -> None:
        """See `Contexts.warm`; also ends what an earlier run of the cluster has left."""
        session = _session({**self._conf, **WARM_UP})
        session.range(1).count()
        session.stop()
        self._manager = manager_of(SparkContext._jvm, self._conf)
        if not self._manager.answers():
            raise SessionLost(f"{self._conf['spark.master']} does not answer")
        self._end_orphans(self._launch.tag)

    def begin(self, assignment: Assignment) -> SparkSession:
        """See `Contexts.begin`; raises `SessionLost` where the cluster is away."""
        with self._changing:
            if self._idle:
                self._idle.cancel()
                self._idle = None
            if self._root and not _is_stopped(self._root):
                return self._root
        self._end_orphans(assignment.tag)
        conf = {
            **self._conf,
            **self._limits(assignment.slots),
            **self._manager.conf(assignment.tag),
            "spark.app.name": assignment.title,
        }
        handler, self._path = signal.getsignal(signal.SIGINT), list(sys.path)
        self._starts = assignment.tag
        try:
            self._root = _session(conf)
        except Py4JError as error:
            if self._manager.answers():
                raise  # The settings are wrong, and would be again.
            raise SessionLost(f"{conf['spark.master']} does not answer") from error
        except BaseException:
            # In a thread of its own: the connection of this one may be in the middle of an answer.
            ending = threading.Thread(target=self._end, args=(assignment.tag,), daemon=True)
            ending.start()
            ending.join(ORPHANS_END_S)
            raise
        finally:
            self._starts = None
            signal.signal(signal.SIGINT, handler)  # PySpark takes it with each context.
        ship_code(self._root.sparkContext, self._launch.python_path, Path(self._launch.scratch))
        return self._root

    def finish(self, *, keep: bool) -> bool:
        """See `Contexts.finish`."""
        if not (keep and self.keeps):
            self._stop()
            return False
        self._idle = threading.Timer(self._launch.keep_idle_s, self._idle_over)
        self._idle.name = "understudy-keep-idle"
        self._idle.daemon = True
        self._idle.start()
        return True

    def waits(self) -> str:
        """See `Contexts.waits`."""
        if (starts := self._starts) is not None:
            return self._waits_to_start(starts)
        if self._root is None or _is_stopped(self._root):
            return ""
        context = self._root.sparkContext
        assert context._jsc is not None
        if len(context._jsc.sc().statusTracker().getExecutorInfos()) > 1:  # Beside the driver.
            return ""
        if executors.is_dynamic(self._conf) and not context.statusTracker().getActiveStageIds():
            return ""
        return executors.why_without(
            self._manager.capacity(), context.applicationId, self._conf["spark.master"]
        )

    def _waits_to_start(self, tag: Tag) -> str:
        """Say why an application has not started; empty where it can: that takes some seconds."""
        capacity = self._manager.capacity()
        if capacity is None or capacity.free != 0:
            return ""
        own = [one.application_id for one in self._manager.applications() if one.tag == tag]
        if not own:
            return ""
        return executors.why_without(capacity, own[0], self._conf["spark.master"])

    def carries(self) -> int | None:
        """See `Contexts.carries`."""
        capacity = self._manager.capacity()
        return executors.jobs_at_once(capacity, self._conf) if capacity else None

    def lost(self, error: BaseException) -> str:
        """See `Contexts.lost`."""
        return ended_by_cluster(self._root.sparkContext, error) if self._root else ""

    def _limits(self, slots: int) -> dict[str, str]:
        if not self._conf["spark.master"].startswith("spark://"):
            return {}  # YARN and Kubernetes give what was asked for: nobody takes all by default.
        capacity = self._manager.capacity()
        return executors.limits(capacity, self._conf, slots) if capacity else {}

    def _idle_over(self) -> None:
        with self._changing:
            if self._idle is not threading.current_thread():
                return  # The next job was quicker.
            self._idle = None
            self._stop()

    def _stop(self) -> None:
        if self._root is not None:
            self._root.stop()
            self._root = None
            sys.path[:] = self._path

    def _end(self, tag: Tag) -> None:
        """End the application of a tag, if the cluster knows one: its context has not started."""
        for one in self._manager.applications():
            if one.tag == tag:
                self._manager.end(one.application_id)

    def _end_orphans(self, tag: Tag) -> None:
        """End the applications of dead drivers, and wait until their cores are free."""
        deadline = time.monotonic() + ORPHANS_END_S
        told: set[str] = set()
        try:
            while dead := executors.orphans(self._manager.applications(), tag):
                for one in dead:
                    if one.application_id not in told:
                        told.add(one.application_id)
                        _log.warning(
                            "Spark application %s (%s) has outlived its driver: it is ended",
                            one.application_id,
                            one.name,
                        )
                        self._manager.end(one.application_id)
                if time.monotonic() > deadline:
                    _log.warning(
                        "the cluster still lists %s after %g s: what its executors write is "
                        "fenced by ctx.fencing_token, nothing else",
                        ", ".join(one.application_id for one in dead),
                        ORPHANS_END_S,
                    )
                    return
                time.sleep(ORPHANS_LOOK_S)
        except Py4JError as error:
            _log.warning("the cluster was not asked for what dead drivers have left: %s", error)


def _session(conf: Any) -> SparkSession:
    builder = SparkSession.builder
    for key, value in conf.items():
        if key not in RESOLVED:
            builder = builder.config(key, value)
    return builder.getOrCreate()


def ended_by_cluster(context: SparkContext, error: BaseException) -> str:
    """Say how the cluster has ended a context's Spark application; empty if it has not."""
    if not any(word in str(error) for word in LOST_WORDS):
        return ""
    deadline = time.monotonic() + LOST_S
    while context._jsc is not None:  # Else the job itself has stopped the context.
        if context._jsc.sc().isStopped():
            return f"the cluster has ended the Spark application {context.applicationId}"
        if time.monotonic() > deadline:
            break
        time.sleep(ORPHANS_LOOK_S)
    return ""


def _is_stopped(session: SparkSession) -> bool:
    java = session.sparkContext._jsc
    return java is None or bool(java.sc().isStopped())
