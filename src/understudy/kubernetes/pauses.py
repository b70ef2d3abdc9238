"""Pauses between tries at the API server: longer after each failure, different in each process."""

from __future__ import annotations

import random

from understudy.core.backoff import Backoff

REQUEST = Backoff(0.1, 2.0)
"""Between tries of a request."""

WATCH = Backoff(0.1, 5.0)
"""Between watches, or lists."""

EVENT = Backoff(1.0, 10.0)
"""Between tries to post an Event, for which nobody waits."""


def pause_s(backoff: Backoff, failures: int) -> float:
    """Return the pause after so many failures in a row, stretched at random by up to a half."""
    return backoff.pause_s(failures) * random.uniform(1.0, 1.5)  # noqa: S311 -- no secret
