"""Whether a job has executors: reported once it is certain, an error once it waits too long."""

from __future__ import annotations

from typing import Any, cast

import pytest

from understudy.clock import Clock
from understudy.driver.driver_session import DriverSession
from understudy.driver.executor_watch import CARRIES_S, ExecutorWatch
from understudy.errors import UnreachableError
from understudy.rpc.messages import Executors

WAITS = "waits for executors: the cluster has 0 of 4 cores free; 'nightly' holds 4"
WAIT_S = 3.0


class Time:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> float:
        return self.seconds


class Cluster:
    """A session whose cluster gives executors, or does not."""

    def __init__(self) -> None:
        self.reason = ""
        self.jobs: int | None = 2
        self.asked = 0
        self.error: Exception | None = None

    def waits(self) -> str:
        if self.error:
            raise self.error
        return self.reason

    def carries(self) -> int | None:
        self.asked += 1
        return self.jobs


class Watched:
    """A watch, and what it has reported."""

    def __init__(self, wait_s: float | None = WAIT_S) -> None:
        self.time = Time()
        self.cluster = Cluster()
        self.sent: list[Any] = []
        session, clock = cast(DriverSession, self.cluster), cast(Clock, self.time)
        self.watch = ExecutorWatch(session, self.sent.append, clock, wait_s)

    def look(self, job: str = "a", after_s: float = 1.0) -> str:
        """Look once more; return the error's text, empty without one."""
        self.time.seconds += after_s
        error = self.watch.look(job)
        return str(error or "")


def test_a_job_that_waits_is_reported_at_the_second_look_and_once() -> None:
    watched = Watched()
    watched.cluster.reason = WAITS
    for _ in range(3):
        watched.look()
    watched.cluster.reason = ""
    watched.look()

    assert [Executors(carries=2), Executors(waits=WAITS, carries=2), Executors(carries=2)] == (
        watched.sent
    )


def test_a_job_that_waits_for_too_long_gets_an_error_that_names_the_holder_and_the_option() -> None:
    watched = Watched()
    watched.cluster.reason = WAITS
    told = [watched.look() for _ in range(5)]

    assert [""] * 4 == told[:4]
    assert (
        f"no executors after 4 s: the job {WAITS} (taskmanager.executors.wait-timeout is 3 s)"
        == told[4]
    )


@pytest.mark.parametrize("how", ["executors came", "another job", "no limit"])
def test_no_error_comes_if(how: str) -> None:
    watched = Watched(None if how == "no limit" else WAIT_S)
    watched.cluster.reason = WAITS
    told = [watched.look() for _ in range(3)]
    if how == "executors came":
        watched.cluster.reason = ""
        watched.look()
        watched.cluster.reason = WAITS
    job = "b" if how == "another job" else "a"
    told += [watched.look(job) for _ in range(3)]

    assert [""] * 6 == told


def test_what_the_cluster_carries_is_asked_now_and_then() -> None:
    watched = Watched()
    watched.look("", after_s=0.0)
    watched.cluster.jobs = 1
    watched.look("", after_s=CARRIES_S - 1)
    watched.look("", after_s=1.0)

    assert 2 == watched.cluster.asked
    assert [Executors(carries=2), Executors(carries=1)] == watched.sent


def test_a_cluster_that_cannot_be_looked_at_is_no_news_and_a_lost_taskmanager_is() -> None:
    watched = Watched()
    watched.cluster.error = ValueError("its page is no JSON")

    assert "" == watched.look()
    assert [] == watched.sent

    watched.cluster.error = UnreachableError("the TaskManager is gone")
    with pytest.raises(UnreachableError):
        watched.look()
