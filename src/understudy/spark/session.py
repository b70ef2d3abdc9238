"""The Spark sessions of a driver: warm before the first job, clean for each job.

`spark.contexts` decides how long a SparkContext lives: as long as the driver with a local master,
as long as an attempt on a cluster.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from understudy.core.executors import Assignment, Launch
from understudy.errors import SessionLost, UnderstudyError
from understudy.model import SparkApplication
from understudy.spark.contexts import Contexts, contexts_for, facts_of
from understudy.spark.jvm import Gateway, start_gateway, use_gateway, was_killed
from understudy.spark.queries import Queries
from understudy.spark.start_time import refuse_start_time_settings

PROGRESS_JOBS_MAX = 50
"""Most Spark jobs of a group that count for progress, the latest ones; each costs a JVM call."""

JVM_END_S = 2.0
"""How long to wait, after a broken connection, for the JVM's process to end."""


class SparkSessions:
    """One driver's Spark: a JVM, and a fresh session for each job."""

    def __init__(self) -> None:
        self._gateway: Gateway | None = None
        self._contexts: Contexts | None = None
        self._root: SparkSession | None = None
        self._job: SparkSession | None = None
        self._group = ""
        self._facts = SparkApplication()
        """Queried from the JVM once for each SparkContext, not for each job."""
        self._queries_of_job: Queries | None = None
        self._before = (0, 0, 0, 0)
        self._conf: dict[str, str] = {}
        """The settings with which the SparkContext started."""

    @property
    def jvm_pid(self) -> int:
        """Return the pid of the JVM."""
        return self._gateway.process.pid if self._gateway else 0

    def facts(self) -> SparkApplication:
        """Return where to find the SparkContext; all fields are empty without one."""
        return self._facts

    def start(self, launch: Launch) -> None:
        """Start the JVM, and warm it with a first query on a local master."""
        self._gateway = start_gateway(launch.conf, launch.descriptors, scratch=launch.scratch)
        use_gateway(self._gateway)
        try:
            self._contexts = contexts_for(launch)
            self._root = self._contexts.warm()
        except Exception as error:
            if self.is_lost(error) and was_killed(self._gateway.process):
                raise SessionLost("the JVM was killed while its session started") from error
            raise
        refuse_start_time_settings(self._conf)
        if self._root:
            self._started_context(self._root)

    def _started_context(self, root: SparkSession) -> None:
        """Record the state of a new SparkContext before a job changes it."""
        self._root, self._facts = root, facts_of(root.sparkContext)
        self._conf.clear()
        self._conf.update(root.sparkContext.getConf().getAll())
        self._before = self._fingerprint_if_kept()

    def await_jvm_end(self) -> int:
        """Return the JVM's exit code once it has ended."""
        assert self._gateway is not None
        return self._gateway.process.wait()

    def pulse(self) -> None:
        """Return once the JVM has answered; raise if it is gone; hang if it hangs."""
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.jvm.java.lang.System.nanoTime()

    def open(self, assignment: Assignment) -> SparkSession:
        """Return a clean session for a job; ``getOrCreate`` returns it, too, until the next one."""
        assert self._contexts is not None
        root = self._contexts.begin(assignment)
        if root is not self._root:
            self._started_context(root)
        self._job = root.newSession()
        if self._queries_of_job:
            self._queries_of_job.close()
        # One job at a time: every query in this process belongs to the job.
        self._queries_of_job = Queries(lambda _: True)
        self._make_current(self._job)
        self._group = assignment.group
        root.sparkContext.setJobGroup(self._group, assignment.label, interruptOnCancel=True)
        return self._job

    def interrupt(self) -> None:
        """Interrupt the Spark jobs of the open job; called from another thread than the job's."""
        if self._queries_of_job:
            self._queries_of_job.interrupt()
        for query in self._queries():  # Queries that were started directly in the JVM.
            query.stop()
        if self._root:
            self._root.sparkContext.cancelJobGroup(self._group)

    def waits(self) -> str:
        """Return why the open job has no executors; empty if it has some, or needs none."""
        assert self._contexts is not None
        return self._contexts.waits()

    def carries(self) -> int | None:
        """Return how many jobs the cluster can run at once; None if unknown."""
        assert self._contexts is not None
        return self._contexts.carries()

    def settle(self, value: Any) -> Any:
        """Wait for the end of all streaming queries of the job; see `Queries.settle`."""
        return self._queries_of_job.settle(value) if self._queries_of_job else value

    def queries(self) -> Queries | None:
        """Return the streaming queries of the open job."""
        return self._queries_of_job

    def progress(self) -> tuple[int, int, str]:
        """Return the completed and total tasks of the job's Spark jobs, and the running stage."""
        done = total = 0
        stage = ""
        if self._root is None:
            return done, total, stage
        tracker = self._root.sparkContext.statusTracker()
        for number in list(tracker.getJobIdsForGroup(self._group))[-PROGRESS_JOBS_MAX:]:
            job = tracker.getJobInfo(number)
            for stage_id in job.stageIds if job else ():
                info = tracker.getStageInfo(stage_id)
                if info is None:
                    continue
                done += info.numCompletedTasks
                # A stage that a finished job skipped will never run its tasks.
                over = job is not None and job.status == "SUCCEEDED"
                total += info.numCompletedTasks if over else info.numTasks
                if info.numActiveTasks:
                    stage = f"{info.stageId}: {info.name}"
        return done, total, stage

    def close(self) -> list[str]:
        """Close the job's session; return the reasons why this driver cannot serve another job."""
        assert self._contexts is not None
        reasons = self._left_in_context()
        self._job = None
        if self._contexts.finish(keep=not reasons):
            return reasons
        self._root, self._facts = None, SparkApplication()
        return []

    def _left_in_context(self) -> list[str]:
        context = self._started.sparkContext
        if context._jsc is None or context._jsc.sc().isStopped():
            return ["it stopped the SparkContext"]
        reasons = ["it left streaming queries"] if self._queries() else []
        assert context._jvm is not None
        # Group, description, scheduler pool and all other properties of this thread.
        context._jsc.sc().setLocalProperties(context._jvm.java.util.Properties())
        self._make_current(self._started)
        left = zip(self._fingerprint_if_kept(), self._before, _LEFT, strict=True)
        return reasons + [reason for now, before, reason in left if now != before]

    def is_lost(self, error: BaseException | None) -> bool:
        """Return whether the JVM is gone; after a broken connection, wait briefly for its end."""
        assert self._gateway is not None
        process = self._gateway.process
        if isinstance(error, Py4JNetworkError | ConnectionError | EOFError) or (
            isinstance(error, Py4JError) and "Answer from Java side is empty" in str(error)
        ):
            try:
                process.wait(JVM_END_S)
            except Exception:
                return False
        return process.poll() is not None

    def lost_application(self, error: BaseException) -> str:
        """Return how the cluster ended the open job's Spark application; empty if it did not."""
        return self._contexts.lost(error) if self._contexts else ""

    @property
    def _started(self) -> SparkSession:
        if self._root is None:
            raise UnderstudyError("the session was not started")
        return self._root

    def _queries(self) -> list[StreamingQuery]:
        return list(self._job.streams.active) if self._job else []

    def _make_current(self, session: SparkSession) -> None:
        SparkSession._instantiatedSession = session
        SparkSession._activeSession = session
        module = SparkSession._get_j_spark_session_class(session._jvm)
        module.setDefaultSession(session._jsparkSession)
        module.setActiveSession(session._jsparkSession)

    def _fingerprint_if_kept(self) -> tuple[int, int, int, int]:
        assert self._contexts is not None
        return self.fingerprint() if self._contexts.keeps else (0, 0, 0, 0)

    def fingerprint(self) -> tuple[int, int, int, int]:
        """Return a digest of what jobs may change in a shared context: tables, caches, settings."""
        session = self._started
        context = session.sparkContext
        assert context._jsc is not None
        java = session._jsparkSession
        shared = java.sharedState()
        catalog = shared.externalCatalog()
        tables = 0
        if self._conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory":
            tables = sum(
                catalog.listTables(catalog.listDatabases().apply(i)).size()
                for i in range(catalog.listDatabases().size())
            )
        views = shared.globalTempViewManager().listViewNames("*").size()
        cached = int(not shared.cacheManager().isEmpty()) + context._jsc.getPersistentRDDs().size()
        hadoop = context._jsc.hadoopConfiguration().getPropsWithPrefix("").hashCode()
        return tables, views, cached, hadoop


_LEFT = (
    "it left tables",
    "it left global views",
    "it left cached data",
    "it changed the Hadoop configuration",
)
"""The meaning of a change in each part of the fingerprint."""
