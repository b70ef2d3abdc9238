"""Counts of a TaskManager's drivers and attempts since the process started; they only grow."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field


class DriverEnd(enum.Enum):
    """Why a driver is no more; the value is what metrics show."""

    UNWANTED = "unwanted"
    """Its application is not served any more, or the TaskManager ends."""
    RETIRED = "retired"
    """It was not to serve again: its TaskManager has ended it."""
    DIED = "died"
    NEVER_WARM = "never_warm"
    """It died, or was killed, before its session was there."""


@dataclass
class DriverCounts:
    """The drivers of one TaskManager, and the attempts in them."""

    starts: int = 0
    """Processes that were started."""
    start_failures: int = 0
    """Processes that could not be started, or were never warm."""
    ends: Counter[DriverEnd] = field(default_factory=Counter)
    attempts: int = 0
    """Attempts that were handed to a driver."""
    attempt_ends: Counter[str] = field(default_factory=Counter)
    """By status in lower case, or ``lost``, with their driver."""


LOST = "lost"
"""How an attempt ends whose driver dies."""
