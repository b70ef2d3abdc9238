"""What a TaskManager counts of its drivers, for metrics."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field

LOST = "lost"
"""Label of an attempt whose driver died."""


class DriverEnd(enum.Enum):
    """Why a driver ended; the value is the metrics' label."""

    UNWANTED = "unwanted"
    """Its application is no longer served, another one needs its place, or the TaskManager ends."""
    RETIRED = "retired"
    """Its TaskManager ended it after an attempt, as unfit for the next."""
    DIED = "died"
    NEVER_WARM = "never_warm"
    """It died, or was killed, before its Spark session was ready."""


@dataclass
class DriverCounts:
    """The drivers of one TaskManager, and the attempts in them."""

    starts: int = 0
    """Processes started."""
    start_failures: int = 0
    """Processes that failed to start or to become warm."""
    ends: Counter[DriverEnd] = field(default_factory=Counter)
    attempts: int = 0
    """Attempts given to a driver."""
    attempt_ends: Counter[str] = field(default_factory=Counter)
    """Ended attempts by status in lower case, or ``lost`` if their driver died."""
