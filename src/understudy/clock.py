"""The clock interface: two readings that tests can replace.

Waiting goes through the event loop, which a simulation replaces as a whole; code that blocks a
thread until something ends uses `poll`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """A source of time."""

    def now(self) -> float:
        """Return monotonic seconds that also count system sleep; for leases and deadlines."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970, for people; it may jump."""
        ...


class SystemClock:
    """The kernel's clocks: CLOCK_BOOTTIME where there is one (Linux), else the monotonic clock."""

    def now(self) -> float:
        """Read the boot-time (or monotonic) clock."""
        return time.clock_gettime(_HOLDING_CLOCK)

    def wall(self) -> float:
        """Read the system's wall clock."""
        return time.time()


_HOLDING_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def poll(
    look: Callable[[], T], pending: Callable[[T], object], limit_s: float, pause_s: float
) -> T:
    """Look until nothing is pending or the time is over; return what was seen last."""
    deadline = time.monotonic() + limit_s
    while pending(found := look()) and time.monotonic() < deadline:
        time.sleep(pause_s)
    return found
