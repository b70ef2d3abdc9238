"""The Spark sessions of a driver: warm before the first job, clean for each job.

`spark.contexts` decides how long a SparkContext lives: as long as the driver with a local master,
as long as an attempt on a cluster.
"""

from __future__ import annotations

import os
from dataclasses import replace

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from understudy.clock import poll
from understudy.core.executors import AssignedAttempt, Launch
from understudy.core.handover import Handover
from understudy.errors import SessionLost
from understudy.model import SparkApplication
from understudy.spark.attaching import handover_of
from understudy.spark.class_data import Building
from understudy.spark.contexts import Contexts, SharedContext, contexts_for, facts_of, is_stopped
from understudy.spark.jvm import Gateway, start_gateway, use_gateway, was_killed
from understudy.spark.jvm_state import JvmSnapshot, JvmState

PROGRESS_JOBS_MAX = 50
"""Most Spark jobs of a job that count for progress, the latest ones; each costs a JVM call."""

SETTLE_S, SETTLE_POLL_S = 0.5, 0.02
"""How long threads of the JVM have to end by themselves once their job has: as long as child
processes. An ordinary job leaves none, even at the first look: Spark's are daemons, and Py4J's are
left out. Of one that a job has started, no event tells whether it is about to end."""

JVM_END_S = 2.0
"""How long to wait, after a broken connection, for the JVM's process to end."""


class SparkSessions:
    """One driver's Spark: a JVM, which the process of each job attaches to."""

    def __init__(self) -> None:
        self._gateway: Gateway | None = None
        self._contexts: Contexts | None = None
        self._root: SparkSession | None = None
        self._group = ""
        self._facts = SparkApplication()
        """Asked of the JVM once for each SparkContext, not with each job."""
        self._environment = dict(os.environ)
        """Before Spark has added to it."""
        self._handover: Handover
        self._state: JvmState | None = None
        self._before: JvmSnapshot

    @property
    def jvm_pid(self) -> int:
        """Return the pid of the JVM."""
        return self._gateway.process.pid if self._gateway else 0

    def facts(self) -> SparkApplication:
        """Return where to find the SparkContext; all fields are empty without one."""
        return self._facts

    def start(self, launch: Launch) -> None:
        """Start the JVM, and warm it with a first query on a local master."""
        self._gateway = start_gateway(
            launch.conf,
            launch.descriptors,
            scratch=launch.scratch,
            class_data=launch.class_data,
        )
        use_gateway(self._gateway)
        try:
            self._contexts = contexts_for(launch)
            self._root = self._contexts.warm()
        except Exception as error:
            if self.is_lost(error) and was_killed(self._gateway.process):
                raise SessionLost("the JVM was killed while its session started") from error
            raise
        if self._root:
            self._started_context(self._root)

    def _started_context(self, root: SparkSession) -> None:
        """Note what a new SparkContext is like before a job has touched it."""
        assert self._contexts is not None
        assert self._gateway is not None
        self._root, self._facts = root, facts_of(root.sparkContext)
        added = {
            name: value
            for name, value in os.environ.items()
            if self._environment.get(name) != value
        }
        self._handover = handover_of(
            root, self._gateway.port, self._gateway.secret, self.jvm_pid, added
        )
        self._state = JvmState(root, shared=self._contexts.keeps)
        self._before = self._state.look()

    def to_build(self) -> Building | None:
        """Return the archive of classes that the JVM has started without."""
        return self._gateway.building if self._gateway else None

    def await_jvm_end(self) -> int:
        """Return the JVM's exit code once it has ended."""
        assert self._gateway is not None
        return self._gateway.process.wait()

    def pulse(self) -> None:
        """Return once the JVM has answered; raise if it is gone; hang if it hangs."""
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.jvm.java.lang.System.nanoTime()

    def standing(self) -> Handover | None:
        """Return what the process of any job may attach by; None on a cluster."""
        return self._handover if isinstance(self._contexts, SharedContext) else None

    def open(self, assignment: AssignedAttempt) -> Handover:
        """Open a session for a job; return what its process attaches by."""
        assert self._contexts is not None
        root = self._contexts.begin(assignment)
        if root is not self._root:
            self._started_context(root)
        self._group = assignment.group
        per_attempt = not isinstance(self._contexts, SharedContext)
        return replace(
            self._handover, group=self._group, label=assignment.label, per_attempt=per_attempt
        )

    def waits(self) -> str:
        """Return why the open job has no executors; empty if it has some, or needs none."""
        assert self._contexts is not None
        return self._contexts.waits()

    def carries(self) -> int | None:
        """Return how many jobs the cluster can run at once; None if unknown."""
        assert self._contexts is not None
        return self._contexts.carries()

    def progress(self) -> tuple[int, int, str]:
        """Return the completed and total tasks of the job's Spark jobs, and the running stage."""
        done = total = 0
        stage = ""
        if self._root is None:
            return done, total, stage
        context = self._root.sparkContext
        if context._jsc is None:
            return done, total, stage
        tracker = context.statusTracker()
        # By the tag: streaming queries, broadcasts and functions have groups of their own.
        numbers = context._jsc.sc().statusTracker().getJobIdsForTag(self._group)
        for number in sorted(numbers)[-PROGRESS_JOBS_MAX:]:
            job = tracker.getJobInfo(number)
            for stage_id in job.stageIds if job else ():
                info = tracker.getStageInfo(stage_id)
                if info is None:
                    continue
                done += info.numCompletedTasks
                # A stage that a finished job skipped will never run its tasks.
                over = job is not None and job.status == "SUCCEEDED"
                total += info.numCompletedTasks if over else info.numTasks
                if info.numActiveTasks:
                    stage = f"{info.stageId}: {info.name}"
        return done, total, stage

    def close(self) -> list[str]:
        """Leave a job behind, whose process has ended; return what it has left, if anything."""
        assert self._contexts is not None
        assert self._state is not None
        before = self._before
        now = poll(self._state.look, lambda seen: seen.settles(before), SETTLE_S, SETTLE_POLL_S)
        left = now.differences(self._before)
        self._before = now
        if self._contexts.finish(keep=not left):
            return left
        self._root, self._facts = None, SparkApplication()
        return left

    def is_over(self) -> bool:
        """Return whether a job has stopped the context that other jobs would need, too."""
        return self._root is not None and is_stopped(self._root)

    def is_lost(self, error: BaseException | None) -> bool:
        """Return whether the JVM is gone; after a broken connection, wait briefly for its end."""
        assert self._gateway is not None
        process = self._gateway.process
        if isinstance(error, Py4JNetworkError | ConnectionError | EOFError) or (
            isinstance(error, Py4JError) and "Answer from Java side is empty" in str(error)
        ):
            try:
                process.wait(JVM_END_S)
            except Exception:
                return False
        return process.poll() is not None

    def lost_application(self, error: BaseException) -> str:
        """Return how the cluster ended the open job's Spark application; empty if it did not."""
        return self._contexts.lost(error) if self._contexts else ""
