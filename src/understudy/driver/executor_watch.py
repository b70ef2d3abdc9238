"""Watching whether a job has executors, and how many jobs the Spark cluster can carry."""

from __future__ import annotations

import logging
from collections.abc import Callable

from understudy.clock import Clock
from understudy.driver.driver_session import DriverSession
from understudy.errors import ExecutorsUnavailable, UnreachableError
from understudy.rpc import messages
from understudy.rpc.messages import DriverMessage

LOOKS_MIN = 2
"""A cluster gives cores a moment after an application has asked: one look without says nothing."""

CARRIES_S = 5.0
"""How often a driver asks what the cluster can carry: workers come and go by hand."""

_log = logging.getLogger(__name__)


class ExecutorWatch:
    """Looks each second or so; reports what has changed."""

    def __init__(
        self,
        session: DriverSession,
        send: Callable[[DriverMessage], None],
        clock: Clock,
        wait_s: float | None,
    ) -> None:
        self._session = session
        self._send = send
        self._clock = clock
        self._wait_s = wait_s
        self._job = ""
        self._looks = 0
        """How often in a row the job had no executors."""
        self._since = 0.0
        self._reported = messages.Executors()
        self._asked_at: float | None = None

    def look(self, job_id: str) -> ExecutorsUnavailable | None:
        """Look once, and report news; return an error once the job has waited for too long.

        ``job_id`` is empty while no job runs. Raises `UnreachableError` without a TaskManager.
        """
        if job_id != self._job:
            self._job, self._looks = job_id, 0
        try:
            now = messages.Executors(waits=self._waits() if job_id else "", carries=self._carries())
        except UnreachableError:
            raise
        except Exception:
            _log.debug("executors cannot be looked at", exc_info=True)
            return None
        if now != self._reported:
            self._reported = now
            self._send(now)
        waited_s = self._clock.now() - self._since
        if now.waits and self._wait_s is not None and waited_s > self._wait_s:
            return ExecutorsUnavailable(
                f"no executors after {waited_s:.0f} s: the job {now.waits} "
                f"(taskmanager.executors.wait-timeout is {self._wait_s:g} s)"
            )
        return None

    def _waits(self) -> str:
        reason = self._session.waits()
        if not reason:
            self._looks = 0
            return ""
        if not self._looks:
            self._since = self._clock.now()
        self._looks += 1
        return reason if self._looks >= LOOKS_MIN else ""

    def _carries(self) -> int | None:
        now = self._clock.now()
        if self._asked_at is not None and now - self._asked_at < CARRIES_S:
            return self._reported.carries
        self._asked_at = now
        return self._session.carries()
