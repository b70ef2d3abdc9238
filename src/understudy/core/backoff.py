"""Exponential backoff: the pauses between tries of an operation that keeps failing."""

from __future__ import annotations

import math

from msgspec import Struct

DOUBLINGS_MAX = 60
"""Keeps the pause a finite number after any count of failures."""


class Backoff(Struct, frozen=True):
    """A first pause, doubled after each further failure, up to a limit."""

    first_s: float
    max_s: float = math.inf

    def pause_s(self, failures: int) -> float:
        """Return the pause after so many failures in a row; 0 after none."""
        if failures == 0:
            return 0.0
        return min(self.first_s * 2.0 ** min(failures - 1, DOUBLINGS_MAX), self.max_s)


class BackoffOver(Struct, frozen=True):
    """The event that the pause before the next try is over."""
