"""What strangers cause in the log, at a bounded rate: a flood of a port must not fill a disk."""

from __future__ import annotations

import logging
import time

QUIET_S = 60.0
"""The same complaint about the same peer is logged once in so long: peers try again and again."""

REMEMBERED_MAX = 256
"""Complaints that are remembered; strangers have many addresses."""

LINES_MAX = 60
"""Lines in `QUIET_S`, whomever they are about."""

REPEATS_MAX = 5
"""Of a record of a library, with whatever cause, so many are logged in `QUIET_S`."""

LEFT_OUT = "further complaints are left out of the log for a minute"

_log = logging.getLogger(__name__)


class Complaints:
    """What was logged lately."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], float] = {}
        self._rate = _Rate(LINES_MAX)

    def log(self, about: str, said: str) -> None:
        """Log a sentence about a peer, unless that was done a moment ago."""
        now = time.monotonic()
        if self._until.get((about, said), now) > now:
            return
        left = self._rate.take(now)
        if not left:
            return
        if len(self._until) >= REMEMBERED_MAX:
            self._until.pop(next(iter(self._until)))
        self._until[about, said] = now + QUIET_S
        _log.warning("%s: %s%s", about, said, f" ({LEFT_OUT})" if left == 1 else "")


class Bounded(logging.Filter):
    """Lets a logger repeat each of its messages a few times a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._rates: dict[str, _Rate] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record is to be logged."""
        said = str(record.msg)
        if said not in self._rates:
            if len(self._rates) >= REMEMBERED_MAX:
                self._rates.pop(next(iter(self._rates)))
            self._rates[said] = _Rate(REPEATS_MAX)
        return self._rates[said].take(time.monotonic()) > 0


class _Rate:
    """So many in each span of `QUIET_S`."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._left = 0
        self._until = 0.0

    def take(self, now: float) -> int:
        """Return how many were left, this one included; 0 where there is none."""
        if now >= self._until:
            self._until, self._left = now + QUIET_S, self._maximum
        left = self._left
        self._left = max(0, left - 1)
        return left
