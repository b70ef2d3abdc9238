"""One driver of a TaskManager: from what is prepared for it to the end of its process.

And what all its drivers share: the code and interpreters on this host, and what is counted.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from dataclasses import dataclass, field

from understudy.core.drivers import DriverState, Seat
from understudy.core.ids import process_name
from understudy.ha.storage import BlockingStorage
from understudy.model import ApplicationId, Incarnation, SparkApplication
from understudy.process import code
from understudy.process.environments import Ground, Interpreters, LaidOut
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


# --- what drivers stand on: the code on this host, and the interpreter ----------------------------


class Grounds:
    """Lays code out and gets interpreters, once for each driver that is to start."""

    def __init__(self, storage: BlockingStorage, cluster: str, interpreters: Interpreters) -> None:
        self._storage = storage
        self._cluster = cluster
        self._interpreters = interpreters
        self.users: set[ApplicationId] = set()
        """Applications that use an interpreter, until `leave`."""

    async def of(self, prepare: Prepare) -> Ground:
        """Return what a driver stands on. Raises `UnderstudyError`, ``OSError``."""
        directory = await self._lay_out(prepare)
        application = prepare.application_id
        self.users.add(application)
        laid_out = LaidOut(directory, prepare.artifacts, prepare.profile.conf)
        python = await self._interpreters.python_for(application, laid_out)
        return Ground(directory, python)

    async def leave(self, application: ApplicationId) -> None:
        """Let go of an application's interpreter; none of its drivers lives."""
        await self._interpreters.leave(application)

    async def close(self) -> None:
        """Let go of all interpreters."""
        await self._interpreters.close()

    async def _lay_out(self, prepare: Prepare) -> str:
        """Unpack the application's code on this host; return its directory, empty without code."""
        if not prepare.artifacts:
            return ""
        directory = await asyncio.to_thread(
            code.lay_out, self._storage, self._cluster, prepare.directory, prepare.artifacts
        )
        return str(directory)


# --- what is counted of all drivers, for metrics --------------------------------------------------


LOST = "lost"
"""Label of an attempt whose driver died."""


class DriverEnd(enum.Enum):
    """Why a driver ended; the value is the metrics' label."""

    UNWANTED = "unwanted"
    """Its application is no longer served, another one needs its place, or the TaskManager ends."""
    RETIRED = "retired"
    """Its TaskManager ended it after an attempt, as unfit for the next."""
    DIED = "died"
    NEVER_WARM = "never_warm"
    """It died, or was killed, before its Spark session was ready."""


@dataclass
class DriverCounts:
    """The drivers of one TaskManager, and the attempts in them."""

    starts: int = 0
    """Processes started."""
    start_failures: int = 0
    """Processes that failed to start or to become warm."""
    ends: Counter[DriverEnd] = field(default_factory=Counter)
    attempts: int = 0
    """Attempts given to a driver."""
    attempt_ends: Counter[str] = field(default_factory=Counter)
    """Ended attempts by status in lower case, or ``lost`` if their driver died."""
