"""Looks at an application of a session become the events that run-application shows."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.support.virtual_time import run_virtual
from understudy.api.client import ClusterClient
from understudy.cli.launch import following
from understudy.cli.launch.following import News, follow, output
from understudy.cli.launch.sentences import describe
from understudy.errors import NoLeaderError

Json = dict[str, Any]


def job(name: str, state: str, attempt: int = 1, **more: Any) -> Json:
    tasks = {"finished": more.pop("done", 0), "total": more.pop("total", 0)}
    return {
        "jid": f"id of {name}",
        "name": name,
        "state": state,
        "attempt": attempt,
        "tasks": tasks,
    } | more


def application(status: str, *jobs: Json, **more: Any) -> Json:
    return {"id": "a" * 32, "run-id": "run", "name": "n", "status": status, "jobs": [*jobs]} | more


def leads(term: int, took: float | None = None) -> Json:
    leader = {"id": f"jobmanager-{term}", "pid": 7, "rest": "http://x", "term": term, "since": 1}
    return {"leader": leader, "history": [{"term": term, "takeover_seconds": took}]}


def kinds(events: list[Json]) -> list[str]:
    return [one["event"] for one in events]


def test_what_is_the_same_is_not_told_again() -> None:
    news = News()
    first = news.of(application("RUNNING", job("a", "RUNNING")), leads(1))
    again = news.of(application("RUNNING", job("a", "RUNNING")), leads(1))

    assert ["leader", "application-status", "job-status"] == kinds(first)
    assert [] == again


def test_the_end_is_told_last_with_each_job() -> None:
    news = News()
    failure = {"class": "ValueError", "message": "no\nline", "stack-trace": "…"}
    news.of(application("RUNNING"), leads(1))
    events = news.of(application("FAILED", job("a", "FAILED", 3), failure=failure), leads(1))

    assert ["job-status", "application-status", "application-finished"] == kinds(events)
    assert "ValueError: no line" == events[-1]["failure"]
    assert [{"job_id": "id of a", "name": "a", "status": "FAILED", "attempt": 3}] == (
        events[-1]["jobs"]
    )
    assert "understudy: the application failed: ValueError: no line" == describe(events[-1])


def test_a_takeover_is_told_once_with_what_was_adopted_though_it_is_over_by_then() -> None:
    news = News()
    news.of(application("RUNNING", job("a", "RUNNING")), leads(1))
    during = news.of(application("RUNNING", job("a", "RUNNING", adopted=True)), leads(2))
    over = application("FINISHED", job("a", "FINISHED", adopted=None))
    after = news.of(over, leads(2, 0.25))

    assert "takeover" not in kinds(during)
    told = next(one for one in after if one["event"] == "takeover")
    assert "understudy: takeover in 0.25 s; adopted: a" == describe(told)


def test_the_leader_that_is_found_at_first_took_nothing_over() -> None:
    assert "takeover" not in kinds(News().of(application("RUNNING"), leads(5, 1.0)))


def test_why_a_job_waits_and_its_tasks_are_told() -> None:
    news = News()
    events = news.of(application("RUNNING", job("a", "CREATED", 0, waits="waits for a slot")), None)
    events += news.of(application("RUNNING", job("a", "RUNNING", 1, done=2, total=8)), None)

    assert [
        "application-status",
        "job-status",
        "job-waits",
        "job-status",
        "job-progress",
    ] == kinds(events)
    assert (2, 8) == (events[-1]["tasks_done"], events[-1]["tasks_total"])


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("2026-01-01T00:00:00.000+00:00 [main] hello [x] y", "[main] hello [x] y"),
        ("2026-01-01T00:00:00.000+00:00 [main] ", "[main] "),
        ("2026-01-01T00:00:00.000+00:00 [understudy] 2026 INFO x", ""),
        ("2026-01-01T00:00:00.000+00:00 [a job] WARNING: Using incubator modules: x", ""),
    ],
)
def test_output_is_shown_as_run_application_shows_it(line: str, shown: str) -> None:
    event = output(line)

    assert shown == (describe(event) if event else "")


class Cluster:
    """A cluster as a client sees it: each look is the next one."""

    def __init__(self, *looks: Json | Exception, stored: Json | None = None) -> None:
        self.looks = [*looks]
        self.stored = stored
        self.failed: list[Json] | Exception = []
        self.log_ = [b"t [main] one\nt [ma", b"in] two\n"]

    async def get(self, path: str, *, awaits_leader: bool = False) -> Json:
        if path == "/ha/status":
            return leads(1)
        look = self.looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look

    async def log(self, _: str, offset: int) -> tuple[bytes, int]:
        return (self.log_.pop(0) if self.log_ else b""), offset + 1

    async def failures(self, _: str) -> list[Json]:
        if isinstance(self.failed, Exception):
            raise self.failed
        return self.failed

    async def stored_application(self, _: str) -> Json:
        assert self.stored
        return self.stored


def followed(cluster: Cluster, **more: bool) -> tuple[str, list[Json]]:
    events: list[Json] = []
    client = cast("ClusterClient", cluster)
    return run_virtual(follow(client, "a", events.append, **more)), events


def test_it_is_followed_to_its_end_with_whole_lines_of_its_log() -> None:
    status, events = followed(Cluster(application("RUNNING"), application("FINISHED")))
    printed = [one["line"] for one in events if one["event"] == "output"]

    assert "FINISHED" == status
    assert ["one", "two"] == printed
    assert "application-finished" == events[-1]["event"]


def failure(attempt: int, stacktrace: str) -> Json:
    return {"exceptionName": "ValueError", "stacktrace": stacktrace, "attempt": attempt}


def test_each_failed_attempt_is_an_event_though_nobody_has_looked_in_between() -> None:
    trace = "Traceback (most recent call last):\n  File …\nValueError: no\n"
    cluster = Cluster(
        application("RUNNING", job("a", "RUNNING", 1)),
        application("FAILED", job("a", "FAILED", 2, reason="not restarted: x")),
    )
    cluster.failed = [failure(2, trace), failure(1, "its driver is lost")]
    _, events = followed(cluster, tells_failures=True)
    told = [one for one in events if one["event"] == "attempt-failed"]

    assert [1, 2] == [one["attempt"] for one in told]
    assert ["its driver is lost", "no"] == [one["failure"]["message"] for one in told]
    assert ["", trace] == [one["failure"]["traceback"] for one in told]
    assert ["", "not restarted: x"] == [one["reason"] for one in told]
    assert "another attempt follows" in describe(told[0])
    assert "application-finished" == events[-1]["event"]


def test_a_failure_is_told_once_and_what_cannot_be_read_is_looked_for_again() -> None:
    looks = [application("RUNNING", job("a", "RESTARTING", 1))] * 3
    cluster = Cluster(*looks, application("FINISHED", job("a", "FINISHED", 2)))
    cluster.failed = [failure(1, "gone")]
    _, events = followed(cluster, tells_failures=True)
    away = Cluster(*looks, application("FINISHED", job("a", "FINISHED", 2)))
    away.failed = NoLeaderError("nobody")

    assert 1 == kinds(events).count("attempt-failed")
    assert "attempt-failed" not in kinds(followed(away, tells_failures=True)[1])
    assert "attempt-failed" not in kinds(followed(Cluster(application("FINISHED")))[1])


def test_where_nobody_leads_any_more_storage_tells_the_end() -> None:
    gone = NoLeaderError("nobody")
    status, events = followed(Cluster(gone, stored=application("CANCELED")))

    assert "CANCELED" == status
    assert "application-finished" == events[-1]["event"]
    with pytest.raises(NoLeaderError):
        followed(Cluster(gone, stored=application("RUNNING")))


def test_it_looks_less_often_as_time_goes_by() -> None:
    looks = [application("RUNNING")] * 2_000

    async def story() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        cluster = cast("ClusterClient", Cluster(*looks, application("FINISHED")))
        await follow(cluster, "a", lambda _: None)
        return loop.time() - began

    took_s = run_virtual(story())

    assert 0.9 * 2_000 * following.LOOK_MAX_S < took_s <= 2_000 * following.LOOK_MAX_S
