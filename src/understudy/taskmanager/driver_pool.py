"""The drivers of a TaskManager: started warm, moved into slots, watched, retired.

The pool handles processes and their channels, and puts what leaders must know into the `Outbox`.
`task_manager` passes a leader's requests to the pool.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.config.configuration import learn_secrets
from understudy.config.options import DRIVER_START
from understudy.core import drivers
from understudy.core.drivers import DriverState, Promote, Purpose, Retire, Seat, Start, Starts
from understudy.core.executors import OWN_PYTHON
from understudy.core.ids import process_name
from understudy.errors import EnvironmentFailed, UnderstudyError
from understudy.model import Incarnation, JobStatus, Term
from understudy.process import channels, code, given_files, guardian
from understudy.process.closing import Closing
from understudy.process.environments import Ground
from understudy.process.limits import Limit
from understudy.process.processes import Death, Process, Processes, Spec
from understudy.process.reporter import Reporter, log_name
from understudy.rpc import messages, wire
from understudy.rpc.gateway import Link
from understudy.rpc.messages import Deploy, DriverMessage, DriverReport, Prepare
from understudy.taskmanager.driver import LOST, Driver, DriverCounts, DriverEnd, Grounds, Opening
from understudy.taskmanager.outbox import Outbox

WORDS_MAX = 50
"""Starting drivers whose last lines are kept."""

UNWANTED = "its application is not served here any more"
NEEDED = "another application needs its place"
CLOSING = "the TaskManager ends"
HANDED_OVER = "its TaskManager is asked to end"

_RETIRED = {
    JobStatus.FAILED: "its job failed",
    JobStatus.CANCELED: "its job was cancelled",
}

EXPECTED = (UNWANTED, NEEDED, CLOSING, channels.SERVES_ONE)
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
    limits: tuple[Limit, ...] = ()
    """What each driver may use."""


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
        grounds: Grounds,
    ) -> None:
        self._settings = settings
        self._processes = processes
        self._clock = clock
        self._outbox = outbox
        self._reporter = reporter
        self._grounds = grounds
        self.counts = DriverCounts()
        self._drivers: dict[Incarnation, Driver] = {}
        self._openings: list[Opening] = []
        self._wanted: tuple[Prepare, ...] | None = None
        """What each driver shall serve; None while no leader has asked for any."""
        self._starts: dict[Purpose, Starts] = {}
        self._resting: set[Purpose] = set()
        """Purposes whose next driver is started after a pause."""
        self._last_words: dict[Incarnation, list[str]] = {}
        """Lines that drivers printed before they were warm."""
        self._until: float | None = None
        self._notes: dict[int, str] = {}
        """Slot → why its last driver ended."""
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        """Set whenever a driver has ended, or was not started."""
        self._drains = False
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

    def keep(self, wanted: Sequence[Prepare]) -> None:
        """Have these drivers from now on, the most important first; retire free other ones."""
        if not self._drains:
            self._keep(wanted)

    def drain(self) -> None:
        """End idle drivers, start no more, and have attempts save: each ends with a checkpoint."""
        self._keep(())
        self._drains = True
        for one in self._drivers.values():
            if one.deploy:
                one.link.send(messages.Stopping())

    def hand_over(self) -> None:
        """End the drivers that are left: another TaskManager is to execute their attempts."""
        for one in self.drivers():
            self.retire(one, HANDED_OVER)

    async def left(self) -> None:
        """Return once there is no driver, and the end of each attempt is reported."""
        while self._drivers or self._openings:
            self._gone.clear()
            await self._gone.wait()

    def _keep(self, wanted: Sequence[Prepare]) -> None:
        self._wanted = tuple(wanted)
        purposes = {one.purpose for one in wanted}
        self._starts = {one: starts for one, starts in self._starts.items() if one in purposes}
        self._resting &= purposes
        for one in self._drivers.values():
            if one.deploy is None and not self._serves(one):
                self.retire(one, UNWANTED)
        self._give_up_openings()
        self._changed.set()

    def _give_up_openings(self) -> None:
        """Stop what is prepared for drivers that nobody wants any more."""
        for opening in self._openings:
            if opening.preparing and not self._serves(opening):
                opening.preparing.cancel()

    def until(self, deadline: float) -> None:
        """Let every driver's guardian kill it at ``deadline``, unless a later deadline arrives."""
        self._until = deadline
        for one in self._drivers.values():
            one.process.until(deadline)

    def has_slot(self, one: Driver) -> bool:
        """Return whether a driver has a slot; a spare gets one in which no attempt runs."""
        if one.slot is None:
            others = self._all()
            seats = [other.seat for other in others]
            busy = {seat.slot for seat in seats if seat.runs and seat.state is DriverState.BUSY}
            free = [slot for slot in range(1, self._settings.slots + 1) if slot not in busy]
            for other in others:
                # One that is ending keeps its slot, for its last report.
                if free and other.slot == free[0] and other.seat.state is not DriverState.ENDING:
                    other.slot = None
            one.slot = free[0] if free else None
        return one.slot is not None

    def run_attempt(self, one: Driver, deploy: Deploy, term: Term) -> None:
        """Run an attempt in a warm driver that has a slot."""
        one.state, one.deploy, one.began = DriverState.BUSY, deploy, self._clock.now()
        one.printing = deploy.name
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
                is_recorded = isinstance(message, messages.CheckpointsRecorded) and message.numbers
                if self._drains and is_recorded:
                    self.retire(one, HANDED_OVER)
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
        self._give_up_openings()
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
        """Keep the wanted drivers; runs for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._arrange()
            self._leave_grounds()

    def _all(self) -> list[Driver | Opening]:
        return [*self._drivers.values(), *self._openings]

    def _arrange(self) -> None:
        if self._wanted is None:
            return
        actions = drivers.arrange(
            [one.seat for one in self._all()],
            self._settings.slots,
            self._settings.spares,
            [one.purpose for one in self._wanted],
            frozenset(self._resting),
        )
        prepares = {one.purpose: one for one in self._wanted}
        for action in actions:
            match action:
                case Retire(driver) if one := self._drivers.get(driver):
                    self.retire(one, NEEDED)
                case Promote(driver, slot) if one := self._drivers.get(driver):
                    one.slot, one.note = slot, self._notes.get(slot, "")
                    self.report_drivers()
                    self._changed.set()
                case Start(slot, purpose):
                    self._open(prepares[purpose], slot)

    def _leave_grounds(self) -> None:
        """Let go of what applications stood on that are neither here nor wanted any more."""
        wanted = {one.application_id for one in self._wanted or ()}
        present = {one.prepare.application_id for one in self._all()}
        for application in self._grounds.users - wanted - present:
            self._grounds.users.discard(application)
            self._spawn(self._grounds.leave(application))

    def _open(self, prepare: Prepare, slot: int | None) -> None:
        opening = Opening(Incarnation(uuid.uuid4().hex), slot, prepare)
        self._openings.append(opening)
        self._spawn(self._try_to_start(opening))

    async def _try_to_start(self, opening: Opening) -> None:
        """Start a driver; others may start meanwhile, as storage may be slow for one of them."""
        try:
            one = await self._start(opening)
            if not self._serves(one):
                self.retire(one, UNWANTED)
        except asyncio.CancelledError:
            if self._serves(opening):
                raise
        except EnvironmentFailed as error:  # Another try would fail after the same time.
            self._start_failed(
                opening.seat, f"cannot be started: {error}", tries=drivers.FAILED_MAX
            )
        except (OSError, UnderstudyError) as error:
            self._start_failed(opening.seat, f"cannot be started: {error}")
        except Exception as error:  # An error of ours; without a pause the next try spins.
            self._start_failed(opening.seat, f"cannot be started: {error!r}")
            raise
        finally:
            self._openings.remove(opening)
            self._changed.set()
            self._gone.set()

    async def _start(self, opening: Opening) -> Driver:
        prepare, incarnation = opening.prepare, opening.incarnation
        ground = await self._prepared(opening)
        directory = ground.directory
        path = code.python_path(directory, prepare.artifacts) if directory else ()
        scratch = self._settings.scratch / incarnation
        with channels.pair() as (mine, theirs):
            spec = self._spec(opening, ground.python, path, scratch, theirs)
            process = await self._processes.start(
                spec, lambda text: self._printed(incarnation, text)
            )
        link = await wire.over_socket(mine, channels.driver_codec, incarnation)
        one = self._employ(opening, process, link)
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
                ended_runs=prepare.ended_runs,
                keep_idle_s=self._settings.keep_idle_s,
                wait_s=self._settings.wait_s,
                reuse=self._settings.reuse,
                class_data=self._settings.class_data,
                cancel_grace_s=self._settings.cancel_grace_s,
            )
        )
        return one

    async def _prepared(self, opening: Opening) -> Ground:
        """Return what the driver stands on; cancelled where nobody wants the driver any more."""
        opening.preparing = asyncio.create_task(self._grounds.of(opening.prepare))
        self._changed.set()  # Others may start meanwhile.
        try:
            return await opening.preparing
        finally:
            opening.preparing = None
            self._changed.set()

    def _employ(self, opening: Opening, process: Process, link: Link[DriverMessage]) -> Driver:
        """Attend a driver whose process is started."""
        slot = opening.slot
        note = self._notes.get(slot, "") if slot else ""
        one = Driver(opening.incarnation, slot, opening.prepare, process, link, note=note)
        self._drivers[one.incarnation] = one
        listening = self._spawn(self._listen(one))
        self._spawn(self._await_death(one, listening))
        self.report_drivers()
        return one

    def _spec(
        self,
        opening: Opening,
        python: str,
        path: tuple[str, ...],
        scratch: Path,
        channel: socket.socket,
    ) -> Spec:
        incarnation = opening.incarnation
        previous = os.environ.get("PYTHONPATH")
        entries = [*path, *([previous] if previous else [])]
        cwd = opening.prepare.profile.cwd
        return Spec(
            name=process_name("driver", incarnation),
            incarnation=incarnation,
            argv=(python, "-P", "-m", "understudy.driver.driver_process"),
            env={
                **channels.child_environment(channel, incarnation),
                channels.HEARTBEAT_S: str(self._settings.heartbeat_s),
                "PYTHONPATH": os.pathsep.join(entries),
                "PYTHONUNBUFFERED": "1",
                **({OWN_PYTHON: "1"} if python != sys.executable else {}),
            },
            fds=(channel.fileno(),),
            start_s=self._settings.start_s,
            scratch=(str(scratch),),
            cwd=cwd if cwd and Path(cwd).is_dir() else None,
            limits=self._settings.limits,
        )

    def _printed(self, incarnation: Incarnation, text: str) -> None:
        one = self._drivers.get(incarnation)
        if one is None or one.state is DriverState.STARTING:
            self._last_words[incarnation] = [*self._last_words.get(incarnation, [])[-20:], text]
            if len(self._last_words) > WORDS_MAX:
                del self._last_words[next(iter(self._last_words))]
        if one is not None:
            log = log_name(one.prepare.run_id, one.prepare.application_id)
            self._reporter.line(log, one.printing or one.name, text)

    async def _listen(self, one: Driver) -> None:
        while (envelope := await one.link.receive()) is not None:
            match envelope.message:
                case messages.Warm() as warm:
                    self._warmed(one, warm)
                case messages.Executors() as executors:
                    self._note_executors(one, executors)
                case messages.Entered() as entered if one.deploy:
                    if one.spark != entered.spark:  # As it is with each attempt on a cluster.
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
        self._starts.pop(one.prepare.purpose, None)
        self._resting.discard(one.prepare.purpose)
        self._last_words.pop(one.incarnation, None)
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

    def _serves(self, one: Driver | Opening) -> bool:
        """Return whether a driver has an application and profile that are wanted now."""
        return any(one.prepare.purpose == prepare.purpose for prepare in self._wanted or ())

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
            self._start_failed(one.seat, what, killed=killed)
        self._last_words.pop(one.incarnation, None)
        _log.info("driver %s %s", one.incarnation[:8], death)
        self.counts.ends[_end_of(one)] += 1
        if one.note not in EXPECTED or one.state is not DriverState.ENDING:
            self._report_end(one, death)
        self._settle(one)
        if one.ended is not None:
            self._outbox.send(replace(one.ended, reaped=True))
        elif one.deploy is not None:
            self.counts.attempt_ends[LOST] += 1
            handed_over = one.note == HANDED_OVER
            self._outbox.send(
                messages.AttemptLost(
                    job_id=one.deploy.job_id,
                    attempt=one.deploy.attempt,
                    reason=HANDED_OVER if handed_over else f"its driver {how_it_ended(death)}",
                    ran_s=max(0.0, death.at - one.began),
                    handed_over=handed_over,
                )
            )
        self.report_drivers()
        self._changed.set()
        self._gone.set()

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

    def _start_failed(self, seat: Seat, what: str, *, killed: bool = False, tries: int = 1) -> None:
        purpose = seat.purpose
        self.counts.start_failures += 1
        starts = self._starts.get(purpose, Starts())
        starts = (
            replace(starts, killed=starts.killed + 1)
            if killed
            else replace(starts, failed=starts.failed + tries)
        )
        words = "\n".join(self._last_words.get(seat.driver, [])[-8:])
        _log.warning("a driver %s; it printed last: %s", what, words)
        if not any(purpose == prepare.purpose for prepare in self._wanted or ()):
            return
        self._starts[purpose] = starts
        self._resting.add(purpose)
        loop = asyncio.get_running_loop()
        loop.call_later(drivers.start_pause_s(starts), self._rested, purpose)
        if drivers.hopeless(starts):
            reason = f"a driver {what}\n{words}".strip()
            self._outbox.send(
                messages.CannotStart(application_id=purpose.application_id, reason=reason)
            )

    def _rested(self, purpose: Purpose) -> None:
        self._resting.discard(purpose)
        self._changed.set()

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
