"""The timeout of a job: how long its function may run in one attempt.

The process that watches an attempt measures the time, by the monotonic clock, from the call of the
function. So neither a paused leader nor a failover can lose the limit. When the time is over, the
attempt is interrupted; an attempt that does not end within the grace period is killed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from understudy.errors import JobTimedOut
from understudy.rpc.messages import Deploy


class TimeLimit:
    """The limit of one attempt, which may have none.

    ``interrupt`` and ``kill`` are called from a thread of its own, at most once each.
    """

    def __init__(
        self,
        deploy: Deploy,
        grace_s: float,
        interrupt: Callable[[JobTimedOut], None],
        kill: Callable[[], None],
    ) -> None:
        self._deploy = deploy
        self._grace_s = grace_s
        self._interrupt = interrupt
        self._kill = kill
        self._ended = threading.Event()
        self.exceeded: JobTimedOut | None = None
        """What the attempt fails with, once its time is over."""

    def begin(self) -> None:
        """The function is called: measure the time from now on."""
        timeout_s = self._deploy.timeout_s
        if timeout_s is not None:
            threading.Thread(
                target=self._watch, args=(timeout_s,), name="understudy-timeout", daemon=True
            ).start()

    def end(self) -> None:
        """How the attempt ended is decided: interrupt and kill nothing any more."""
        self._ended.set()

    def _watch(self, timeout_s: float) -> None:
        if self._ended.wait(timeout_s):
            return
        self.exceeded = JobTimedOut(
            f"attempt {self._deploy.attempt} ran for longer than the job's timeout of "
            f"{timeout_s:g} s: give the job more time, or less work"
        )
        self._interrupt(self.exceeded)
        if not self._ended.wait(self._grace_s):
            self._kill()
