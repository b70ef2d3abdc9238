"""The pulse of a process whose main thread belongs to others: it reports to the guardian.

What hangs below it is held to the same: a process that is announced with `Pulse.expect` must be
heard of too, or the guardian ends them all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from understudy.clock import Clock
from understudy.process.worker import GuardianLink

BEATS = 4
"""Heartbeats per timeout; two may be late."""


class Pulse:
    """Tells the guardian by when all of them will have been heard of again."""

    def __init__(self, link: GuardianLink, clock: Clock, timeout_s: float) -> None:
        self._link = link
        self._clock = clock
        self.timeout_s = timeout_s
        self._turn = threading.Lock()
        self._deadlines: dict[str, float] = {}

    def expect(self, name: str, until: float | None = None) -> None:
        """Hold one of them to be heard of by a time: within the timeout, if none is given."""
        with self._turn:
            self._deadlines[name] = until or self._clock.now() + self.timeout_s
            self._link.until(min(self._deadlines.values()))

    def forget(self, name: str) -> None:
        """Do not wait for one of them any more."""
        with self._turn:
            self._deadlines.pop(name, None)
            if self._deadlines:
                self._link.until(min(self._deadlines.values()))

    def start(self, check: Callable[[], None]) -> None:
        """Beat in a daemon thread from now on; ``check`` must return before each beat.

        Where ``check`` hangs (a JVM that does not answer) or raises (one that is gone), the beats
        stop, and the guardian ends the process when its time is over.
        """

        def beat() -> None:
            while True:
                started = self._clock.now()
                try:
                    check()
                except Exception:
                    return
                self.expect("driver", started + self.timeout_s)
                time.sleep(self.timeout_s / BEATS)

        self.expect("driver")
        threading.Thread(target=beat, name="understudy-pulse", daemon=True).start()


def start_pulse(
    link: GuardianLink, clock: Clock, timeout_s: float, check: Callable[[], None] | None = None
) -> None:
    """Beat in a daemon thread from now on; see `Pulse.start`."""
    Pulse(link, clock, timeout_s).start(check or (lambda: None))
