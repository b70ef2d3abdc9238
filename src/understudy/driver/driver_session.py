"""What a driver offers to jobs: Spark, or nothing at all."""

from __future__ import annotations

import importlib
import threading
from typing import Any, Protocol

from understudy.core.executors import Assignment, Launch
from understudy.driver.query_observer import Queries
from understudy.model import SparkApplication


class Session(Protocol):
    """What a driver offers to jobs."""

    @property
    def jvm_pid(self) -> int:
        """Return the pid of the JVM, 0 without one."""
        ...

    def facts(self) -> SparkApplication:
        """Return what the SparkContext is found by; empty fields without one."""
        ...

    def start(self, launch: Launch) -> None:
        """Start, and be warm when this returns; the guardian removes ``scratch`` in the end."""
        ...

    def open(self, assignment: Assignment) -> Any:
        """Return a clean session for a job."""
        ...

    def settle(self, value: Any) -> Any:
        """Wait for what the function has only started."""
        ...

    def queries(self) -> Queries | None:
        """Return the streaming queries of the open job; None where there can be none."""
        ...

    def interrupt(self) -> None:
        """Interrupt what runs for the job."""
        ...

    def progress(self) -> tuple[int, int, str]:
        """Return tasks done, tasks in all, and the running stage."""
        ...

    def waits(self) -> str:
        """Say why the open job has no executors; empty where it has some, or needs none."""
        ...

    def carries(self) -> int | None:
        """Return how many jobs the Spark cluster can carry at once; None: nobody knows."""
        ...

    def lost_application(self, error: BaseException) -> str:
        """Say how the cluster has ended the job's Spark application; empty if it has not."""
        ...

    def close(self) -> list[str]:
        """Leave the job behind; return why the driver must be retired, if so."""
        ...

    def is_lost(self, error: BaseException | None) -> bool:
        """Say whether the session is beyond use."""
        ...

    def pulse(self) -> None:
        """Return once the session has answered."""
        ...

    def await_jvm_end(self) -> int:
        """Return once the session's process has ended."""
        ...


class NoSession:
    """A driver without Spark: a real process, for everything that is not Spark's."""

    jvm_pid = 0

    def facts(self) -> SparkApplication:
        """See `Session.facts`."""
        return SparkApplication()

    def start(self, launch: Launch) -> None:
        """See `Session.start`."""

    def open(self, assignment: Assignment) -> Any:
        """See `Session.open`."""
        return None

    def settle(self, value: Any) -> Any:
        """See `Session.settle`."""
        return value

    def queries(self) -> Queries | None:
        """See `Session.queries`."""
        return None

    def interrupt(self) -> None:
        """See `Session.interrupt`."""

    def waits(self) -> str:
        """See `Session.waits`."""
        return ""

    def carries(self) -> int | None:
        """See `Session.carries`."""
        return None

    def lost_application(self, error: BaseException) -> str:
        """See `Session.lost_application`."""
        return ""

    def progress(self) -> tuple[int, int, str]:
        """See `Session.progress`."""
        return 0, 0, ""

    def close(self) -> list[str]:
        """See `Session.close`."""
        return []

    def is_lost(self, error: BaseException | None) -> bool:
        """See `Session.is_lost`."""
        return False

    def pulse(self) -> None:
        """See `Session.pulse`."""

    def await_jvm_end(self) -> int:
        """See `Session.await_jvm_end`."""
        threading.Event().wait()
        return 0


def open_session(kind: str) -> Session:
    """Return what ``taskmanager.driver.type`` names; Spark is imported only where it is used."""
    if kind == "session-less":
        return NoSession()
    session: Session = importlib.import_module("understudy.spark.session").SparkSessions()
    return session
