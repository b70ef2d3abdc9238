"""The pulse: the guardian is told the earliest time by which anybody must be heard of."""

from __future__ import annotations

from typing import Any

from understudy.process.worker import Pulse


class Link:
    """Notes what the guardian is told last."""

    def __init__(self) -> None:
        self.told: float | None = None

    def until(self, deadline: float) -> None:
        self.told = deadline


class Clock:
    """Stands at a time."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


def test_who_is_silent_counts_whoever_else_is_heard_of() -> None:
    link: Any = Link()
    clock: Any = Clock()
    pulse = Pulse(link, clock, 30.0)
    pulse.expect("driver")
    pulse.expect("job", 110.0)
    clock.time = 105.0
    pulse.expect("driver")

    assert 110.0 == link.told

    pulse.expect("job", 140.0)

    assert 135.0 == link.told


def test_who_is_gone_is_not_waited_for() -> None:
    link: Any = Link()
    clock: Any = Clock()
    pulse = Pulse(link, clock, 30.0)
    pulse.expect("driver")
    pulse.expect("job", 110.0)
    pulse.forget("job")

    assert 130.0 == link.told
