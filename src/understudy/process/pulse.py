"""The thread that sends the guardian heartbeats of a process whose main thread runs user code."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from understudy.clock import Clock
from understudy.process.worker import GuardianLink

BEATS = 4
"""Heartbeats per timeout; two may be late."""


def start_pulse(
    link: GuardianLink, clock: Clock, timeout_s: float, check: Callable[[], None] | None = None
) -> None:
    """Send heartbeats from a daemon thread; ``check`` must return before each one.

    If ``check`` hangs (the JVM does not answer) or raises (the JVM is gone), the heartbeats stop,
    and the guardian kills the process at its deadline.
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
