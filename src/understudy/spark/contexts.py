"""The lifetime of a SparkContext: as long as the driver, or as long as an attempt.

With a local master one context serves all jobs of the driver. On a cluster a context holds cores
that others need, so a driver without a job has no context: its JVM is warm from a first query with
a local master, and each attempt is a Spark application of its own, with its own name, executors,
event log and pages. So one attempt cannot disturb the next. With ``keep_idle_s`` the driver's next
job reuses the executors of the previous one.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from understudy.core import executors
from understudy.core.executors import ActiveApplication, AssignedAttempt, Launch, Tag
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
    # Otherwise a local master creates a secret, which the JVM would keep forever.
    "spark.authenticate": "false",
    "spark.authenticate.enableSaslEncryption": "false",
    "spark.network.crypto.enabled": "false",
}
"""Settings that make the warm-up invisible to others."""

ORPHANS_END_S = 10.0
"""How long to wait for the end of orphans: a Master needs milliseconds, YARN a second or two."""

ORPHANS_LOOK_S = 0.1

STARTS = 3
"""What fails by chance alone rarely does twice; what fails three times does not by chance."""

LOST_S = 2.0
"""How long to wait for a lost context to stop: its jobs fail a moment earlier."""

LOST_WORDS = (
    "SparkContext was shut down",
    "stopped SparkContext",
    "cluster scheduler",
    "Master removed our application",
    "YARN application",
)
"""Words in the errors of jobs whose Spark application was ended by the cluster."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Contexts(Protocol):
    """The SparkContexts of one driver, one at a time."""

    keeps: bool
    """A context may serve more than one job."""

    def warm(self) -> SparkSession | None:
        """Warm the JVM; return the lasting session, if there is one."""
        ...

    def begin(self, assignment: AssignedAttempt) -> SparkSession:
        """Return the root session for a job."""
        ...

    def finish(self, *, keep: bool) -> bool:
        """End a job's use of the context; return whether it stays. ``keep`` allows it to stay."""
        ...

    def waits(self) -> str:
        """Return why the running job has no executors; empty if it has some, or needs none."""
        ...

    def carries(self) -> int | None:
        """Return how many jobs the cluster can run at once; None if unknown."""
        ...

    def lost(self, error: BaseException) -> str:
        """Return how the cluster ended the running job's application; empty if it did not."""
        ...


def contexts_for(launch: Launch) -> Contexts:
    """Return the implementation for ``spark.master``."""
    local = launch.conf.get("spark.master", "").startswith("local")
    return SharedContext(launch) if local else PerAttempt(launch)


def facts_of(context: SparkContext) -> SparkApplication:
    """Return where to find a context."""
    if context._jsc is None:
        return SparkApplication()
    log = context._jsc.sc().eventLogger()
    return SparkApplication(
        ui=context.uiWebUrl or "",
        application_id=context.applicationId,
        event_log=log.get().logWriter().logPath() if log.isDefined() else "",
    )


class SharedContext:
    """One context for all jobs of a driver, for a local master."""

    keeps = True

    def __init__(self, launch: Launch) -> None:
        self._conf = launch.conf
        self._root: SparkSession | None = None

    def warm(self) -> SparkSession:
        """Start the context, and run a first query."""
        self._root = _session(self._conf)
        self._root.range(1).count()
        return self._root

    def begin(self, assignment: AssignedAttempt) -> SparkSession:
        """Return the one root session."""
        assert self._root is not None
        return self._root

    def finish(self, *, keep: bool) -> bool:
        """Keep the context."""
        return True

    def waits(self) -> str:
        """Return nothing: a local master needs no executors."""
        return ""

    def carries(self) -> int | None:
        """Return None: slots alone limit the jobs."""
        return None

    def lost(self, error: BaseException) -> str:
        """Return nothing: there is no cluster."""
        return ""


class PerAttempt:
    """A context, and so a Spark application, for each attempt."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._conf = dict(launch.conf)
        self._manager: ClusterManager
        self._root: SparkSession | None = None
        self._starts: Tag | None = None
        """The tag of the Spark application that is starting; on YARN a full queue delays it."""
        self._path: list[str] = []
        """Python's module path before the context."""
        self._changing = threading.Lock()
        self._idle: threading.Timer | None = None
        self.keeps = launch.keep_idle_s > 0

    def warm(self) -> None:
        """Run a first query locally, and end the orphans of ended runs of the cluster."""
        session = _session({**self._conf, **WARM_UP})
        session.range(1).count()
        session.stop()
        self._manager = manager_of(SparkContext._jvm, self._conf)
        if not self._manager.answers():
            raise SessionLost(f"{self._conf['spark.master']} does not answer")
        self._end_orphans(self._launch.tag, ended_runs=self._launch.ended_runs)

    def begin(self, assignment: AssignedAttempt) -> SparkSession:
        """Start a context, or reuse an idle one; raises `SessionLost` if the cluster is gone."""
        with self._changing:
            if self._idle:
                self._idle.cancel()
                self._idle = None
        self._end_orphans(assignment.tag, assignment.lost_driver, assignment.ended_runs)
        if self._root:
            if not is_stopped(self._root):
                return self._root
            self._stop()  # The cluster has ended it while it was idle; PySpark would return it.
        conf = {
            **self._conf,
            **self._limits(assignment.slots),
            **self._manager.conf(assignment.tag),
            "spark.app.name": assignment.title,
        }
        handler, self._path = signal.getsignal(signal.SIGINT), list(sys.path)
        self._starts = assignment.tag
        try:
            self._root = start(
                lambda: _session(conf), lambda error: self._may_start_again(error, assignment.tag)
            )
        except Py4JError as error:
            if self._manager.answers():
                raise  # The settings are wrong; a retry would fail, too.
            raise SessionLost(f"{conf['spark.master']} does not answer") from error
        except BaseException:
            # In its own thread: this thread's connection may be in the middle of an answer.
            ending = threading.Thread(target=self._end, args=(assignment.tag,), daemon=True)
            ending.start()
            ending.join(ORPHANS_END_S)
            raise
        finally:
            self._starts = None
            signal.signal(signal.SIGINT, handler)  # PySpark replaces it with each context.
        ship_code(self._root.sparkContext, self._launch.python_path, Path(self._launch.scratch))
        return self._root

    def finish(self, *, keep: bool) -> bool:
        """Stop the context, at once or after ``keep_idle_s``."""
        if not (keep and self.keeps):
            self._stop()
            return False
        self._idle = threading.Timer(self._launch.keep_idle_s, self._idle_over)
        self._idle.name = "understudy-keep-idle"
        self._idle.daemon = True
        self._idle.start()
        return True

    def waits(self) -> str:
        """Explain the lack of executors from the cluster's capacity."""
        if (starts := self._starts) is not None:
            return self._waits_to_start(starts)
        if self._root is None or is_stopped(self._root):
            return ""
        context = self._root.sparkContext
        assert context._jsc is not None
        if len(context._jsc.sc().statusTracker().getExecutorInfos()) > 1:  # Beside the driver.
            return ""
        if executors.is_dynamic(self._conf) and not context.statusTracker().getActiveStageIds():
            return ""
        own = context.applicationId
        return executors.why_without(self._manager.capacity(own), own, self._conf)

    def _waits_to_start(self, tag: Tag) -> str:
        """Return why an application has not started; empty if the cluster has room for it."""
        capacity = self._manager.capacity()
        if capacity is None or capacity.free != 0:
            return ""
        own = [one.application_id for one in self._manager.applications() if one.tag == tag]
        if not own:
            return ""
        return executors.why_without(self._manager.capacity(own[0]), own[0], self._conf)

    def carries(self) -> int | None:
        """Compute the number from the cluster's capacity."""
        capacity = self._manager.capacity()
        return executors.jobs_at_once(capacity, self._conf) if capacity else None

    def lost(self, error: BaseException) -> str:
        """See `Contexts.lost`."""
        return ended_by_cluster(self._root.sparkContext, error) if self._root else ""

    def _limits(self, slots: int) -> dict[str, str]:
        if not self._conf["spark.master"].startswith("spark://"):
            return {}  # YARN and Kubernetes grant what is requested: no job takes all by default.
        capacity = self._manager.capacity()
        return executors.limits(capacity, self._conf, slots) if capacity else {}

    def _idle_over(self) -> None:
        with self._changing:
            if self._idle is not threading.current_thread():
                return  # The next job has already taken the context.
            self._idle = None
            self._stop()

    def _stop(self) -> None:
        if self._root is not None:
            self._root.stop()
            self._root = None
            sys.path[:] = self._path

    def _may_start_again(self, error: Py4JError, tag: Tag) -> bool:
        """Say so, and end what the context that has not started has left on the cluster."""
        if not self._manager.may_start_again(error):
            return False
        self._end(tag)
        return True

    def _end(self, tag: Tag) -> None:
        """End the application with this tag, if the cluster has one; its context never started."""
        for one in self._manager.applications():
            if one.tag == tag:
                self._manager.end(one.application_id)

    def _end_orphans(
        self, tag: Tag, lost_driver: str = "", ended_runs: tuple[str, ...] = ()
    ) -> None:
        """End the applications of dead drivers, and wait until their cores are free."""

        def dead_ones() -> list[ActiveApplication]:
            found = self._manager.applications()
            return executors.orphans(found, tag, lost_driver, ended_runs)

        deadline = time.monotonic() + ORPHANS_END_S
        reported: set[str] = set()
        try:
            while dead := dead_ones():
                for one in dead:
                    if one.application_id not in reported:
                        reported.add(one.application_id)
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


def start(make: Callable[[], T], may_start_again: Callable[[Py4JError], bool]) -> T:
    """Return what ``make`` has started; try again where that has failed by chance."""
    for left in reversed(range(STARTS)):
        try:
            return make()
        except Py4JError as error:
            if not left or not may_start_again(error):
                raise
            why = str(error).partition("\n\tat ")[0]  # Without the stack of the JVM.
            _log.warning("the SparkContext has not started, and is started again: %s", why)
    raise AssertionError("the last try returns or raises")


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


def is_stopped(session: SparkSession) -> bool:
    """Return whether the context of a session was stopped, by Python or in the JVM."""
    java = session.sparkContext._jsc
    return java is None or bool(java.sc().isStopped())
