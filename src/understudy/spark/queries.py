"""The streaming queries of a job: detected at their start, awaited, watched and stopped.

A hook in PySpark's ``start`` and ``toTable`` detects them, since a query that ends quickly is no
longer in the list of active ones. Queries that are started directly in the JVM are not detected.
"""

from __future__ import annotations

import functools
import json
import queue
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
from pyspark.sql.streaming.readwriter import DataStreamWriter

from understudy.errors import CheckpointError, UnderstudyError
from understudy.model import Failure
from understudy.spark.query_log import SeenQuery

STOP_S = 30.0
"""How long queries may take to stop: a batch inside a Python function is not interrupted."""

_TEMPORARY = "temporary-"
"""Prefix of the locations that Spark creates for queries without one."""

_LOCATION_KEY = "spark.sql.streaming.checkpointLocation"


@dataclass
class _Started:
    """One query, and which of its reports were read."""

    query: StreamingQuery
    run_id: str
    facts: tuple[str, str, str] | None = None
    """The query's id, name and location."""
    newest: tuple[int, str] = (-1, "")
    """Batch and time of the latest report that was read."""
    ended: bool = False
    """The query had ended when its reports were last read: there will be no more."""


class SparkQueries:
    """The queries of one job."""

    def __init__(self, is_ours: Callable[[SparkSession], bool]) -> None:
        """Watch for queries; ``is_ours`` returns whether a session belongs to the job."""
        self.is_ours = is_ours
        self.changed = threading.Event()
        """Set when a query starts."""
        self.interrupted = False
        self._turn = threading.Lock()
        self._started: dict[str, _Started] = {}
        self._raised: set[str] = set()
        """Runs whose failure was raised to the job's function, which handles the failure itself."""
        self._ends: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()
        _hook()
        _jobs.append(self)

    def close(self) -> None:
        """Stop watching for queries."""
        if self in _jobs:
            _jobs.remove(self)

    @property
    def any(self) -> bool:
        """Return whether the job has started a query."""
        return bool(self._started)

    def started(self, query: StreamingQuery) -> None:
        """Register a query; repeated calls for one run have no effect."""
        run_id = query.runId
        with self._turn:
            if run_id in self._started:
                return
            self._started[run_id] = _Started(query, run_id)
        self._ends.put(("", None))  # Wakes `settle`, which has one more query to await.
        self.changed.set()
        if self.interrupted:
            query._jsq.stop()

    def raised(self, run_id: str) -> None:
        """Record that this run's failure was raised to the function."""
        with self._turn:
            self._raised.add(run_id)

    def all_raised(self) -> None:
        """Record that the failures of all queries so far were raised to the function."""
        for one in self._all():
            if not one.query._jsq.isActive():
                self.raised(one.run_id)

    def settle(self, value: Any) -> Any:
        """Wait until all queries have ended; raise the error of the first that fails.

        Returns the function's return value, or None in place of queries. A returned query's error
        is raised here even if the function has seen it.
        """
        returned = _returned(value)
        ours = {one.runId for one in returned}
        for one in returned:
            self.started(one)
        awaited: set[str] = set()
        ended = 0
        while True:
            for begun in self._all():
                if begun.run_id not in awaited:
                    awaited.add(begun.run_id)
                    self._await(begun)
            if ended == len(awaited):
                return None if returned else value
            run_id, error = self._ends.get()
            ended += bool(run_id)
            if error is not None and (run_id in ours or run_id not in self._raised):
                raise error

    def _await(self, begun: _Started) -> None:
        def wait() -> None:
            try:
                begun.query._jsq.awaitTermination()
            except BaseException as error:
                self._ends.put((begun.run_id, error))
            else:
                self._ends.put((begun.run_id, None))

        threading.Thread(target=wait, name="understudy-query", daemon=True).start()

    def interrupt(self) -> None:
        """Stop all queries, and each one that the function starts from now on."""
        self.interrupted = True
        self._stop_all()

    def stop(self) -> None:
        """Stop all queries and wait for their end. Raises `UnderstudyError` on a timeout."""
        if not self._started:
            return
        failures: list[BaseException] = []

        def stop() -> None:
            try:
                self._stop_all()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=stop, name="understudy-stop", daemon=True)
        thread.start()
        thread.join(STOP_S)
        if failures:
            raise failures[0]
        if thread.is_alive():
            raise UnderstudyError(f"a streaming query did not stop within {STOP_S:g} s")

    def _stop_all(self) -> None:
        for one in self._all():
            if one.query._jsq.isActive():
                one.query._jsq.stop()

    def look(self) -> list[SeenQuery]:
        """Return the queries with their new reports; an ended query appears a last time."""
        return [self._look(one) for one in self._all() if not one.ended]

    def _look(self, one: _Started) -> SeenQuery:
        java = one.query._jsq
        if one.facts is None:
            location = java.streamingQuery().resolvedCheckpointRoot()
            one.facts = (one.query.id, one.query.name or "", str(location))
        query_id, name, location = one.facts
        active = java.isActive()  # Read before the reports, so that none is missed.
        progress = _progress_since(java, one.newest)
        if progress:
            one.newest = (progress[-1]["batchId"], progress[-1]["timestamp"])
        one.ended = not active
        temporary = location.rstrip("/").rpartition("/")[2].startswith(_TEMPORARY)
        failure = None if active else _failure_of(one.query)
        return SeenQuery(query_id, one.run_id, name, location, temporary, tuple(progress), failure)

    def _all(self) -> list[_Started]:
        with self._turn:
            return list(self._started.values())


def _failure_of(query: StreamingQuery) -> Failure | None:
    """Return the failure that ended a query; None if it was stopped or is complete."""
    error = query.exception()
    if error is None:
        return None
    return Failure(type=type(error).__name__, message=str(error))


def _progress_since(java: Any, newest: tuple[int, str]) -> list[dict[str, Any]]:
    """Return the reports after ``newest``, oldest first; each costs two calls to the JVM."""
    reports = java.recentProgress()
    found: list[dict[str, Any]] = []
    for index in range(len(reports) - 1, -1, -1):
        report = json.loads(reports[index].json())
        if (report["batchId"], report["timestamp"]) == newest:
            break
        found.append(report)
    return found[::-1]


def _returned(value: Any) -> list[StreamingQuery]:
    """Return the queries in a function's return value: one query, or a list of only queries."""
    if isinstance(value, StreamingQuery):
        return [value]
    if isinstance(value, list | tuple) and value:
        queries = [one for one in value if isinstance(one, StreamingQuery)]
        return queries if len(queries) == len(value) else []
    return []


_jobs: list[SparkQueries] = []
"""The jobs that watch for queries."""


@functools.cache
def _hook() -> None:
    """Patch PySpark once: report started queries, and failures raised to the function."""
    wrap = DataStreamWriter._sq

    def _sq(self: DataStreamWriter, jsq: Any) -> StreamingQuery:
        query = wrap(self, jsq)
        ours = [one for one in _jobs if one.is_ours(self._spark)]
        for job in ours:
            job.started(query)
        if ours:
            _refuse_random_location(query, self._spark)
        return query

    DataStreamWriter._sq = _sq  # type: ignore[method-assign]
    await_one, await_any = (
        StreamingQuery.awaitTermination,
        StreamingQueryManager.awaitAnyTermination,
    )

    def await_termination(self: StreamingQuery, *args: Any, **kwargs: Any) -> Any:
        try:
            return await_one(self, *args, **kwargs)
        except Exception:
            _note_raised(self)
            raise

    def await_any_termination(self: StreamingQueryManager, *args: Any, **kwargs: Any) -> Any:
        try:
            return await_any(self, *args, **kwargs)
        except Exception:
            for job in _jobs:
                job.all_raised()
            raise

    StreamingQuery.awaitTermination = functools.wraps(await_one)(await_termination)  # type: ignore[method-assign]
    StreamingQueryManager.awaitAnyTermination = functools.wraps(await_any)(await_any_termination)  # type: ignore[method-assign]


def _refuse_random_location(query: StreamingQuery, session: SparkSession) -> None:
    """Stop a query whose location no other attempt would find, and raise `CheckpointError`.

    Below a session's configured location, Spark invents a new name for each unnamed query. Only the
    JVM knows the query's own location, so the query runs for a moment before this check.
    """
    if query.name:
        return
    location = str(query._jsq.streamingQuery().resolvedCheckpointRoot())
    try:
        uuid.UUID(location.rpartition("/")[2])
    except ValueError:
        return
    if session.conf.get(_LOCATION_KEY, ""):
        query._jsq.stop()
        raise CheckpointError(
            f"a streaming query without a name would begin from scratch in each attempt: with "
            f"{_LOCATION_KEY} Spark keeps it at {location}, and elsewhere the next time. It was "
            "stopped. Give it .queryName(...), or .option('checkpointLocation', "
            "ctx.checkpoint_location)"
        )


def _note_raised(query: StreamingQuery) -> None:
    run_id = query.runId
    for job in _jobs:
        job.raised(run_id)
