"""Spark's side of safe writes: resolving paths, writing rows, and finding the current batch.

Inside a fenced batch, ``df.write`` is ours: methods of ``DataFrameWriter`` are replaced, once per
process, by methods that delegate to the batch of the calling thread or of the DataFrame's session,
and behave as Spark's own everywhere else.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2

from understudy.errors import CheckpointError
from understudy.spark import object_stores

FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "xml", "avro"})
"""Formats that store rows as files in a directory, each with a unique name."""

_DYNAMIC = "spark.sql.sources.partitionOverwriteMode"
_BATCH_PROPERTY = "streaming.sql.batchId"
_QUERY_PROPERTY = "sql.streaming.queryId"


@dataclass(frozen=True)
class Writing:
    """One call of a writer, as a `Fence` receives it."""

    df: DataFrame
    path: str
    mode: str
    format: str
    dynamic: bool
    """Overwrite only the partitions that get new rows."""
    emit: Callable[[str, Mapping[str, str]], None]
    """Makes Spark write to a new directory or, with Delta, to the path itself."""


class Fence(Protocol):
    """A batch that is under way and handles the writes inside it."""

    def write(self, writing: Writing) -> None:
        """Execute the call of a writer."""
        ...


class _Calling(threading.local):
    fence: Fence | None = None
    direct: bool = False
    """The call is our own, so Spark's original method runs."""


_calling = _Calling()
_sessions: dict[int, Fence] = {}
"""The batches under way, by the session of their DataFrame, for threads that the user starts."""

_patched = threading.Lock()


def unsafe(format: str) -> str:  # noqa: A002 -- Spark's own name
    """Return the message that refuses a format."""
    return (
        f"format={format!r} cannot be written safely: what it does is done twice where a job is "
        f"restarted; choose {', '.join(sorted(FILE_FORMATS))} or delta"
    )


def check(df: object, session: SparkSession) -> None:
    """Raise `CheckpointError` unless this is a DataFrame of this process's Spark."""
    if not isinstance(df, DataFrame):
        raise CheckpointError(f"ctx.write takes a DataFrame of Spark, not a {type(df).__name__}")
    if getattr(df.sparkSession, "_sc", None) is not session.sparkContext:
        raise CheckpointError("ctx.write takes a DataFrame of the job's own session, ctx.spark")


def writing(
    df: DataFrame,
    path: str,
    mode: str,
    format: str,  # noqa: A002 -- Spark's own name
    partition_by: Iterable[str],
    options: Mapping[str, Any],
) -> Writing:
    """Return a call of ``ctx.write`` as a `Writing`."""
    columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)

    def emit(place: str, more: Mapping[str, str]) -> None:
        writer = df.write.format(format).options(**{**options, **more}).mode(_emitted(format, mode))
        writer = writer.partitionBy(*columns) if columns else writer
        with _directly():
            writer.save(place)

    chosen = {key.lower(): str(value) for key, value in options.items()}
    dynamic = bool(columns) and _is_dynamic(df.sparkSession, chosen)
    return Writing(df, str(path), mode, format.lower(), dynamic, emit)


def local_path(session: SparkSession, path: str) -> Path:
    """Return the local directory that a path names; raises `CheckpointError` if it is not local."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", path)
    if scheme is None or scheme[1] == "file":
        jvm = session.sparkContext._jvm
        assert jvm is not None
        java_path = jvm.org.apache.hadoop.fs.Path(path)
        conf = session._jsparkSession.sessionState().newHadoopConf()
        try:
            system = java_path.getFileSystem(conf)
        except Py4JJavaError as error:
            raise CheckpointError(f"{path}: {error.java_exception.getMessage()}") from error
        whole: str = java_path.makeQualified(
            system.getUri(), system.getWorkingDirectory()
        ).toString()
    else:
        whole = path
    name, _, rest = whole.partition(":")
    if name == "file":
        return Path(os.path.realpath("/" + rest.lstrip("/")))
    reason = (
        "HDFS has no swap of two directories"
        if name in {"hdfs", "viewfs", "webhdfs"}
        else "an object store, or what is no POSIX file system, renames no directory in one step"
    )
    raise CheckpointError(
        f"{path}: {reason}, so plain files there cannot be published at once; write them with "
        "format='delta', which every store is safe for, or to a local or shared file system"
    )


def url(path: Path) -> str:
    """Return a local directory's URL for Spark, independent of the default file system."""
    return f"file:{path}"


def refresh(session: SparkSession, path: str) -> None:
    """Invalidate cached data of a path, as Spark does after its own writes.

    All sessions and threads of the process share the cache. For Delta tables Spark does this.
    """
    session.catalog.refreshByPath(path)


def check_seen(session: SparkSession, directory: Path) -> None:
    """Raise `CheckpointError` if executors on other hosts do not see a local directory."""
    context = session.sparkContext
    master = context.master or ""
    if master == "local" or master.startswith("local["):
        return
    count = max(2, context.defaultParallelism)
    seen = context.parallelize([str(directory)] * count, count).map(os.path.exists).collect()
    if not all(seen):
        raise CheckpointError(
            f"executors of {master} do not see {directory.parent}: their rows would stay "
            "on their own disks; write to a file system that all hosts share, or format='delta'"
        )


def check_delta(session: SparkSession) -> None:
    """Raise `CheckpointError` if the session has no Delta Lake."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    name = "io.delta.sql.DeltaSparkSessionExtension"
    try:
        loader.loadClass(name)
    except Py4JJavaError:
        raise CheckpointError(
            "this session has no Delta Lake: start it with --conf "
            "spark.jars.packages=io.delta:delta-spark_2.13:VERSION (the one for your Spark), "
            f"--conf spark.sql.extensions={name} and --conf spark.sql.catalog.spark_catalog="
            "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        ) from None
    if name not in (session.conf.get("spark.sql.extensions", "") or ""):
        raise CheckpointError(
            f"this session does not use its Delta Lake: start it with --conf spark.sql.extensions="
            f"{name} and --conf spark.sql.catalog.spark_catalog="
            "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )


def check_reachable(session: SparkSession, path: str) -> None:
    """Raise `CheckpointError` if the session has no file system for a URL."""
    object_stores.check_reachable(session, path, "write to a store that Spark reaches")


def is_in_batch(session: SparkSession) -> bool:
    """Return whether the calling thread is in a batch of a streaming query."""
    return session.sparkContext.getLocalProperty(_BATCH_PROPERTY) is not None


def query_of(df: DataFrame) -> str:
    """Return the id of the query whose batch the calling thread is in; empty outside a batch.

    The id survives restarts of the query.
    """
    return df.sparkSession.sparkContext.getLocalProperty(_QUERY_PROPERTY) or ""


def fence_of(df: DataFrame) -> Fence | None:
    """Return the batch that a write of this DataFrame belongs to."""
    return _calling.fence or _sessions.get(id(df.sparkSession))


@contextlib.contextmanager
def fenced(df: DataFrame, fence: Fence) -> Iterator[None]:
    """Route the writes of this thread and of the batch's DataFrames to the fence."""
    patch()
    session = df.sparkSession
    # A callback's thread may have served another session earlier.
    module = SparkSession._get_j_spark_session_class(session._jvm)
    module.setActiveSession(session._jsparkSession)
    before = _calling.fence
    _calling.fence = fence
    _sessions[id(session)] = fence
    try:
        yield
    finally:
        _calling.fence = before
        del _sessions[id(session)]


def patch() -> None:
    """Replace the methods of Spark's writers, once."""
    with _patched:
        if hasattr(DataFrameWriter, "_understudy"):
            return
        for name in ("mode", "format", "option", "options", "partitionBy"):
            setattr(DataFrameWriter, name, _noting(name, getattr(DataFrameWriter, name)))
        for name in ("save", "parquet", "orc", "json", "csv", "text", "xml"):
            if original := getattr(DataFrameWriter, name, None):
                setattr(DataFrameWriter, name, _routed(name, original))
        for name in ("saveAsTable", "insertInto", "jdbc"):
            setattr(DataFrameWriter, name, _refused(name, getattr(DataFrameWriter, name)))
        for name in _V2:
            setattr(DataFrameWriterV2, name, _refused(name, getattr(DataFrameWriterV2, name)))
        DataFrameWriter._understudy = True  # type: ignore[attr-defined]


_V2 = ("create", "replace", "createOrReplace", "append", "overwrite", "overwritePartitions")


def _emitted(format: str, mode: str) -> str:  # noqa: A002
    """Return the mode in which Spark itself writes: files always go to a new directory."""
    return mode if format.lower() == "delta" else "errorifexists"


def _is_dynamic(session: SparkSession, options: Mapping[str, str]) -> bool:
    default = session.conf.get(_DYNAMIC, "static") or "static"
    return options.get("partitionoverwritemode", default).lower() == "dynamic"


@contextlib.contextmanager
def _directly() -> Iterator[None]:
    before = _calling.direct
    _calling.direct = True
    try:
        yield
    finally:
        _calling.direct = before


def _fence_of_writer(writer: Any) -> Fence | None:
    if _calling.direct:
        return None
    return fence_of(writer._df)


def _noted(writer: Any) -> dict[str, Any]:
    """Return a writer's settings so far, which Spark keeps invisible to Python."""
    found: dict[str, Any] = writer.__dict__.setdefault(
        "_understudy_told", {"mode": "error", "format": None, "options": {}, "partitioned": False}
    )
    return found


def _noting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(self, *args, **kwargs)
        noted = _noted(self)
        if name == "options":
            noted["options"].update({key.lower(): str(kwargs[key]) for key in kwargs})
            return answer
        values = [*args, *kwargs.values()]
        if name == "option":
            noted["options"][str(values[0]).lower()] = str(values[1])
        elif name == "partitionBy":
            noted["partitioned"] = True
        elif values[0] is not None:
            noted[name] = values[0]
        return answer

    return recording


def _routed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement that writes through the current batch, or as usual without one."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        fence = _fence_of_writer(self)
        if fence is None:
            return original(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        given = bound.arguments
        noted = _noted(self)
        mode = given.pop("mode", None) or noted["mode"]
        named = given.get("format") or noted["format"] or _default_format(self)
        format_ = str(named if name == "save" else name).lower()
        if format_ == "noop":
            return original(self, *args, **kwargs)
        if format_ not in FILE_FORMATS and format_ != "delta":
            raise CheckpointError(unsafe(format_))  # Checked before the path, which cannot help.
        options = {**noted["options"], **{k.lower(): str(v) for k, v in _more(given).items()}}
        path = given.get("path")
        if path is None or "path" in options:
            raise CheckpointError(
                f"in a fenced batch {name}() needs its path as an argument, not as an option"
            )

        def emit(place: str, more: Mapping[str, str]) -> None:
            given["path"] = place
            if "mode" in signature.parameters:
                given["mode"] = None
            with _directly():
                self.options(**more).mode(_emitted(format_, mode))
                original(*bound.args, **bound.kwargs)

        partitioned = noted["partitioned"] or bool(given.get("partitionBy"))
        dynamic = partitioned and _is_dynamic(self._spark, options)
        return fence.write(Writing(self._df, str(path), str(mode), format_, dynamic, emit))

    return method


def _more(given: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = given.get("options", {})
    return found


def _default_format(writer: Any) -> str:
    return str(writer._spark.conf.get("spark.sql.sources.default"))


def _refused(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _fence_of_writer(self) is None:
            return original(self, *args, **kwargs)
        raise CheckpointError(
            f"{name}() in a fenced batch would be done twice where the batch is run again: write "
            "files or a Delta table by path, or do it in a foreachBatch that is not fenced, and "
            "let the sink drop what it has seen, by batch_id and ctx.fencing_token"
        )

    return method
