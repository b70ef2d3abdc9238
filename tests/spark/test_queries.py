"""A job lasts as long as the queries that it starts; the first that fails is its error."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
from pyspark.sql.streaming.readwriter import DataStreamWriter

from understudy.errors import CheckpointError, UnderstudyError
from understudy.spark import queries as module
from understudy.spark.queries import SparkQueries

PATIENCE_S = 10.0


class FakeQuery:
    """What py4j gives of a query, as far as it is called; it ends when it is told to."""

    def __init__(self, run_id: str, *, stubborn: bool = False) -> None:
        self.run_id = run_id
        self.stubborn = stubborn
        self.error: Exception | None = None
        self.reports: list[str] = []
        self.location = "file:/here"
        self.query_name: str | None = None
        self.over = threading.Event()

    def runId(self) -> FakeQuery:  # noqa: N802 -- the names are Spark's
        return self

    id = runId

    def toString(self) -> str:  # noqa: N802
        return self.run_id

    def name(self) -> str | None:
        return self.query_name

    def isActive(self) -> bool:  # noqa: N802
        return not self.over.is_set()

    def awaitTermination(self, *_: object) -> None:  # noqa: N802
        assert self.over.wait(PATIENCE_S)
        if self.error:
            raise self.error

    def stop(self) -> None:
        if self.stubborn:
            assert not self.over.wait(PATIENCE_S)
        self.over.set()

    def fail(self, text: str) -> None:
        self.error = RuntimeError(text)
        self.over.set()

    def exception(self) -> FakeQuery:
        return self

    def isDefined(self) -> bool:  # noqa: N802 -- no test of this file fails one that is looked at
        return False

    def streamingQuery(self) -> FakeQuery:  # noqa: N802
        return self

    def resolvedCheckpointRoot(self) -> str:  # noqa: N802
        return self.location

    def recentProgress(self) -> list[Any]:  # noqa: N802
        return [type("Report", (), {"json": lambda _, text=text: text})() for text in self.reports]


@pytest.fixture
def queries() -> Any:
    """Return the queries of a job."""
    found = SparkQueries(lambda session: str(session) == "ours")
    yield found
    found.close()


def begin(run_id: str, session: str = "ours", **more: Any) -> tuple[FakeQuery, StreamingQuery]:
    """Start a query as PySpark does."""
    java = FakeQuery(run_id, **more)
    return java, start(java, session)


def start(java: FakeQuery, session: object) -> StreamingQuery:
    """Hand out a query of a session as PySpark does."""
    writer = DataStreamWriter.__new__(DataStreamWriter)
    writer._spark = session  # type: ignore[assignment]
    return writer._sq(java)


class FakeSession:
    """A session, as far as its setting is asked for."""

    def __init__(self, location: str, name: str = "ours") -> None:
        self.conf = {"spark.sql.streaming.checkpointLocation": location} if location else {}
        self.name = name

    def __str__(self) -> str:
        return self.name


class Settling:
    """``settle`` in a thread of its own."""

    def __init__(self, queries: SparkQueries, value: Any) -> None:
        self.outcome: list[Any] = []
        self._thread = threading.Thread(target=self._run, args=(queries, value), daemon=True)
        self._thread.start()

    def _run(self, queries: SparkQueries, value: Any) -> None:
        try:
            self.outcome.append(queries.settle(value))
        except RuntimeError as error:
            self.outcome.append(str(error))

    def end(self) -> Any:
        """Return what it has returned or raised."""
        self._thread.join(PATIENCE_S)
        [outcome] = self.outcome
        return outcome

    def goes_on(self) -> bool:
        """Say whether it still waits, a moment later."""
        self._thread.join(0.2)
        return self._thread.is_alive()


@pytest.mark.parametrize("shape", [lambda one: one, lambda one: [one], lambda one: (one,)])
def test_a_returned_query_is_awaited_and_its_value_is_none(
    queries: SparkQueries, shape: Callable[[Any], Any]
) -> None:
    java, query = begin("1")
    settling = Settling(queries, shape(query))

    assert settling.goes_on()
    java.over.set()
    assert settling.end() is None


def test_a_query_that_was_only_started_is_awaited_too(queries: SparkQueries) -> None:
    java, _ = begin("1")
    settling = Settling(queries, {"rows": 3})

    assert settling.goes_on()
    java.over.set()
    assert {"rows": 3} == settling.end()


def test_a_query_that_starts_while_others_run_is_awaited(queries: SparkQueries) -> None:
    first, _ = begin("1")
    settling = Settling(queries, None)
    second, _ = begin("2")
    first.over.set()

    assert settling.goes_on()
    second.over.set()
    assert settling.end() is None


def test_the_first_failure_is_the_jobs_while_another_runs(queries: SparkQueries) -> None:
    begin("1")
    failing, _ = begin("2")
    settling = Settling(queries, None)
    failing.fail("no such column")

    assert "no such column" == settling.end()


def test_a_query_that_starts_and_fails_while_others_run_fails_the_job(
    queries: SparkQueries,
) -> None:
    begin("1")
    settling = Settling(queries, None)
    assert settling.goes_on()
    failing, _ = begin("2")
    failing.fail("no such column")

    assert "no such column" == settling.end()


def test_a_query_that_had_failed_before_fails_the_job(queries: SparkQueries) -> None:
    java, _ = begin("1")
    java.fail("no such column")

    assert "no such column" == Settling(queries, None).end()


def test_a_failure_that_the_function_was_told_is_its_own_business(queries: SparkQueries) -> None:
    java, query = begin("1")
    java.fail("no such column")
    with pytest.raises(RuntimeError):
        query.awaitTermination()

    assert 7 == Settling(queries, 7).end()


def test_a_failure_that_came_from_awaiting_any_is_the_functions_business(
    queries: SparkQueries,
) -> None:
    java, _ = begin("1")
    java.fail("no such column")
    manager = StreamingQueryManager(java)
    java.awaitAnyTermination = java.awaitTermination  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError):
        manager.awaitAnyTermination()

    assert 7 == Settling(queries, 7).end()


def test_a_failure_that_the_function_only_looked_at_fails_the_job(
    queries: SparkQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, query = begin("1")
    java.fail("no such column")
    caught = SimpleNamespace(
        toString=lambda: "Failed: no such column", getStackTrace=list, getCause=lambda: None
    )
    found = SimpleNamespace(isDefined=lambda: True, get=lambda: caught)
    monkeypatch.setattr(java, "exception", lambda: found, raising=False)
    monkeypatch.setattr(  # The original asks a JVM for its stack.
        "pyspark.sql.streaming.query.CapturedStreamingQueryException", lambda text, *_: text
    )
    looked_at: object = query.exception()

    assert "no such column" == looked_at
    assert "no such column" == Settling(queries, 7).end()


@pytest.mark.parametrize("shape", [lambda one: one, lambda one: [one]])
def test_a_failure_of_a_query_that_the_function_returns_fails_the_job(
    queries: SparkQueries, shape: Callable[[Any], Any]
) -> None:
    java, query = begin("1")
    java.fail("no such column")
    with pytest.raises(RuntimeError):
        query.awaitTermination()

    assert "no such column" == Settling(queries, shape(query)).end()


def test_a_query_of_another_session_is_not_the_jobs(queries: SparkQueries) -> None:
    begin("1", "other")

    assert not queries.any
    assert 7 == Settling(queries, 7).end()


def test_a_list_of_other_things_is_a_value(queries: SparkQueries) -> None:
    assert [1, 2] == Settling(queries, [1, 2]).end()
    assert [] == Settling(queries, []).end()


def test_an_interrupt_stops_what_runs_and_what_starts_later(queries: SparkQueries) -> None:
    running, _ = begin("1")
    queries.interrupt()
    later, _ = begin("2")

    assert (False, False) == (running.isActive(), later.isActive())
    assert queries.interrupted


def test_all_are_stopped_before_the_attempt_ends(queries: SparkQueries) -> None:
    javas = [begin(str(number))[0] for number in range(3)]
    queries.stop()

    assert [False] * 3 == [java.isActive() for java in javas]


def test_a_query_that_does_not_stop_is_told(
    queries: SparkQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.1)
    begin("1", stubborn=True)
    with pytest.raises(UnderstudyError, match="did not stop within"):
        queries.stop()


RANDOM = "file:/all/0f0e8a52-6c4e-4c0c-9d6e-1f2f7f0a9b3c"


def test_a_query_at_a_location_that_is_another_each_time_is_stopped_and_refused(
    queries: SparkQueries,
) -> None:
    java = FakeQuery("1")
    java.location = RANDOM
    with pytest.raises(CheckpointError, match=r"\.queryName.*ctx\.checkpoint_location"):
        start(java, FakeSession("/all"))

    assert not java.isActive()
    assert 7 == Settling(queries, 7).end()


@pytest.mark.parametrize(
    ("location", "name", "setting", "session"),
    [
        ("file:/all/orders", "orders", "/all", "ours"),
        (RANDOM, "orders", "/all", "ours"),
        ("file:/mine", None, "/all", "ours"),
        (RANDOM, None, "", "ours"),
        (RANDOM, None, "/all", "other"),
    ],
)
def test_a_query_is_not_refused_for_its_location(
    queries: SparkQueries, location: str, name: str | None, setting: str, session: str
) -> None:
    java = FakeQuery("1")
    java.location, java.query_name = location, name
    start(java, FakeSession(setting, session))

    assert java.isActive()
    assert (session == "ours") == queries.any


def test_each_report_is_seen_once_and_the_last_after_the_end(queries: SparkQueries) -> None:
    java, _ = begin("1")
    java.reports = [_report(0)]
    first = queries.look()
    java.reports = [_report(0), _report(1), _report(2)]
    java.over.set()
    second = queries.look()

    assert [[0], [1, 2]] == [
        [report["batchId"] for report in one.progress] for [one] in (first, second)
    ]
    assert [] == queries.look()


def _report(number: int) -> str:
    return json.dumps({"batchId": number, "timestamp": f"t{number}"})
