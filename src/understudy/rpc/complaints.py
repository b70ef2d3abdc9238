"""Rate-limited log messages about strangers: a flooded port must not fill a disk."""

from __future__ import annotations

import logging
import time

QUIET_S = 60.0
"""The same complaint about the same peer is logged once in this time: peers keep retrying."""

REMEMBERED_MAX = 256
"""Number of remembered complaints; strangers have many addresses."""

LINES_MAX = 60
"""Lines per `QUIET_S`, for all peers together."""

REPEATS_MAX = 5
"""Records per `QUIET_S` with the same message of a library."""

LEFT_OUT = "further complaints are left out of the log for a minute"

_log = logging.getLogger(__name__)


class Complaints:
    """Logs complaints about peers, at a bounded rate."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], float] = {}
        self._rate = _Rate(LINES_MAX)

    def log(self, about: str, problem: str) -> None:
        """Log a sentence about a peer, unless it was logged in the last `QUIET_S`."""
        now = time.monotonic()
        if self._until.get((about, problem), now) > now:
            return
        left = self._rate.take(now)
        if not left:
            return
        if len(self._until) >= REMEMBERED_MAX:
            self._until.pop(next(iter(self._until)))
        self._until[about, problem] = now + QUIET_S
        _log.warning("%s: %s%s", about, problem, f" ({LEFT_OUT})" if left == 1 else "")


class Bounded(logging.Filter):
    """Lets a logger repeat each of its messages a few times a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._rates: dict[str, _Rate] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        problem = str(record.msg)
        if problem not in self._rates:
            if len(self._rates) >= REMEMBERED_MAX:
                self._rates.pop(next(iter(self._rates)))
            self._rates[problem] = _Rate(REPEATS_MAX)
        return self._rates[problem].take(time.monotonic()) > 0


class _Rate:
    """A maximum of events per `QUIET_S`."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._left = 0
        self._until = 0.0

    def take(self, now: float) -> int:
        """Return how many were left, this one included; 0 if none."""
        if now >= self._until:
            self._until, self._left = now + QUIET_S, self._maximum
        left = self._left
        self._left = max(0, left - 1)
        return left
