"""What has happened in a process since it started, as numbers that only grow.

What can be read from the state of things is not counted here: ``api.metrics`` looks at it.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from understudy.ha.metered import Durations
from understudy.runtime.reporter import Reporter


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

TAKEOVERS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""From a leader whose death is proved at once, to hosts that must be waited for."""

FATES = ("adopted", "restarted", "skipped", "displaced")
"""What a takeover does with a job."""


@dataclass
class LeaderCounts:
    """The terms of one JobManager."""

    leaderships: int = 0
    """Terms in which it has served: addresses were published."""
    takeovers: Durations = field(default_factory=lambda: Durations(TAKEOVERS_S))
    jobs: Counter[str] = field(default_factory=Counter)
    """Jobs in takeovers, by fate."""


class CountingReporter:
    """Hands on what is told, and counts what it says of this JobManager's terms."""

    def __init__(self, reporter: Reporter, counts: LeaderCounts) -> None:
        self._reporter = reporter
        self._counts = counts

    def event(self, event: str, **fields: Any) -> None:
        """See `Reporter.event`."""
        if event == "leader":
            self._counts.leaderships += 1
        elif event == "takeover":
            self._counts.takeovers.note(fields["seconds"])
            self._counts.jobs.update({fate: len(fields[fate]) for fate in FATES})
        self._reporter.event(event, **fields)

    def line(self, log: str, source: str, text: str) -> None:
        """See `Reporter.line`."""
        self._reporter.line(log, source, text)

    def close(self) -> None:
        """See `Reporter.close`."""
        self._reporter.close()
