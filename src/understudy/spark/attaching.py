"""Attaching the process of a job to the JVM of its driver, with few calls to it.

The driver knows what PySpark would ask the JVM for, and hands it over (`core.handover`): ids of
Py4J are good for any connection to the same JVM. What the driver holds is borrowed: it is not
released when this process lets go of it. What this process has made itself, it releases at its end,
or the JVM would hold it for ever.

Each connection to the JVM has a thread there, and Spark keeps group, description and tags of its
jobs for each such thread. By default PySpark gives each thread of Python a connection of its own,
so that what the job's main thread has set would not hold for the threads that the job starts.
Therefore each connection is marked when it is made. Streaming queries and callbacks run in threads
that the JVM has started from a marked one: they inherit the tag.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import select
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.finalizer import ThreadSafeFinalizer
from py4j.java_gateway import GatewayParameters, JavaGateway, JavaMember, JavaObject
from py4j.protocol import (
    CALL_COMMAND_NAME,
    END_COMMAND_PART,
    ENTRY_POINT_OBJECT_ID,
    GATEWAY_SERVER_OBJECT_ID,
    MEMORY_COMMAND_NAME,
    MEMORY_DEL_SUBCOMMAND_NAME,
    STATIC_PREFIX,
    Py4JError,
    Py4JNetworkError,
    get_command_part,
)
from pyspark import SparkConf, SparkContext, SparkFiles, accumulators
from pyspark.core.broadcast import BroadcastPickleRegistry
from pyspark.errors.exceptions.captured import install_exception_handler
from pyspark.profiler import BasicProfiler, MemoryProfiler, ProfilerCollector, UDFBasicProfiler
from pyspark.serializers import AutoBatchedSerializer, CPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.profiler import AccumulatorProfilerCollector
from pyspark.sql.session import _monkey_patch_RDD

from understudy.core.handover import Handover
from understudy.errors import StartTimeSettingError
from understudy.spark.contexts import ended_by_cluster
from understudy.spark.forks import keep_jvm_from_children
from understudy.spark.queries import SparkQueries

SESSION_CLASS = "org.apache.spark.sql.classic.SparkSession"

PRELOADED = (
    "numpy",
    "pyspark.testing",
    "pyspark.sql.classic.column",
    "pyspark.sql.classic.dataframe",
    "pyspark.sql.pandas.map_ops",
    "encodings.idna",
)
"""What PySpark imports with its first calls: once in the driver, and not again for each job. What
is not installed, it does without."""

JVM_END_S = 2.0
"""How long to wait, after a broken connection, for the kernel to say that the JVM is gone."""

RELEASE_S = 5.0
"""How long the JVM may take to let go of objects; else it keeps them as long as the driver."""

RELEASED_AT_ONCE = 1000
"""So many answers wait in a socket without holding up the JVM."""


for _name in PRELOADED:
    with contextlib.suppress(ImportError):
        importlib.import_module(_name)


class AttachedContext(SparkContext):
    """A SparkContext that the driver has started; what few jobs need is made when they do."""

    def __init__(self, handover: Handover, gateway: JavaGateway) -> None:
        """Nothing is asked of the JVM."""
        conf = handover.conf
        client = gateway._gateway_client
        self._callsite = None
        self._jsc = borrowed(handover.context, client)
        self._conf = SparkConf(_jconf=borrowed(handover.java_conf, client))
        self.environment = dict(handover.worker_environment)
        self._batchSize = 0
        self._unbatched_serializer = CPickleSerializer()
        self.serializer = AutoBatchedSerializer(self._unbatched_serializer)  # type: ignore[no-untyped-call]
        self.master, self.appName = conf["spark.master"], conf["spark.app.name"]
        self.sparkHome = conf.get("spark.home")
        self._encryption_enabled = handover.encrypted
        self.pythonExec = os.environ.get("PYSPARK_PYTHON", "python3")
        self.pythonVer = ".".join(map(str, sys.version_info[:2]))
        self._pickled_broadcast_vars = BroadcastPickleRegistry()
        self._python_includes = list(handover.includes)
        self._temp_dir = handover.temporary
        self.profiler_collector = None  # type: ignore[assignment]
        profiles = ("spark.python.profile", "spark.python.profile.memory")
        if any(conf.get(key) == "true" for key in profiles):
            dump = conf.get("spark.python.profile.dump")
            self.profiler_collector = ProfilerCollector(
                BasicProfiler, UDFBasicProfiler, MemoryProfiler, dump
            )

    @functools.cached_property
    def _accumulatorServer(self) -> Any:  # type: ignore[override]  # noqa: N802 -- PySpark's name
        assert self._gateway is not None
        start = accumulators._start_update_server
        without = (False,) if "is_unix_domain_sock" in inspect.signature(start).parameters else ()
        return start(self._gateway.gateway_parameters.auth_token, *without)

    @functools.cached_property
    def _javaAccumulator(self) -> Any:  # noqa: N802 -- PySpark's name
        assert self._gateway is not None
        assert self._jvm is not None
        assert self._jsc is not None
        host, port = self._accumulatorServer.server_address
        token = self._gateway.gateway_parameters.auth_token
        accumulator = self._jvm.PythonAccumulatorV2(host, port, token)
        self._jsc.sc().register(accumulator)
        return accumulator


class AttachedSession:
    """The session of one job."""

    def __init__(self) -> None:
        self._handover: Handover | None = None
        self._ready: SparkSession | None = None
        """A session in no job's name yet."""
        self._session: SparkSession | None = None
        self._queries: SparkQueries | None = None

    def get_ready(self, handover: Handover) -> None:
        """Attach ahead of a job, while another one may run; `open` does the rest for the job.

        Nothing that is done here can be felt by the other job: the connection and the session are
        this process's own, and what the session takes from Spark it takes with its first use.
        """
        if pins_threads():  # Else nobody knows which connection `open` would have to mark.
            self._attach(handover)

    def _attach(self, handover: Handover) -> SparkSession:
        os.environ.update(handover.environment)
        sys.path[:] = handover.path
        if numbers := sys.modules.get("numpy.random"):
            numbers.seed()  # Else each job would draw the same ones.
        gateway = connect(handover)
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
        context = AttachedContext(handover, gateway)
        SparkContext._active_spark_context = context
        SparkFiles._sc = context
        self._ready = session = new_session(context, handover)
        return session

    def open(self, handover: Handover | None) -> SparkSession:
        """Return a clean session for the job; it is also what ``getOrCreate`` gives."""
        assert handover is not None
        self._handover = handover
        session = self._ready or self._attach(handover)
        gateway = SparkContext._gateway
        assert gateway is not None
        mark_connections(gateway, handover)
        make_current(session)
        self._session = session
        keep_jvm_from_children()
        refuse_start_time_settings(handover.conf)
        # Whatever starts here, in whatever session, is the job's.
        self._queries = SparkQueries(lambda _: True)
        return session

    def settle(self, value: Any) -> Any:
        """Wait until all streaming queries of the job have ended; other values are returned."""
        return self._queries.settle(value) if self._queries else value

    def queries(self) -> SparkQueries | None:
        """Return the streaming queries of the job."""
        return self._queries

    def interrupt(self) -> None:
        """Interrupt the Spark jobs of the job; called from another thread than the job's."""
        if self._session is None or self._handover is None or self._queries is None:
            return
        context = self._session.sparkContext
        if context._jsc is None:
            return  # The function has stopped it, and with it all that it computed.
        # First: a query does not stop while a batch waits for threads that it has started.
        threads = group_of_threads(self._handover.group)
        context._jsc.sc().cancelJobGroupAndFutureJobs(threads)
        self._queries.interrupt()
        for query in self._session.streams.active:  # Started behind PySpark's back.
            query.stop()
        # All, in whatever group the function has put them: the context serves one job at a time.
        context.cancelAllJobs()

    def is_lost(self, error: BaseException | None) -> bool:
        """Say whether the JVM is gone; a broken connection is given a moment to show that."""
        if self._handover is None:
            return False
        broken = isinstance(error, Py4JNetworkError | ConnectionError | EOFError) or (
            isinstance(error, Py4JError) and "Answer from Java side is empty" in str(error)
        )
        return has_ended(self._handover.jvm_pid, JVM_END_S if broken else 0.0)

    def lost_application(self, error: BaseException) -> str:
        """Say how the cluster has ended the job's Spark application; empty if it has not."""
        if self._session is None or self._handover is None or not self._handover.per_attempt:
            return ""
        return ended_by_cluster(self._session.sparkContext, error)

    def close(self) -> None:
        """Release what this process has in the JVM; its threads there end with its connections."""
        if SparkContext._gateway is not None:
            release_all(SparkContext._gateway)


def connect(handover: Handover) -> JavaGateway:
    """Return a gateway like PySpark's own; the classes that it imports are imported already."""
    options = {"port": handover.port, "auth_token": handover.secret, "auto_convert": True}
    if pins_threads():
        gateway = ClientServer(
            java_parameters=JavaParameters(**options),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
    else:
        gateway = JavaGateway(gateway_parameters=GatewayParameters(**options))
    gateway.proc = None
    # The JVM may still hold proxies for the Python objects of an earlier job, and say so when it
    # lets go of them: no object of this process has the name of one of those.
    gateway.gateway_property.pool.next_id = int.from_bytes(os.urandom(6)) << 16
    return gateway


def pins_threads() -> bool:
    """Return whether each thread has a connection of its own, as by default."""
    return os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "true"


def borrowed(target: str, client: Any) -> JavaObject:
    """Return an object that the driver holds: it stays when this process lets go of it."""
    found = JavaObject(target, client)
    ThreadSafeFinalizer.remove_finalizer(f"{client.address}{client.port}{target}")
    return found


def new_session(context: SparkContext, handover: Handover) -> SparkSession:
    """Return a session of its own on a context; in the JVM, this thread's active one."""
    assert context._gateway is not None
    client = context._gateway._gateway_client
    java = borrowed(handover.session, client).newSession()
    session: SparkSession = SparkSession.__new__(SparkSession)
    session._sc, session._jsc, session._jvm = context, context._jsc, context._jvm
    session._jsparkSession = java
    session._profiler_collector = AccumulatorProfilerCollector()
    _monkey_patch_RDD(session)
    install_exception_handler()
    JavaMember("setActiveSession", None, STATIC_PREFIX + SESSION_CLASS, client)(java)
    return session


def make_current(session: SparkSession) -> None:
    """Make a session the one that ``getOrCreate`` gives, here and in the whole JVM."""
    assert session._sc._gateway is not None
    client = session._sc._gateway._gateway_client
    SparkSession._instantiatedSession = session
    SparkSession._activeSession = session
    set_default = JavaMember("setDefaultSession", None, STATIC_PREFIX + SESSION_CLASS, client)
    set_default(session._jsparkSession)


def release_all(gateway: JavaGateway) -> None:
    """Let the JVM forget all objects that this process has of it."""
    client = gateway._gateway_client
    prefix = f"{client.address}{client.port}"
    ids = [key.removeprefix(prefix) for key in list(ThreadSafeFinalizer.finalizers)]
    pending = list(getattr(client, "finalizer_deque", None) or ())
    ids += [task[1] for task in pending if isinstance(task, tuple)]
    # The gateway's own objects have names, not numbers, and every later process needs them.
    ids = [one for one in ids if one not in {ENTRY_POINT_OBJECT_ID, GATEWAY_SERVER_OBJECT_ID}]
    connection = client._get_connection()
    connection.socket.settimeout(RELEASE_S)
    for first in range(0, len(ids), RELEASED_AT_ONCE):
        some = ids[first : first + RELEASED_AT_ONCE]
        _send_at_once(
            connection,
            [
                f"{MEMORY_COMMAND_NAME}{MEMORY_DEL_SUBCOMMAND_NAME}{one}\n{END_COMMAND_PART}"
                for one in some
            ],
        )


def _send_at_once(connection: Any, commands: list[str]) -> None:
    """Have the JVM execute commands whose answers nobody needs: one wait for all of them."""
    connection.socket.sendall("".join(commands).encode())
    for _ in commands:
        connection.stream.readline()


def has_ended(pid: int, wait_s: float) -> bool:
    """Say whether a process ends within some time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], wait_s)[0])
    finally:
        os.close(handle)


def handover_of(
    session: SparkSession, port: int, secret: str, jvm_pid: int, added: dict[str, str]
) -> Handover:
    """Return what a process needs to attach to a session's SparkContext."""
    context = session.sparkContext
    java_conf = context._conf._jconf
    assert context._jsc is not None
    assert java_conf is not None
    return Handover(
        port=port,
        secret=secret,
        jvm_pid=jvm_pid,
        context=context._jsc._get_object_id(),
        session=session._jsparkSession._get_object_id(),
        java_conf=java_conf._get_object_id(),
        conf=dict(context.getConf().getAll()),
        environment=added,
        path=tuple(sys.path),
        includes=tuple(context._python_includes or ()),
        worker_environment=dict(context.environment),
        temporary=str(Path(context._temp_dir)),
        encrypted=bool(context._encryption_enabled),
    )


def group_of_threads(group: str) -> str:
    """Return the group of Spark jobs from other threads than the job's main thread.

    It is a group of its own so that a cancelled job's threads can be refused all further Spark
    jobs (of a long queue, for instance), while its main thread may still clean up.
    """
    return f"{group} threads"


def mark_connections(gateway: JavaGateway, handover: Handover) -> None:
    """Mark each connection, with the group and one tag of its name.

    Those that are made from now on are marked as they are made. One that the main thread has made
    ahead is marked now.
    """
    client = gateway._gateway_client
    # Only with pinned threads does a connection belong to a thread.
    pinned = hasattr(client, "_create_new_connection")
    name = "_create_new_connection" if pinned else "_create_connection"
    create = getattr(client, name)

    def mark(connection: Any) -> None:
        in_main = not pinned or threading.current_thread() is threading.main_thread()
        group = handover.group if in_main else group_of_threads(handover.group)
        calls = ("setJobGroup", group, handover.label, True), ("addJobTag", handover.group)
        # Not through Py4J's client, which would make one more connection for it.
        _send_at_once(connection, [_call(handover.context, *call) for call in calls])

    def connect() -> object:
        connection = create()
        mark(connection)
        return connection

    for connection in list(client.deque):
        mark(connection)
    setattr(client, name, connect)


def _call(target: str, method: str, *arguments: object) -> str:
    parts = "".join(get_command_part(one) for one in arguments)
    return f"{CALL_COMMAND_NAME}{target}\n{method}\n{parts}{END_COMMAND_PART}"


def _is_a_sessions_own(session: SparkSession, key: str) -> bool:
    """Return whether Spark reads a setting from the session, not only at its start."""
    if not key.startswith("spark.") or session.conf.isModifiable(key):
        return True
    # Settings that Spark does not declare: those of catalogs and the like, or of a cluster.
    assert session._jvm is not None
    sql_conf = session._jvm.org.apache.spark.sql.internal.SQLConf
    return key.startswith("spark.sql.") and not sql_conf.isStaticConfigKey(key)


def refuse_start_time_settings(started_with: Mapping[str, str]) -> None:
    """Make ``builder.getOrCreate()`` refuse settings that only a new driver can have.

    Each call reads ``started_with`` again, as a new SparkContext may have other settings.
    """
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
