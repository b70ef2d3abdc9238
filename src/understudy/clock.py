"""Time as the rest of Understudy sees it: two readings, so that tests can supply them.

Waiting goes through the event loop, which a simulation replaces as a whole.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> float:
        """Return seconds that also pass while the machine sleeps; for deadlines of holding."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970, for people; it may jump."""
        ...


class SystemClock:
    """The kernel's clocks: CLOCK_BOOTTIME where there is one (Linux), else the monotonic clock."""

    def now(self) -> float:
        """See `Clock.now`."""
        return time.clock_gettime(_HOLDING_CLOCK)

    def wall(self) -> float:
        """See `Clock.wall`."""
        return time.time()


_HOLDING_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
