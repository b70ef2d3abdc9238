"""Counts of a JobManager's terms and takeovers since the process started; they only grow.

``api.metrics`` reads all other metrics from the present state.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from understudy.ha.metered import Durations
from understudy.process.reporter import Reporter

TAKEOVERS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""From a leader whose death is proved at once, to a host whose lease must run out."""

FATES = ("adopted", "restarted", "skipped", "displaced")
"""What a takeover does with a job."""


@dataclass
class LeaderCounts:
    """The terms of one JobManager."""

    leaderships: int = 0
    """Terms in which this JobManager has published its addresses."""
    takeovers: Durations = field(default_factory=lambda: Durations(TAKEOVERS_S))
    jobs: Counter[str] = field(default_factory=Counter)
    """Jobs in takeovers, by fate."""


class CountingReporter:
    """Reporter that counts terms and takeovers, and passes every event on."""

    def __init__(self, reporter: Reporter, counts: LeaderCounts) -> None:
        self._reporter = reporter
        self._counts = counts

    def event(self, event: str, **fields: Any) -> None:
        """Count a leader or takeover event, then pass the event on."""
        if event == "leader":
            self._counts.leaderships += 1
        elif event == "takeover":
            self._counts.takeovers.note(fields["seconds"])
            self._counts.jobs.update({fate: len(fields[fate]) for fate in FATES})
        self._reporter.event(event, **fields)

    def line(self, log: str, source: str, text: str) -> None:
        """Pass the line on."""
        self._reporter.line(log, source, text)

    def close(self) -> None:
        """Close the wrapped reporter."""
        self._reporter.close()
