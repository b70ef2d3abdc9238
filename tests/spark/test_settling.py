"""How long a driver waits for threads that a job has left in the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from understudy import clock
from understudy.driver import surroundings
from understudy.spark import session
from understudy.spark.jvm_state import JvmSnapshot
from understudy.spark.session import SparkSessions

BEFORE = JvmSnapshot({})
LEFT = JvmSnapshot({"thread:left": "7"})


class Time:
    """The module `time`, as far as it is used; only sleeping takes time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Replace the time by which is polled."""
    fake = Time()
    monkeypatch.setattr(clock, "time", fake)
    return fake


def left_of(looks: Iterator[JvmSnapshot]) -> list[str]:
    """Return what is left of a job after which the JVM looks like this."""
    sessions: Any = SparkSessions()
    sessions._state = type("State", (), {"look": lambda _: next(looks)})()
    sessions._contexts = type("Contexts", (), {"finish": lambda _, keep: True})()
    sessions._before = BEFORE
    found: list[str] = sessions.close()
    return found


def test_a_thread_that_stays_is_waited_for_as_long_as_children(time: Time) -> None:
    assert ["it left threads in the JVM: left"] == left_of(iter(lambda: LEFT, BEFORE))
    assert surroundings.SETTLE_S == pytest.approx(time.now, abs=2 * session.SETTLE_POLL_S)


def test_a_thread_that_is_about_to_end_is_no_reason_to_retire_a_driver(time: Time) -> None:
    assert [] == left_of(iter([LEFT, LEFT, BEFORE]))
    assert 2 * session.SETTLE_POLL_S == time.now


def test_without_a_thread_nobody_waits(time: Time) -> None:
    assert [] == left_of(iter([BEFORE]))
    assert ["it changed the JVM's default time zone"] == left_of(
        iter([JvmSnapshot({"zone": "Asia"})])
    )
    assert 0.0 == time.now
