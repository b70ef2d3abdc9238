"""The session of a driver: started once, clean for each job, watched for what jobs leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from understudy.errors import SessionLost, StartTimeSettingError, UnderstudyError
from understudy.spark.jvm import Gateway, start_gateway, use_gateway, was_killed
from understudy.spark.queries import Queries

PROGRESS_JOBS_MAX = 50
"""Of a job group with more Spark jobs, the latest are counted: each costs a call to the JVM."""

JVM_END_S = 2.0
"""How long to wait, after a broken connection, for the kernel to say that the JVM is gone."""


class SparkSessions:
    """One driver's Spark: a context, and a fresh session for each job."""

    def __init__(self) -> None:
        self._gateway: Gateway | None = None
        self._root: SparkSession | None = None
        self._job: SparkSession | None = None
        self._queries_of_job: Queries | None = None
        self._before = (0, 0, 0, 0)
        self._conf: dict[str, str] = {}

    @property
    def jvm_pid(self) -> int:
        """Return the pid of the JVM."""
        return self._gateway.process.pid if self._gateway else 0

    @property
    def ui(self) -> str:
        """Return the address of the Spark UI, if there is one."""
        return (self._started.sparkContext.uiWebUrl or "") if self._root else ""

    def start(self, conf: Mapping[str, str], descriptors: tuple[int, ...], scratch: str) -> None:
        """Start JVM and session; run a first query where that holds no foreign resources."""
        self._gateway = start_gateway(conf, descriptors, scratch=scratch)
        try:
            self._start_session(self._gateway, conf)
        except Exception as error:
            if self.is_lost(error) and was_killed(self._gateway.process):
                raise SessionLost("the JVM was killed while its session started") from error
            raise

    def _start_session(self, gateway: Gateway, conf: Mapping[str, str]) -> None:
        use_gateway(gateway)
        builder = SparkSession.builder
        for key, value in conf.items():
            builder = builder.config(key, value)
        self._root = builder.getOrCreate()
        self._conf = dict(self._root.sparkContext.getConf().getAll())
        _refuse_start_time_settings(self._conf)
        if conf.get("spark.master", "").startswith("local"):
            self._root.range(1).count()
        self._before = self.fingerprint()

    def await_jvm_end(self) -> int:
        """Return the JVM's exit code once it has ended."""
        assert self._gateway is not None
        return self._gateway.process.wait()

    def pulse(self) -> None:
        """Return once the JVM has answered; raise if it is gone; hang if it hangs."""
        gateway = self._started.sparkContext._gateway
        assert gateway is not None
        gateway.jvm.java.lang.System.nanoTime()

    def open(self, job_id: str, name: str) -> SparkSession:
        """Return a clean session for a job; it is also what ``getOrCreate`` gives meanwhile."""
        self._job = self._started.newSession()
        # One job at a time: whatever starts here, in whatever session, is the job's.
        self._queries_of_job = Queries(lambda _: True)
        self._make_current(self._job)
        self._started.sparkContext.setJobGroup(job_id, name, interruptOnCancel=True)
        return self._job

    def interrupt(self, job_id: str) -> None:
        """Interrupt the Spark jobs of a job; called from another thread than the job's."""
        if self._queries_of_job:
            self._queries_of_job.interrupt()
        for query in self._queries():  # Those that were started behind PySpark's back.
            query.stop()
        self._started.sparkContext.cancelJobGroup(job_id)

    def settle(self, value: Any) -> Any:
        """Wait until all streaming queries of the job have ended; other values are returned."""
        return self._queries_of_job.settle(value) if self._queries_of_job else value

    def queries(self) -> Queries | None:
        """Return the streaming queries of the open job."""
        return self._queries_of_job

    def progress(self, job_id: str) -> tuple[int, int, str]:
        """Return tasks done and tasks in all of a job's Spark jobs, and which stage runs."""
        tracker = self._started.sparkContext.statusTracker()
        done = total = 0
        stage = ""
        for number in list(tracker.getJobIdsForGroup(job_id))[-PROGRESS_JOBS_MAX:]:
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
        """Leave a job behind; return why this driver cannot serve another one, if so."""
        context = self._started.sparkContext
        if context._jsc is None or context._jsc.sc().isStopped():
            return ["it stopped the SparkContext"]
        reasons = ["it left streaming queries"] if self._queries() else []
        assert context._jvm is not None
        # Group, description, scheduler pool and whatever else belongs to this thread.
        context._jsc.sc().setLocalProperties(context._jvm.java.util.Properties())
        self._make_current(self._started)
        self._job = None
        left = zip(self.fingerprint(), self._before, _LEFT, strict=True)
        return reasons + [reason for now, before, reason in left if now != before]

    def is_lost(self, error: BaseException | None) -> bool:
        """Say whether the JVM is gone; a broken connection is given a moment to show that."""
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

    def fingerprint(self) -> tuple[int, int, int, int]:
        """Return what a job may have changed in the shared context: tables, caches, settings."""
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
"""What it means that a part of the fingerprint is another."""


def _is_a_sessions_own(session: SparkSession, key: str) -> bool:
    """Say whether Spark reads a setting from the session, not when it starts."""
    if not key.startswith("spark.") or session.conf.isModifiable(key):
        return True
    # What Spark has not declared: the settings of catalogs and the like, or those of a cluster.
    assert session._jvm is not None
    sql_conf = session._jvm.org.apache.spark.sql.internal.SQLConf
    return key.startswith("spark.sql.") and not sql_conf.isStaticConfigKey(key)


def _refuse_start_time_settings(started_with: Mapping[str, str]) -> None:
    """Make ``builder.getOrCreate()`` refuse settings that only a new driver could have."""
    original = SparkSession.Builder.getOrCreate

    def get_or_create(self: SparkSession.Builder) -> SparkSession:
        session = SparkSession._instantiatedSession
        if session is not None and session._sc._jsc is not None:
            for key, value in self._options.items():
                wanted = str(value)
                if key in {"spark.app.name", "spark.master"} and not wanted.startswith("sc://"):
                    if key == "spark.app.name" or wanted == started_with.get(key):
                        continue
                elif started_with.get(key) == wanted or _is_a_sessions_own(session, key):
                    continue
                raise StartTimeSettingError(
                    f"{key}={wanted} can only be set when a driver starts (it was started with "
                    f"{started_with.get(key, 'nothing')}): give it to the command as "
                    f"--conf {key}={wanted}"
                )
        return original(self)

    SparkSession.Builder.getOrCreate = get_or_create  # type: ignore[method-assign]
