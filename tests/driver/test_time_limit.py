"""The timeout of a job: interrupted first, killed after the grace period, left alone in time."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from msgspec.structs import replace

from tests.driver.ground import deploy
from understudy.driver.time_limit import TimeLimit
from understudy.errors import JobTimedOut

EVENT_S = 30.0
"""Longest wait for what happens at once."""

NEVER_S = 3600.0


class Watched:
    """An attempt whose interrupt and kill are noted."""

    def __init__(self, timeout_s: float | None, grace_s: float) -> None:
        self.interrupted = threading.Event()
        self.killed = threading.Event()
        self.errors: list[JobTimedOut] = []
        self.limit = TimeLimit(
            replace(deploy(), timeout_s=timeout_s), grace_s, self._interrupt, self.killed.set
        )
        self.limit.begin()

    def _interrupt(self, error: JobTimedOut) -> None:
        self.errors.append(error)
        self.interrupted.set()


def test_an_attempt_that_exceeds_its_timeout_is_interrupted_with_the_reason() -> None:
    watched = Watched(0.01, NEVER_S)

    assert watched.interrupted.wait(EVENT_S)
    assert watched.errors == [watched.limit.exceeded]
    assert "attempt 2 ran for longer than the job's timeout of 0.01 s" in str(watched.errors[0])
    assert not watched.killed.is_set()
    watched.limit.end()


def test_an_attempt_that_does_not_end_is_killed_after_the_grace_period() -> None:
    watched = Watched(0.0, 0.01)

    assert watched.killed.wait(EVENT_S)
    assert watched.interrupted.is_set()


@pytest.mark.parametrize("timeout_s", [None, NEVER_S])
def test_an_attempt_that_ends_in_time_is_left_alone(timeout_s: float | None) -> None:
    watched = Watched(timeout_s, 0.0)
    watched.limit.end()
    watching: list[Any] = [one for one in threading.enumerate() if "understudy-timeout" in one.name]
    for one in watching:
        one.join(EVENT_S)

    assert not any(one.is_alive() for one in watching)
    assert watched.limit.exceeded is None
    assert not watched.interrupted.is_set()
