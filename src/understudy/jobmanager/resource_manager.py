"""ResourceManager: the registered TaskManagers, their slots, and their deaths.

It keeps the links to TaskManagers, assigns their warm slots to jobs (``core.slots``), and puts
their messages about attempts into the inboxes of the jobs. A TaskManager is given up on proof of
death, by its liveness lock, or after the adoption grace (``core.liveness``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from understudy.clock import Clock
from understudy.core import job, liveness, slots
from understudy.core.liveness import Silence
from understudy.core.recovery import Inventory
from understudy.core.slots import Ledger, Offer, Placement
from understudy.model import Incarnation, JobId, Term
from understudy.process.closing import Closing
from understudy.process.liveness_lock import Locks
from understudy.rpc import messages
from understudy.rpc.gateway import Link
from understudy.rpc.messages import AttemptMessage, DriverReport, LinkMessage

_log = logging.getLogger(__name__)


@dataclass
class TaskManagerView:
    """A registered TaskManager, as the leader knows it."""

    incarnation: Incarnation
    registration: messages.RegisterTaskManager
    link: Link[LinkMessage] | None
    drivers: tuple[DriverReport, ...]
    registered_at: float
    heard_at: float


class JobInbox(Protocol):
    """Inbox of a job: what happens to its slot and its attempt arrives here, in one hop."""

    def enqueue(self, event: job.Event) -> None:
        """Put an event into the inbox."""
        ...

    def receive(self, taskmanager: Incarnation, message: AttemptMessage) -> None:
        """Put a TaskManager's message about the job's attempt into the inbox."""
        ...


class Tenant(Protocol):
    """Owner of the jobs in slots."""

    @property
    def inboxes(self) -> Mapping[JobId, JobInbox]:
        """Return the inboxes of its unfinished jobs."""
        ...

    def is_settled(self, message: messages.AttemptEnded) -> bool:
        """Return whether the end is recorded, or of no further use, by what is stored."""
        ...

    def registered(self, taskmanager: Incarnation, reported: tuple[Inventory, ...]) -> None:
        """A TaskManager has registered, with these attempts."""
        ...

    def taskmanager_lost(self, taskmanager: Incarnation, reason: str) -> None:
        """The TaskManager and all its processes are dead."""
        ...

    def cannot_start(self, taskmanager: Incarnation, reason: str) -> None:
        """The TaskManager cannot start drivers for this tenant."""
        ...

    def wanted(self) -> messages.Prepare | None:
        """Return the application that TaskManagers keep drivers for, as the message to send."""
        ...


class ResourceManager:
    """The slots of one term."""

    def __init__(
        self, term: Term, grace_s: float, locks: Locks, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self._term = term
        self._locks = locks
        self._clock = clock
        self._changed = changed
        self._ledger = Ledger()
        self._silence = Silence(grace_s)
        self._watching: dict[Incarnation, asyncio.Task[None]] = {}
        self._tenant: Tenant | None = None
        self.taskmanagers: dict[Incarnation, TaskManagerView] = {}

    def serve(self, tenant: Tenant | None) -> None:
        """Serve this tenant from now on, or none; let every TaskManager prepare for it."""
        self._tenant = tenant
        for view in self.taskmanagers.values():
            self._prepare(view)

    # --- slots ------------------------------------------------------------------------------------

    def request(self, job_id: JobId) -> bool:
        """Ask for a slot for a job; return False if the job has to wait for one."""
        self._ledger, offers = slots.request(self._ledger, job_id)
        self._offer(offers)
        return job_id not in self._ledger.waiting

    def release(self, job_id: JobId) -> None:
        """Withdraw a job's request, or free its slot."""
        self._ledger, offers = slots.withdraw(self._ledger, job_id)
        self._offer(offers)

    def occupy(self, job_id: JobId, placement: Placement) -> None:
        """Mark the slot of an attempt that an earlier leader started."""
        self._ledger = slots.occupy(self._ledger, job_id, placement)

    def waiting(self) -> tuple[JobId, ...]:
        """Return the jobs that wait for a slot."""
        return self._ledger.waiting

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
        ledger = self._ledger
        if job_id not in ledger.waiting:
            return driver.waits if driver else ""
        if ledger.carries is not None and len(ledger.given) >= ledger.carries:
            return f"waits for a slot: the Spark cluster carries {ledger.carries} at once"
        slots_ = self.slots()
        if not slots_:
            return "waits for a slot: no TaskManager is there yet"
        if len(ledger.given) >= slots_:
            return f"waits for a slot: {slots_} of {slots_} run other jobs"
        return "waits for a slot: its driver is starting"

    def _offer(self, offers: list[Offer]) -> None:
        for offer in offers:
            if self._tenant:
                self._tenant.inboxes[offer.job_id].enqueue(job.Offered(offer.placement))

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

    def broadcast(self, message: LinkMessage) -> None:
        """Send to every TaskManager."""
        for taskmanager in self.taskmanagers:
            self.send(taskmanager, message)

    async def converse(
        self,
        link: Link[LinkMessage],
        sender: Incarnation,
        registration: messages.RegisterTaskManager,
    ) -> None:
        """Serve one TaskManager until its connection ends."""
        if self._tenant is None:
            return  # Before recovery its report cannot be judged: the TaskManager registers again.
        now = self._clock.now()
        view = TaskManagerView(
            sender, registration, link, registration.drivers, self._clock.wall(), now
        )
        previous = self.taskmanagers.get(sender)
        if previous and previous.link:
            previous.link.close()
        self.taskmanagers[sender] = view
        self._silence = liveness.answered(self._silence, sender, now)
        self._watch(sender)
        link.send(messages.Welcome(), self._term)
        self._prepare(view)
        # How attempts ended follows on this link, behind their last checkpoints (`Outbox.repeat`).
        self._tenant.registered(sender, _inventory(registration))
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

    def _prepare(self, view: TaskManagerView) -> None:
        wanted = self._tenant.wanted() if self._tenant else None
        if wanted and view.link:
            view.link.send(wanted, self._term)

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
                if self._tenant:
                    self._tenant.cannot_start(view.incarnation, message.reason)
            case (
                messages.AttemptRunning()
                | messages.AttemptEnded()
                | messages.AttemptLost()
                | messages.AttemptRefused()
                | messages.Progress()
                | messages.CheckpointsTaken()
            ):
                self._deliver(view.incarnation, message)

    def _deliver(self, taskmanager: Incarnation, message: AttemptMessage) -> None:
        """Put a message into the inbox of its job; let a settled end be kept no longer."""
        if self._tenant is None:
            return
        inbox = self._tenant.inboxes.get(message.job_id)
        if inbox:
            inbox.receive(taskmanager, message)
        if isinstance(message, messages.AttemptEnded) and self._tenant.is_settled(message):
            forget = messages.Forget(job_id=message.job_id, attempt=message.attempt)
            self.send(taskmanager, forget)

    def _report(self, view: TaskManagerView, drivers: tuple[DriverReport, ...]) -> None:
        view.drivers = drivers
        wanted = self._tenant.wanted() if self._tenant else None
        profile = wanted.profile.digest if wanted else ""
        warm = tuple(
            report.driver
            for report in drivers
            if report.state == "warm"
            and report.slot is not None
            and report.profile in {"", profile}
        )
        # Drivers measure at different moments: the largest value is the latest, or soon true.
        carries = max((one.carries for one in drivers if one.carries is not None), default=None)
        self._ledger, offers = slots.report(self._ledger, view.incarnation, warm, carries)
        self._changed()
        self._offer(offers)

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
        await self._locks.dead(taskmanager)
        self._lose(taskmanager, "its TaskManager died")

    def _lose(self, taskmanager: Incarnation, reason: str) -> None:
        view = self.taskmanagers.pop(taskmanager, None)
        if view and view.link:
            view.link.close()
        watching = self._watching.pop(taskmanager, None)
        if watching and watching is not asyncio.current_task():
            watching.cancel()
        self._silence = liveness.forget(self._silence, taskmanager)
        self._ledger = slots.gone(self._ledger, taskmanager)
        _log.warning("TaskManager %s: %s", taskmanager[:8], reason)
        if self._tenant:
            self._tenant.taskmanager_lost(taskmanager, reason)
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


def _inventory(registration: messages.RegisterTaskManager) -> tuple[Inventory, ...]:
    return tuple(
        Inventory(attempt.job_id, attempt.attempt, running=attempt.running)
        for attempt in registration.attempts
    )
