"""The drivers of a TaskManager: started warm, moved into slots, watched, retired.

The pool handles processes and their channels, and puts what leaders must know into the `Outbox`.
`task_manager` passes a leader's requests to the pool.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import socket
import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.config.configuration import learn_secrets
from understudy.config.options import DRIVER_START
from understudy.core import drivers
from understudy.core.drivers import DriverState, Promote, Seat, Start, Starts
from understudy.core.ids import process_name
from understudy.errors import UnderstudyError
from understudy.model import Incarnation, JobStatus, SparkApplication, Term
from understudy.process import channels, code, given_files, guardian
from understudy.process.closing import Closing
from understudy.process.processes import Death, Process, Processes, Spec
from understudy.process.reporter import Reporter, log_name
from understudy.rpc import messages, wire
from understudy.rpc.gateway import Link
from understudy.rpc.messages import Deploy, DriverMessage, DriverReport, Prepare
from understudy.taskmanager.outbox import Outbox


class DriverEnd(enum.Enum):
    """Why a driver ended; the value is the metrics' label."""

    UNWANTED = "unwanted"
    """Its application is no longer served, or the TaskManager ends."""
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


LOST = "lost"
"""Label of an attempt whose driver died."""


UNWANTED = "its application is not served here any more"
CLOSING = "the TaskManager ends"

_RETIRED = {
    JobStatus.FAILED: "its job failed",
    JobStatus.CANCELED: "its job was cancelled",
}

EXPECTED = (UNWANTED, CLOSING, channels.SERVES_ONE)
"""Ends of drivers that are not reported."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PoolSettings:
    """Settings for starting and running drivers."""

    kind: str
    slots: int
    spares: int
    heartbeat_s: float
    start_s: float
    cancel_grace_s: float
    storage: str
    scratch: Path
    keep_idle_s: float = 0.0
    """How long idle executors stay after a job."""
    wait_s: float | None = None
    """How long a job may be without executors."""
    reuse: str = "application"
    """Whether a driver serves more than one job."""
    redacted_keys: tuple[str, ...] = ()
    """Further parts of keys whose values are secrets."""
    class_data: str = ""
    """Directory of the archives of classes; empty: drivers start without."""
    taskmanager: str = ""
    """Name of the TaskManager, for events."""


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
    note: str = ""
    """Why it is being ended; else why the previous driver in its slot ended."""
    stopping: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        """Return its name for people."""
        return process_name("driver", self.incarnation)

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


def how_it_ended(death: Death) -> str:
    """Return how a driver ended, as text for people."""
    lost = {
        channels.JVM_LOST: "lost its JVM",
        channels.APPLICATION_LOST: "lost its Spark application: its cluster has ended it, or is "
        "away",
    }
    return lost.get(death.code, str(death))


Answer = messages.CheckpointsRecorded | messages.CheckpointsRefused
"""A leader's message to a running attempt."""


class DriverPool:
    """All drivers of one TaskManager."""

    def __init__(
        self,
        settings: PoolSettings,
        processes: Processes,
        clock: Clock,
        outbox: Outbox,
        reporter: Reporter,
        lay_out: Callable[[Prepare], Awaitable[str]],
    ) -> None:
        self._settings = settings
        self._processes = processes
        self._clock = clock
        self._outbox = outbox
        self._reporter = reporter
        self._lay_out = lay_out
        self.counts = DriverCounts()
        self._drivers: dict[Incarnation, Driver] = {}
        self._wanted: Prepare | None = None
        self._starts = Starts()
        self._last_words: list[str] = []
        """Lines that drivers printed before they were warm."""
        self._until: float | None = None
        self._notes: dict[int, str] = {}
        """Slot → why its last driver ended."""
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def drivers(self) -> list[Driver]:
        """Return the drivers, slots first."""
        return sorted(self._drivers.values(), key=lambda one: (one.slot is None, one.slot or 0))

    def reports(self) -> tuple[DriverReport, ...]:
        """Return the reports of all drivers, for the leader and for metrics."""
        return tuple(one.report() for one in self.drivers())

    def report_drivers(self) -> None:
        """Send the drivers' reports to the leader."""
        self._outbox.send(messages.Drivers(drivers=self.reports()))

    def find(self, incarnation: Incarnation) -> Driver | None:
        """Return the driver; None if it is dead or unknown."""
        return self._drivers.get(incarnation)

    def prepare(self, wanted: Prepare | None) -> None:
        """Keep drivers for this application from now on; retire free drivers of other ones."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._starts = Starts()
        for one in self._drivers.values():
            if one.deploy is None and not self._serves(one):
                self.retire(one, UNWANTED)
        self._changed.set()

    def until(self, deadline: float) -> None:
        """Let every driver's guardian kill it at ``deadline``, unless a later deadline arrives."""
        self._until = deadline
        for one in self._drivers.values():
            one.process.until(deadline)

    def run_attempt(self, one: Driver, deploy: Deploy, term: Term) -> None:
        """Run an attempt in a warm driver."""
        one.state, one.deploy, one.began = DriverState.BUSY, deploy, self._clock.now()
        one.link.send(messages.RunAttempt(deploy=deploy, term=term), term)
        self.counts.attempts += 1
        self.report_drivers()

    def answer(self, message: Answer) -> bool:
        """Pass a leader's message to its attempt; False if the attempt does not run here."""
        for one in self._drivers.values():
            if one.deploy and (one.deploy.job_id, one.deploy.attempt) == (
                message.job_id,
                message.attempt,
            ):
                one.link.send(message)
                return True
        return False

    def stop_attempt(self, one: Driver) -> None:
        """Interrupt the attempt in a driver; kill the driver after the grace period."""
        deploy = one.deploy
        if deploy is None or one.stopping or one.ended:
            return
        one.link.send(messages.Interrupt(job_id=deploy.job_id, attempt=deploy.attempt))
        one.stopping = asyncio.get_running_loop().call_later(
            self._settings.cancel_grace_s, one.process.kill, "its job was cancelled"
        )

    def prove(self, ended: messages.AttemptEnded) -> None:
        """End the driver of a FINISHED attempt, if anything of the attempt may live in it."""
        for one in self._drivers.values():
            if one.finished and one.finished.source == ended.source:
                self.retire(one, "its job is stopped")

    def retire(self, one: Driver, reason: str) -> None:
        """End a driver that must not serve again."""
        if one.state is not DriverState.ENDING:
            one.state, one.note = DriverState.ENDING, reason
            one.process.kill(reason)
            self.report_drivers()

    def kill_all(self, reason: str) -> None:
        """End every driver, and the attempts in them."""
        self._wanted = None
        with Closing("all drivers") as closing:
            for name, one in list(self._drivers.items()):
                one.state, one.note = DriverState.ENDING, reason
                with closing.step(process_name("driver", name)):
                    one.process.kill(reason)

    async def emptied(self) -> None:
        """Return once every driver is reaped."""
        for one in list(self._drivers.values()):
            await asyncio.shield(one.process.death)

    async def run(self) -> None:
        """Keep the wanted number of drivers; runs for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._arrange()

    async def _arrange(self) -> None:
        if self._wanted is None:
            return
        seats = [Seat(one.incarnation, one.slot, one.state) for one in self._drivers.values()]
        for action in drivers.arrange(seats, self._settings.slots, self._settings.spares):
            if isinstance(action, Promote):
                promoted = self._drivers[action.driver]
                promoted.slot, promoted.note = action.slot, self._notes.get(action.slot, "")
                self.report_drivers()
                self._changed.set()
            elif isinstance(action, Start):
                await self._try_to_start(self._wanted, action.slot)

    async def _try_to_start(self, prepare: Prepare, slot: int | None) -> None:
        pause_s = drivers.start_pause_s(self._starts)
        if pause_s:
            await asyncio.sleep(pause_s)
            if self._wanted != prepare:
                self._changed.set()
                return
        try:
            await self._start(prepare, slot)
        except (OSError, UnderstudyError) as error:
            self._start_failed(prepare, f"cannot be started: {error}", killed=False)
            self._changed.set()

    async def _start(self, prepare: Prepare, slot: int | None) -> None:
        directory = await self._lay_out(prepare)
        path = code.python_path(directory, prepare.artifacts) if directory else ()
        incarnation = Incarnation(uuid.uuid4().hex)
        scratch = self._settings.scratch / incarnation
        mine, theirs = channels.pair()
        with theirs:
            spec = self._spec(prepare, incarnation, path, scratch, theirs)
            process = await self._processes.start(
                spec, lambda text: self._printed(incarnation, text)
            )
        link = await wire.over_socket(mine, channels.driver_codec, incarnation)
        note = self._notes.get(slot, "") if slot else ""
        one = Driver(incarnation, slot, prepare, process, link, note=note)
        self._drivers[incarnation] = one
        self.counts.starts += 1
        if self._until is not None:
            process.until(self._until)
        learn_secrets(prepare.profile.conf, self._settings.redacted_keys)
        link.send(
            messages.StartSession(
                kind=self._settings.kind,
                application_id=prepare.application_id,
                conf=given_files.resolved(prepare.profile.conf, directory, prepare.artifacts),
                redacted_keys=self._settings.redacted_keys,
                python_path=path,
                scratch=str(scratch),
                storage=self._settings.storage,
                cluster=prepare.cluster,
                run_id=prepare.run_id,
                keep_idle_s=self._settings.keep_idle_s,
                wait_s=self._settings.wait_s,
                reuse=self._settings.reuse,
                class_data=self._settings.class_data,
                cancel_grace_s=self._settings.cancel_grace_s,
            )
        )
        listening = self._spawn(self._listen(one))
        self._spawn(self._await_death(one, listening))
        self.report_drivers()

    def _spec(
        self,
        prepare: Prepare,
        incarnation: Incarnation,
        path: tuple[str, ...],
        scratch: Path,
        channel: socket.socket,
    ) -> Spec:
        previous = os.environ.get("PYTHONPATH")
        entries = [*path, *([previous] if previous else [])]
        cwd = prepare.profile.cwd
        return Spec(
            name=process_name("driver", incarnation),
            incarnation=incarnation,
            argv=(sys.executable, "-P", "-m", "understudy.driver.driver_process"),
            env={
                **channels.child_environment(channel, incarnation),
                channels.HEARTBEAT_S: str(self._settings.heartbeat_s),
                "PYTHONPATH": os.pathsep.join(entries),
                "PYTHONUNBUFFERED": "1",
            },
            fds=(channel.fileno(),),
            start_s=self._settings.start_s,
            scratch=(str(scratch),),
            cwd=cwd if cwd and Path(cwd).is_dir() else None,
        )

    def _printed(self, incarnation: Incarnation, text: str) -> None:
        one = self._drivers.get(incarnation)
        if one is None or one.state is DriverState.STARTING:
            self._last_words = [*self._last_words[-20:], text]
        if one is not None:
            source = one.deploy.name if one.deploy else one.name
            log = log_name(one.prepare.run_id, one.prepare.application_id)
            self._reporter.line(log, source, text)

    async def _listen(self, one: Driver) -> None:
        while (envelope := await one.link.receive()) is not None:
            match envelope.message:
                case messages.Warm() as warm:
                    self._warmed(one, warm)
                case messages.Executors() as executors:
                    self._note_executors(one, executors)
                case messages.Entered() as entered if one.deploy:
                    one.spark = entered.spark
                    self.report_drivers()
                    self._outbox.send(
                        messages.AttemptRunning(
                            job_id=one.deploy.job_id, attempt=one.deploy.attempt
                        )
                    )
                    self._reporter.event(
                        "job-driver",
                        job_id=one.deploy.job_id,
                        name=one.deploy.name,
                        attempt=one.deploy.attempt,
                        driver=one.name,
                        pid=one.process.pid,
                        ui=one.spark.ui or None,
                    )
                case messages.AttemptEnded() as ended:
                    self._ended(one, ended)
                case messages.Progress() as progress if one.deploy:
                    if one.deploy.job_id == progress.job_id:
                        self._outbox.send(replace(progress, attempt=one.deploy.attempt))
                case messages.CheckpointsTaken() as taken if one.deploy:
                    self._outbox.send(taken)
                case messages.Retiring() as retiring:
                    self.retire(one, retiring.reason)

    def _warmed(self, one: Driver, warm: messages.Warm) -> None:
        one.warm, one.spark = warm, warm.spark
        self._settle(one)
        self._starts, self._last_words = Starts(), []
        if one.state is DriverState.ENDING:
            return
        one.state = DriverState.WARM
        if not self._serves(one):
            self.retire(one, UNWANTED)
        self.report_drivers()
        self._changed.set()

    def _note_executors(self, one: Driver, executors: messages.Executors) -> None:
        before, one.executors = one.executors, executors
        if one.deploy and executors.waits != before.waits:
            self._reporter.event(
                "job-executors",
                job_id=one.deploy.job_id,
                name=one.deploy.name,
                attempt=one.deploy.attempt,
                waits=executors.waits or None,
            )
        self.report_drivers()

    def _serves(self, one: Driver) -> bool:
        """Return whether a driver has the application and profile that are wanted now."""
        wanted = self._wanted
        return (
            wanted is not None
            and one.prepare.application_id == wanted.application_id
            and one.prepare.profile.digest == wanted.profile.digest
        )

    def _ended(self, one: Driver, ended: messages.AttemptEnded) -> None:
        """Process an attempt's end.

        An end that another attempt or a savepoint may follow is reported once the driver is dead.
        """
        if one.deploy is None or one.ended:
            return
        self.counts.attempt_ends[ended.status.value.lower()] += 1
        stopped = one.stopping is not None
        if one.stopping:
            one.stopping.cancel()
            one.stopping = None
        if ended.status is JobStatus.FINISHED and not stopped:
            one.deploy, one.finished = None, ended
            self._outbox.send(ended)
            return
        one.ended = ended
        self.retire(one, _RETIRED.get(ended.status, "its job is stopped"))

    def _settle(self, one: Driver) -> None:
        """Report that nothing of the last attempt is left in a driver."""
        if one.finished:
            self._outbox.settle(one.finished)
            one.finished = None

    async def _await_death(self, one: Driver, listening: asyncio.Task[None]) -> None:
        death = await asyncio.shield(one.process.death)
        await listening  # The dead driver's last messages are processed first.
        one.link.close()
        del self._drivers[one.incarnation]
        if one.state is DriverState.STARTING:
            killed = bool(death.signal) and death.reason != guardian.SILENT
            killed = killed or death.code == channels.JVM_LOST
            late = f"; {DRIVER_START.key} is {self._settings.start_s:g} s"
            limit = late if death.reason == guardian.SILENT else ""
            what = f"{how_it_ended(death)} before it was warm{limit}"
            self._start_failed(one.prepare, what, killed=killed)
        _log.info("driver %s %s", one.incarnation[:8], death)
        self.counts.ends[_end_of(one)] += 1
        if one.note not in EXPECTED or one.state is not DriverState.ENDING:
            self._report_end(one, death)
        self._settle(one)
        if one.ended is not None:
            self._outbox.send(replace(one.ended, reaped=True))
        elif one.deploy is not None:
            self.counts.attempt_ends[LOST] += 1
            self._outbox.send(
                messages.AttemptLost(
                    job_id=one.deploy.job_id,
                    attempt=one.deploy.attempt,
                    reason=f"its driver {how_it_ended(death)}",
                    ran_s=max(0.0, death.at - one.began),
                )
            )
        self.report_drivers()
        self._changed.set()

    def _report_end(self, one: Driver, death: Death) -> None:
        """Report why a driver ended, and keep the reason for its slot's next driver."""
        retired = one.state is DriverState.ENDING
        reason = f"was retired: {one.note}" if retired else how_it_ended(death)
        if one.slot:
            self._notes[one.slot] = f"the driver before it {reason}"
        self._reporter.event(
            "driver-ended",
            taskmanager=self._settings.taskmanager,
            id=one.incarnation,
            driver=one.name,
            pid=one.process.pid,
            slot=one.slot,
            job_id=one.deploy.job_id if one.deploy else None,
            reason=reason,
        )

    def _start_failed(self, prepare: Prepare, what: str, *, killed: bool) -> None:
        starts = self._starts
        self.counts.start_failures += 1
        self._starts = (
            replace(starts, killed=starts.killed + 1)
            if killed
            else replace(starts, failed=starts.failed + 1)
        )
        words = "\n".join(self._last_words[-8:])
        _log.warning("a driver %s; it printed last: %s", what, words)
        if drivers.hopeless(self._starts) and self._wanted == prepare:
            reason = f"a driver {what}\n{words}".strip()
            self._outbox.send(
                messages.CannotStart(application_id=prepare.application_id, reason=reason)
            )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():
            _log.error("a driver's watcher failed", exc_info=task.exception())


def _end_of(one: Driver) -> DriverEnd:
    """Classify a driver's end for metrics."""
    if one.state is DriverState.ENDING:
        return DriverEnd.UNWANTED if one.note in EXPECTED else DriverEnd.RETIRED
    return DriverEnd.NEVER_WARM if one.warm is None else DriverEnd.DIED
