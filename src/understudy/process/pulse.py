"""The pulse of a process whose main thread belongs to user code: a thread that reports to the
guardian."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from understudy.clock import Clock
from understudy.process.worker import GuardianLink

BEATS = 4
"""How many beats fit into a timeout; two may be late."""


def start_pulse(
    link: GuardianLink, clock: Clock, timeout_s: float, check: Callable[[], None] | None = None
) -> None:
    """Beat in a daemon thread from now on; ``check`` must return before each beat.

    Where ``check`` hangs (a JVM that does not answer) or raises (one that is gone), the beats
    stop, and the guardian ends the process when its time is over.
    """

    def beat() -> None:
        while True:
            started = clock.now()
            try:
                if check:
                    check()
            except Exception:
                return
            link.until(started + timeout_s)
            time.sleep(timeout_s / BEATS)

    link.until(clock.now() + timeout_s)
    threading.Thread(target=beat, name="understudy-pulse", daemon=True).start()
