"""ResourceManager: the registered TaskManagers, their slots, and their deaths.

It keeps the links to TaskManagers, assigns their warm slots to the jobs of all applications
(``core.slots``), tells each TaskManager which drivers to have, and puts messages about attempts
into the inboxes of the jobs. A TaskManager is given up on proof of death, by its liveness lock, or
after the adoption grace (``core.liveness``).

Where somebody provides TaskManagers on request (`workers`), it says what jobs need.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.core import job, liveness, slots
from understudy.core.drivers import DriverState, Purpose, Seat
from understudy.core.liveness import Silence
from understudy.core.recovery import Inventory
from understudy.core.slots import Ledger, Offer, Placement, Workplace
from understudy.core.workers import demand_of
from understudy.jobmanager.workers import Workers
from understudy.model import ApplicationId, Incarnation, JobId, Term
from understudy.process.closing import Closing
from understudy.process.liveness_lock import Locks
from understudy.rpc import messages
from understudy.rpc.gateway import Link
from understudy.rpc.messages import AttemptMessage, DriverReport, LinkMessage

DIED = "its TaskManager died"

_log = logging.getLogger(__name__)


@dataclass
class TaskManagerView:
    """A registered TaskManager, as the leader knows it."""

    incarnation: Incarnation
    registration: messages.RegisterTaskManager
    link: Link[LinkMessage] | None
    drivers: tuple[DriverReport, ...]
    heard_at: float
    told: messages.KeepDrivers | None = None
    """The drivers that this connection has asked for."""


class JobInbox(Protocol):
    """Inbox of a job: what happens to its slot and its attempt arrives here, in one hop."""

    def enqueue(self, event: job.Event) -> None:
        """Put an event into the inbox."""
        ...

    def receive(self, taskmanager: Incarnation, message: AttemptMessage) -> None:
        """Put a TaskManager's message about the job's attempt into the inbox."""
        ...


class Tenant(Protocol):
    """An application, the owner of jobs in slots."""

    @property
    def inboxes(self) -> Mapping[JobId, JobInbox]:
        """Return the inboxes of its unfinished jobs."""
        ...

    def owns(self, job_id: JobId) -> bool:
        """Return whether the job is of this application, ended or not."""
        ...

    def is_settled(self, message: messages.AttemptEnded) -> bool:
        """Return whether the end is recorded, or of no further use, by what is stored."""
        ...

    def registered(self, taskmanager: Incarnation, reported: tuple[Inventory, ...]) -> None:
        """A TaskManager has registered, with these attempts of its jobs."""
        ...

    def taskmanager_lost(self, taskmanager: Incarnation, reason: str) -> None:
        """The TaskManager and all its processes are dead."""
        ...

    def cannot_start(self, taskmanager: Incarnation, reason: str) -> None:
        """The TaskManager cannot start drivers for this tenant."""
        ...

    @property
    def prepare(self) -> messages.Prepare:
        """Return what a TaskManager needs to start drivers for this application."""
        ...

    @property
    def purpose(self) -> Purpose:
        """Return what its drivers serve."""
        ...

    @property
    def priority(self) -> int:
        """Return the priority of its jobs for a slot; higher comes first."""
        ...


class ResourceManager:
    """The slots of one term."""

    def __init__(
        self,
        term: Term,
        grace_s: float,
        locks: Locks,
        clock: Clock,
        changed: Callable[[], None],
        workers: Workers | None = None,
    ) -> None:
        """``workers`` provides TaskManagers on request; None: people start them."""
        self._term = term
        self._locks = locks
        self._clock = clock
        self._changed = changed
        self._ledger = Ledger()
        self._silence = Silence(grace_s)
        self._watching: dict[Incarnation, asyncio.Task[None]] = {}
        self._tenants: dict[ApplicationId, Tenant] = {}
        self._parked: set[ApplicationId] = set()
        self._opened = False
        self._workers = workers
        self._going: frozenset[Incarnation] = frozenset()
        """TaskManagers that get no further job."""
        self._dead: frozenset[Incarnation] = frozenset()
        """TaskManagers that their provider has proved dead."""
        self._places: tuple[Ledger, Mapping[JobId, int]] = (self._ledger, {})
        self.taskmanagers: dict[Incarnation, TaskManagerView] = {}

    # --- applications -----------------------------------------------------------------------------

    def open(self) -> None:
        """Take TaskManagers in: every application that an earlier leader left is served or parked.

        Until then, what a TaskManager reports of attempts could not be judged.
        """
        self._opened = True

    def serve(self, tenant: Tenant) -> None:
        """Serve an application from now on, and keep drivers for it.

        One that was parked: all TaskManagers register again, as what they reported of its attempts
        was heard by nobody.
        """
        application = tenant.purpose.application_id
        if application in self._parked:
            self._parked.discard(application)
            for view in self.taskmanagers.values():
                if view.link:
                    view.link.close()
                    view.link = None
        self._tenants[application] = tenant
        self._enter(slots.serve(self._ledger, tenant.purpose), [])

    def park(self, application: ApplicationId) -> None:
        """Serve an application no longer for now: its attempts run on, whatever becomes of them.

        What they report is kept by the TaskManagers until the application is served again.
        """
        self._parked.add(application)
        self._forget(application)

    def leave(self, application: ApplicationId) -> None:
        """Serve an application no more; its drivers are retired, its attempts are stopped."""
        self._parked.discard(application)
        self._forget(application)

    def _forget(self, application: ApplicationId) -> None:
        self._tenants.pop(application, None)
        self._enter(*slots.leave(self._ledger, application))

    def _owner(self, job_id: JobId) -> Tenant | None:
        return next((one for one in self._tenants.values() if one.owns(job_id)), None)

    # --- slots ------------------------------------------------------------------------------------

    def request(self, application: ApplicationId, job_id: JobId) -> bool:
        """Ask for a slot for a job; return False if the job has to wait for one."""
        tenant = self._tenants[application]
        self._enter(*slots.request(self._ledger, job_id, tenant.purpose, tenant.priority))
        return job_id in self._ledger.given

    def take(self, application: ApplicationId, job_id: JobId) -> Placement | None:
        """Give a job a slot that is free now; None, and no request, if the job had to wait."""
        tenant = self._tenants.get(application)
        if tenant is None:
            return None
        ledger, offers = slots.request(self._ledger, job_id, tenant.purpose, tenant.priority)
        if [offer.job_id for offer in offers] != [job_id]:
            return None
        self._enter(ledger, [])
        return offers[0].placement

    def release(self, job_id: JobId) -> None:
        """Withdraw a job's request, or free its slot."""
        self._enter(*slots.withdraw(self._ledger, job_id))

    def occupy(self, job_id: JobId, placement: Placement, purpose: Purpose) -> None:
        """Mark the slot of an attempt that an earlier leader started."""
        self._enter(slots.occupy(self._ledger, job_id, placement, purpose), [])

    def waiting(self) -> tuple[JobId, ...]:
        """Return the jobs that wait for a slot, in the order in which they would be served now."""
        return slots.waiting(self._ledger)

    def slots(self) -> int:
        """Return how many jobs the TaskManagers can run at once."""
        return sum(view.registration.slots for view in self.taskmanagers.values())

    def drivers_by_job(self) -> dict[str, DriverReport]:
        """Return the drivers that run jobs, as last reported, by job id."""
        return {
            report.job_id: report
            for view in self.taskmanagers.values()
            for report in view.drivers
            if report.job_id
        }

    def why_waiting(self, job_id: JobId, driver: DriverReport | None) -> str:
        """Return why a job waits: for a slot, or in ``driver`` for executors; empty if it runs."""
        place = self.places.get(job_id)
        if place is None:
            return driver.waits if driver else ""
        return f"waits for a slot: {self._lacks()}{_in_line(place, len(self.places))}"

    @property
    def places(self) -> Mapping[JobId, int]:
        """Return each waiting job's place in the queue, from 1."""
        ledger, places = self._places
        if ledger is not self._ledger:
            places = {job_id: place for place, job_id in enumerate(self.waiting(), start=1)}
            self._places = self._ledger, places
        return places

    def _lacks(self) -> str:
        """Return what a waiting job lacks."""
        ledger, slots_ = self._ledger, self.slots()
        if ledger.carries is not None and len(ledger.given) >= ledger.carries:
            return f"the Spark cluster carries {ledger.carries} at once"
        missing = self._workers.why_none() if self._workers else ""
        if not slots_:
            return missing or "no TaskManager is there yet"
        if len(ledger.given) >= slots_:
            return f"{slots_} of {slots_} run other jobs" + (f"; {missing}" if missing else "")
        return "its driver is starting"

    def _enter(self, ledger: Ledger, offers: list[Offer]) -> None:
        """Keep the new ledger, and tell jobs and TaskManagers what it means for them."""
        self._ledger = ledger
        if not ledger.queues:
            self._places = ledger, {}  # Else an old ledger would be kept until somebody asks.
        for offer in offers:
            tenant = self._tenants[ledger.given[offer.job_id].purpose.application_id]
            tenant.inboxes[offer.job_id].enqueue(job.Offered(offer.placement))
        for taskmanager, wanted in slots.wanted(ledger).items():
            self._keep(self.taskmanagers.get(taskmanager), wanted)
        if self._workers:
            self._workers.need(demand_of(ledger))

    def _keep(self, view: TaskManagerView | None, wanted: tuple[Purpose, ...]) -> None:
        """Ask a TaskManager for these drivers, unless this connection has asked for the same."""
        if view is None or view.link is None:
            return
        tenants = [self._tenants.get(purpose.application_id) for purpose in wanted]
        prepares = [
            tenant.prepare
            for tenant, purpose in zip(tenants, wanted, strict=True)
            if tenant and tenant.purpose == purpose  # Else its attempts run the code before.
        ]
        names = list(dict.fromkeys(one.application_id for one in prepares))
        first = {one.application_id: one for one in prepares}
        message = messages.KeepDrivers(
            applications=tuple(first[name] for name in names),
            wanted=tuple(names.index(one.application_id) for one in prepares),
        )
        if message != view.told:
            view.told = message
            view.link.send(message, self._term)

    # --- TaskManagers -----------------------------------------------------------------------------

    def expect(self, taskmanager: Incarnation) -> None:
        """Watch a TaskManager that an intent names, until it registers, dies or is given up."""
        if taskmanager not in self.taskmanagers:
            self._silence = liveness.answered(self._silence, taskmanager, self._clock.now())
            self._watch(taskmanager)

    def send(self, taskmanager: Incarnation, message: LinkMessage) -> bool:
        """Send to a TaskManager; False without a connection to it."""
        view = self.taskmanagers.get(taskmanager)
        if view is None or view.link is None:
            return False
        view.link.send(message, self._term)
        return True

    async def converse(
        self,
        link: Link[LinkMessage],
        sender: Incarnation,
        registration: messages.RegisterTaskManager,
    ) -> None:
        """Serve one TaskManager until its connection ends."""
        if not self._opened:
            return  # The TaskManager registers again.
        now = self._clock.now()
        view = TaskManagerView(sender, registration, link, registration.drivers, now)
        previous = self.taskmanagers.get(sender)
        if previous and previous.link:
            previous.link.close()
        self.taskmanagers[sender] = view
        self._silence = liveness.answered(self._silence, sender, now)
        self._watch(sender)
        link.send(messages.Welcome(), self._term)
        # How attempts ended follows on this link, behind their last checkpoints (`Outbox.repeat`).
        self._judge(sender, registration)
        self._report(view, registration.drivers)
        _log.info("%s registered with %d slots", registration.name, registration.slots)
        while (envelope := await link.receive()) is not None:
            if self.taskmanagers.get(sender) is not view:
                break  # Given up or registered again: messages of this connection are outdated.
            view.heard_at = self._clock.now()
            self._hear(view, envelope.message)
        if view.link is link:
            view.link = None
            self._changed()

    def _judge(self, sender: Incarnation, registration: messages.RegisterTaskManager) -> None:
        """Let each application judge its attempts; stop those of no application."""
        reported = [(self._owner(one.job_id), one) for one in registration.attempts]
        for tenant in list(self._tenants.values()):
            tenant.registered(
                sender,
                tuple(
                    Inventory(one.job_id, one.attempt, running=one.running)
                    for owner, one in reported
                    if owner is tenant
                ),
            )
        for owner, one in reported:
            if owner is None and one.running and one.application_id not in self._parked:
                stop = messages.StopAttempt(job_id=one.job_id, attempt=one.attempt)
                self.send(sender, stop)

    def _hear(self, view: TaskManagerView, message: LinkMessage) -> None:
        match message:
            case messages.Heartbeat():
                self._silence = liveness.answered(
                    self._silence, view.incarnation, self._clock.now()
                )
                if view.link:
                    view.link.send(messages.HeartbeatAnswer(number=message.number), self._term)
            case messages.Drivers():
                self._report(view, message.drivers)
            case messages.CannotStart():
                self._cannot_start(view.incarnation, message)
            case messages.Draining():
                view.registration = replace(view.registration, slots=0, spares=0)
                self._report(view, view.drivers)
            case messages.Leaving():
                self._lose(view.incarnation, "it has ended, and handed over what it ran")
            case (
                messages.AttemptRunning()
                | messages.AttemptEnded()
                | messages.AttemptLost()
                | messages.AttemptRefused()
                | messages.Progress()
                | messages.CheckpointsTaken()
            ):
                self._deliver(view.incarnation, message)

    def _cannot_start(self, taskmanager: Incarnation, message: messages.CannotStart) -> None:
        application = message.application_id
        ledger = slots.cannot_start(self._ledger, taskmanager, application)
        self._enter(ledger, [])
        if tenant := self._tenants.get(application):
            tenant.cannot_start(taskmanager, message.reason)

    def _deliver(self, taskmanager: Incarnation, message: AttemptMessage) -> None:
        """Put a message into the inbox of its job; let a settled end be kept no longer."""
        owner = self._owner(message.job_id)
        if owner and (inbox := owner.inboxes.get(message.job_id)):
            inbox.receive(taskmanager, message)
        if isinstance(message, messages.AttemptEnded) and self._is_settled(owner, message):
            forget = messages.Forget(job_id=message.job_id, attempt=message.attempt)
            self.send(taskmanager, forget)

    def _is_settled(self, owner: Tenant | None, message: messages.AttemptEnded) -> bool:
        """Return whether nobody needs an end any more; a parked application may need it."""
        return owner.is_settled(message) if owner else not self._parked

    def _report(self, view: TaskManagerView, drivers: tuple[DriverReport, ...]) -> None:
        view.drivers = drivers
        seats = tuple(
            Seat(
                report.driver,
                report.slot,
                DriverState(report.state),
                Purpose(ApplicationId(report.application_id), report.profile),
                bool(report.job_id),
            )
            for report in drivers
        )
        going = view.incarnation in self._going
        sizes = (0, 0) if going else (view.registration.slots, view.registration.spares)
        workplace = Workplace(*sizes, seats)
        # Drivers measure at different moments: the largest value is the latest, or soon true.
        carries = max((one.carries for one in drivers if one.carries is not None), default=None)
        step = slots.report(self._ledger, view.incarnation, workplace, carries)
        self._changed()
        self._enter(*step)

    # --- workers ----------------------------------------------------------------------------------

    async def provide_workers(self) -> None:
        """Have TaskManagers as jobs need them; runs for ever."""
        if self._workers:
            self._workers.need(demand_of(self._ledger))
            await self._workers.run(self._note_workers)

    def _note_workers(self, going: frozenset[Incarnation], dead: frozenset[Incarnation]) -> None:
        """Give no job to TaskManagers that go, and give up the dead."""
        changed, self._going = going ^ self._going, going
        new, self._dead = dead - self._dead, self._dead | dead
        for taskmanager in new:
            if taskmanager in self._watching:
                self._lose(taskmanager, DIED)
        for taskmanager in changed & self.taskmanagers.keys():
            view = self.taskmanagers[taskmanager]
            self._report(view, view.drivers)

    # --- deaths -----------------------------------------------------------------------------------

    async def give_up_the_silent(self) -> None:
        """Give up silent TaskManagers once their drivers must be dead; runs for ever."""
        while True:
            at = liveness.next_expiry(self._silence)
            pause_s = 1.0 if at is None else min(1.0, max(0.0, at - self._clock.now()))
            await asyncio.sleep(pause_s)
            for taskmanager in liveness.expired(self._silence, self._clock.now()):
                await self._locks.end_strays(taskmanager)
                if taskmanager in liveness.expired(self._silence, self._clock.now()):
                    self._lose(taskmanager, "its TaskManager was silent for too long")

    def _watch(self, taskmanager: Incarnation) -> None:
        if taskmanager not in self._watching:
            task = asyncio.ensure_future(self._await_death(taskmanager))
            self._watching[taskmanager] = task

    async def _await_death(self, taskmanager: Incarnation) -> None:
        if taskmanager not in self._dead:
            await self._locks.dead(taskmanager)
        self._lose(taskmanager, DIED)

    def _lose(self, taskmanager: Incarnation, reason: str) -> None:
        view = self.taskmanagers.pop(taskmanager, None)
        if view and view.link:
            view.link.close()
        watching = self._watching.pop(taskmanager, None)
        if watching and watching is not asyncio.current_task():
            watching.cancel()
        self._silence = liveness.forget(self._silence, taskmanager)
        self._enter(slots.gone(self._ledger, taskmanager), [])
        _log.warning("TaskManager %s: %s", taskmanager[:8], reason)
        for tenant in list(self._tenants.values()):
            tenant.taskmanager_lost(taskmanager, reason)
        self._changed()

    def close(self) -> None:
        """Close all links: the TaskManagers look for the next leader."""
        for task in self._watching.values():
            task.cancel()
        with Closing("the ResourceManager") as closing:
            for name, view in list(self.taskmanagers.items()):
                if view.link:
                    with closing.step(f"the link of TaskManager {name}"):
                        view.link.close()


def _in_line(place: int, waiting: int) -> str:
    """Return a job's place in the queue, as the end of a sentence; empty if it waits alone."""
    return f" (place {place} of {waiting})" if waiting > 1 else ""
