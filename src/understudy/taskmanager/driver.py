"""One driver of a TaskManager: from what is prepared for it to the end of its process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from understudy.core.drivers import DriverState, Seat
from understudy.core.ids import process_name
from understudy.model import Incarnation, SparkApplication
from understudy.process.environments import Ground
from understudy.process.processes import Process
from understudy.rpc import messages
from understudy.rpc.gateway import Link
from understudy.rpc.messages import Deploy, DriverMessage, DriverReport, Prepare


@dataclass
class Driver:
    """One driver process, as its TaskManager sees it."""

    incarnation: Incarnation
    slot: int | None
    prepare: Prepare
    process: Process
    link: Link[DriverMessage]
    state: DriverState = DriverState.STARTING
    warm: messages.Warm | None = None
    spark: SparkApplication = SparkApplication()
    executors: messages.Executors = messages.Executors()
    deploy: Deploy | None = None
    began: float = 0.0
    ended: messages.AttemptEnded | None = None
    """The end of its attempt, while processes of the attempt may live."""
    finished: messages.AttemptEnded | None = None
    """The FINISHED end of its last attempt, until nothing of the attempt is left in the driver."""
    printing: str = ""
    """The name of its last job, whose last lines may arrive behind the end of the attempt."""
    note: str = ""
    """Why it is being ended; else why the previous driver in its slot ended."""
    stopping: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        """Return its name for people."""
        return process_name("driver", self.incarnation)

    @property
    def seat(self) -> Seat:
        """Return it as the decisions see it."""
        return Seat(
            self.incarnation, self.slot, self.state, self.prepare.purpose, self.deploy is not None
        )

    def report(self) -> DriverReport:
        """Return the report of this driver for the leader and REST."""
        deploy = self.deploy
        return DriverReport(
            driver=self.incarnation,
            slot=self.slot,
            state=self.state.value,
            application_id=self.prepare.application_id,
            profile=self.prepare.profile.digest,
            driver_pid=self.process.pid,
            guardian_pid=self.process.guardian_pid,
            jvm_pid=self.warm.jvm_pid if self.warm else 0,
            spark=self.spark,
            job_id=deploy.job_id if deploy else "",
            attempt=deploy.attempt if deploy else 0,
            waits=self.executors.waits if deploy else "",
            carries=self.executors.carries,
            note=self.note,
        )


@dataclass(eq=False)
class Opening:
    """A driver whose process is not started yet: its code or its environment is not there."""

    incarnation: Incarnation
    slot: int | None
    prepare: Prepare
    preparing: asyncio.Task[Ground] | None = None
    """Set while its code is laid out, and its environment is built."""

    @property
    def seat(self) -> Seat:
        """Return it as the decisions see it."""
        state = DriverState.STARTING
        uses_cores = self.preparing is None
        return Seat(self.incarnation, self.slot, state, self.prepare.purpose, uses_cores=uses_cores)
