"""What a driver offers to jobs: Spark, or nothing at all."""

from __future__ import annotations

import importlib
import threading
from typing import Protocol

from understudy.core.executors import AssignedAttempt, Launch
from understudy.core.handover import Handover
from understudy.model import SparkApplication
from understudy.spark.class_data import Building


class DriverSession(Protocol):
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

    def to_build(self) -> Building | None:
        """Return the archive of classes that the next driver's JVM could start from, if any."""
        ...

    def standing(self) -> Handover | None:
        """Return what any job's process may attach by ahead; None where each job has its own."""
        ...

    def open(self, assignment: AssignedAttempt) -> Handover | None:
        """Open a session for a job; return what its process attaches by."""
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
        """Leave the job behind, whose process has ended; return what it has left, if anything."""
        ...

    def is_over(self) -> bool:
        """Say, after `close`, whether no other job can run here, whatever it would put up with."""
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
        """See `DriverSession.facts`."""
        return SparkApplication()

    def start(self, launch: Launch) -> None:
        """See `DriverSession.start`."""

    def to_build(self) -> None:
        """See `DriverSession.to_build`."""

    def standing(self) -> None:
        """See `DriverSession.standing`."""

    def open(self, assignment: AssignedAttempt) -> None:
        """See `DriverSession.open`."""

    def waits(self) -> str:
        """See `DriverSession.waits`."""
        return ""

    def carries(self) -> int | None:
        """See `DriverSession.carries`."""
        return None

    def lost_application(self, error: BaseException) -> str:
        """See `DriverSession.lost_application`."""
        return ""

    def progress(self) -> tuple[int, int, str]:
        """See `DriverSession.progress`."""
        return 0, 0, ""

    def close(self) -> list[str]:
        """See `DriverSession.close`."""
        return []

    def is_over(self) -> bool:
        """See `Session.is_over`."""
        return False

    def is_lost(self, error: BaseException | None) -> bool:
        """See `DriverSession.is_lost`."""
        return False

    def pulse(self) -> None:
        """See `DriverSession.pulse`."""

    def await_jvm_end(self) -> int:
        """See `DriverSession.await_jvm_end`."""
        threading.Event().wait()
        return 0


def open_session(kind: str) -> DriverSession:
    """Return what ``taskmanager.driver.type`` names; Spark is imported only where it is used."""
    if kind == "session-less":
        return NoSession()
    session: DriverSession = importlib.import_module("understudy.spark.session").SparkSessions()
    return session
