"""What the process of a job has of its driver's session: Spark, or nothing at all."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from understudy.core.handover import Handover
from understudy.driver.query_observer import Queries


class JobSession(Protocol):
    """What an attempt runs on."""

    def get_ready(self, handover: Handover) -> None:
        """Do ahead what `open` would do for any job, while another one may run."""
        ...

    def open(self, handover: Handover | None) -> Any:
        """Return a clean session for the job."""
        ...

    def settle(self, value: Any) -> Any:
        """Wait for what the function has only started."""
        ...

    def queries(self) -> Queries | None:
        """Return the streaming queries of the job; None where there can be none."""
        ...

    def interrupt(self) -> None:
        """Interrupt what runs for the job; called from another thread than the job's."""
        ...

    def is_lost(self, error: BaseException | None) -> bool:
        """Say whether the driver's JVM is gone."""
        ...

    def lost_application(self, error: BaseException) -> str:
        """Say how the cluster has ended the job's Spark application; empty if it has not."""
        ...

    def close(self) -> None:
        """Let go of what the JVM holds for this process, which ends now."""
        ...


class NoJobSession:
    """No Spark."""

    def get_ready(self, handover: Handover) -> None:
        """See `JobSession.get_ready`."""

    def open(self, handover: Handover | None) -> Any:
        """See `JobSession.open`."""
        return None

    def settle(self, value: Any) -> Any:
        """See `JobSession.settle`."""
        return value

    def queries(self) -> Queries | None:
        """See `JobSession.queries`."""
        return None

    def interrupt(self) -> None:
        """See `JobSession.interrupt`."""

    def is_lost(self, error: BaseException | None) -> bool:
        """See `JobSession.is_lost`."""
        return False

    def lost_application(self, error: BaseException) -> str:
        """See `JobSession.lost_application`."""
        return ""

    def close(self) -> None:
        """See `JobSession.close`."""


def job_session(kind: str) -> JobSession:
    """Return what goes with ``taskmanager.driver.type``; import Spark only where it is used."""
    if kind == "session-less":
        return NoJobSession()
    session: JobSession = importlib.import_module("understudy.spark.attaching").AttachedSession()
    return session
