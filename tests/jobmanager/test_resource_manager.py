"""ResourceManager: whom it takes in, under which term, and when it gives somebody up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.core import job
from understudy.core.drivers import Purpose
from understudy.core.recovery import Inventory
from understudy.jobmanager.resource_manager import JobInbox, ResourceManager
from understudy.jobmanager.workers import Workers
from understudy.model import (
    ApplicationId,
    Incarnation,
    JobId,
    JobStatus,
    Pointer,
    RunId,
    SessionProfile,
    Term,
)
from understudy.process.liveness_lock import DeathNote, Locks
from understudy.rpc import messages
from understudy.rpc.local import LocalLink, link_pair
from understudy.rpc.messages import AttemptMessage, LinkMessage, Prepare

TERM, GRACE_S = 7, 40.0
ONE = Incarnation("taskmanager-1")
TWO = Incarnation("taskmanager-2")


class Graves:
    """The kernel's word: who is dead."""

    def __init__(self) -> None:
        self._dead: dict[Incarnation, asyncio.Event] = {}
        self.ends_strays_s = 0.0
        """How long it takes to end what a dead process has left."""
        self.asked: list[Incarnation] = []

    def bury(self, incarnation: Incarnation) -> None:
        """Let a process be dead."""
        self._dead.setdefault(incarnation, asyncio.Event()).set()

    async def dead(self, incarnation: Incarnation) -> DeathNote:
        """See `Locks.dead`."""
        await self._dead.setdefault(incarnation, asyncio.Event()).wait()
        return DeathNote(None)

    async def end_strays(self, incarnation: Incarnation) -> None:
        """See `Locks.end_strays`."""
        self.asked.append(incarnation)
        await asyncio.sleep(self.ends_strays_s)


def resource_manager(term: Term, graves: Graves, workers: Workers | None = None) -> ResourceManager:
    """Return the one of a leader, which takes nobody in yet."""
    locks, clock = cast("Locks", graves), virtual_clock()
    return ResourceManager(term, GRACE_S, locks, clock, lambda: None, workers)


@dataclass
class Tenant:
    """Hears what becomes of TaskManagers; see `resource_manager.Tenant`."""

    name: str = "application"
    jobs: tuple[str, ...] = ("1",)
    priority: int = 0
    lost: list[tuple[Incarnation, str]] = field(default_factory=list)
    taken_in: list[Incarnation] = field(default_factory=list)
    reported: list[JobId] = field(default_factory=list)
    """The attempts that TaskManagers had when they registered, by job."""
    settled: bool = False
    """What is said of every end."""
    unable: list[Incarnation] = field(default_factory=list)
    offered: list[JobId] = field(default_factory=list)
    heard: list[AttemptMessage] = field(default_factory=list)

    @property
    def inboxes(self) -> Mapping[JobId, JobInbox]:
        """See `Tenant.inboxes`."""
        return {JobId(job): Inbox(JobId(job), self) for job in self.jobs}

    def owns(self, job_id: JobId) -> bool:
        """See `Tenant.owns`."""
        return job_id in self.inboxes

    def is_settled(self, message: messages.AttemptEnded) -> bool:
        """See `Tenant.is_settled`."""
        return self.settled

    def registered(self, taskmanager: Incarnation, reported: tuple[Inventory, ...]) -> None:
        """See `Tenant.registered`."""
        self.taken_in.append(taskmanager)
        self.reported += [one.job_id for one in reported]

    def cannot_start(self, taskmanager: Incarnation, reason: str) -> None:
        """See `Tenant.cannot_start`."""
        self.unable.append(taskmanager)

    def taskmanager_lost(self, taskmanager: Incarnation, reason: str) -> None:
        """See `Tenant.taskmanager_lost`."""
        self.lost.append((taskmanager, reason))

    @property
    def prepare(self) -> Prepare:
        """See `Tenant.prepare`."""
        return Prepare(
            application_id=ApplicationId(self.name),
            run_id=RunId("run"),
            directory="d",
            profile=SessionProfile(),
            artifacts=(),
        )

    @property
    def purpose(self) -> Purpose:
        """See `Tenant.purpose`."""
        return self.prepare.purpose


@dataclass
class Inbox:
    """The inbox of one job."""

    job_id: JobId
    tenant: Tenant

    def enqueue(self, event: job.Event) -> None:
        """See `JobInbox.enqueue`."""
        assert isinstance(event, job.Offered)
        self.tenant.offered.append(self.job_id)

    def receive(self, taskmanager: Incarnation, message: AttemptMessage) -> None:
        """See `JobInbox.receive`."""
        self.tenant.heard.append(message)


class Scene:
    """A ResourceManager, its tenant, and the TaskManagers that call."""

    def __init__(self, workers: Workers | None = None) -> None:
        self.graves, self.tenant = Graves(), Tenant()
        self._serving: list[asyncio.Task[None]] = []
        self.resources = resource_manager(TERM, self.graves, workers)

    def serve(self, *others: Tenant) -> None:
        """Serve applications, and take TaskManagers in."""
        for tenant in (self.tenant, *others):
            self.resources.serve(tenant)
        self.resources.open()

    async def call(
        self, sender: Incarnation = ONE, *attempts: messages.AttemptReport
    ) -> LocalLink[LinkMessage]:
        """Let a TaskManager register; return its end of the link."""
        ends: tuple[LocalLink[LinkMessage], LocalLink[LinkMessage]] = link_pair(
            sender, Incarnation("leader")
        )
        mine, theirs = ends
        self._serving.append(asyncio.ensure_future(self._serve(theirs, sender, attempts)))
        await asyncio.sleep(0.01)
        return mine

    async def _serve(
        self,
        link: LocalLink[LinkMessage],
        sender: Incarnation,
        attempts: tuple[messages.AttemptReport, ...],
    ) -> None:
        try:
            await self.resources.converse(link, sender, registration(attempts))
        finally:
            link.close()


def registration(
    attempts: tuple[messages.AttemptReport, ...] = (),
) -> messages.RegisterTaskManager:
    """Return what a TaskManager with one slot says of itself."""
    return messages.RegisterTaskManager(
        name="taskmanager-1",
        pid=1,
        guardian_pid=2,
        host="here",
        lock="",
        slots=1,
        spares=0,
        drivers=(),
        attempts=attempts,
    )


def test_a_taskmanager_is_welcomed_under_the_leaders_term() -> None:
    async def main() -> None:
        scene = Scene()
        scene.serve()
        envelope = await (await scene.call()).receive()

        assert envelope is not None
        assert (TERM, messages.Welcome()) == (envelope.term, envelope.message)
        assert [ONE] == scene.tenant.taken_in

    run_virtual(main())


def test_nobody_is_taken_in_before_the_leader_has_recovered() -> None:
    async def main() -> None:
        scene = Scene()
        scene.resources.serve(scene.tenant)
        early = await scene.call()

        assert await early.receive() is None
        assert {} == scene.resources.taskmanagers

        scene.serve()
        again = await (await scene.call()).receive()

        assert again is not None
        assert [ONE] == list(scene.resources.taskmanagers)

    run_virtual(main())


def test_a_taskmanager_that_registers_again_has_one_link_and_is_not_lost() -> None:
    async def main() -> None:
        scene = Scene()
        scene.serve()
        first = await scene.call()
        second = await scene.call()
        heard = [await first.receive() for _ in range(3)]
        await second.receive()
        await second.receive()
        sent = scene.resources.send(ONE, messages.StopAttempt(job_id=JobId("1"), attempt=1))
        envelope = await second.receive()

        assert heard[2] is None, "the first is closed"
        assert sent
        assert envelope is not None
        assert isinstance(envelope.message, messages.StopAttempt)
        assert [] == scene.tenant.lost

    run_virtual(main())


@pytest.mark.parametrize("settled", [True, False])
def test_an_end_is_forgotten_by_what_is_stored_not_for_want_of_an_inbox(settled: bool) -> None:
    async def main() -> None:
        scene = Scene()
        scene.tenant.settled = settled
        scene.serve()
        link = await scene.call()
        link.send(ended())
        await asyncio.sleep(0.01)
        link.send(messages.Heartbeat(number=1))
        told = [await link.receive() for _ in range(4 if settled else 3)]
        kinds = [type(envelope.message) for envelope in told if envelope]
        first, last = [messages.Welcome, messages.KeepDrivers], [messages.HeartbeatAnswer]

        assert [*first, *([messages.Forget] if settled else []), *last] == kinds

    run_virtual(main())


def ended() -> messages.AttemptEnded:
    """Return the end of an attempt."""
    return messages.AttemptEnded(
        job_id=JobId("1"),
        attempt=1,
        status=JobStatus.FINISHED,
        retryable=False,
        source=Pointer(path="staged", digest="", size=0),
        ran_s=1.0,
        start_time=1.0,
        end_time=2.0,
    )


def test_a_link_that_breaks_is_no_death() -> None:
    async def main() -> None:
        scene = Scene()
        scene.serve()
        (await scene.call()).close()
        await asyncio.sleep(GRACE_S / 2)

        assert not scene.resources.send(ONE, messages.Welcome())
        assert [] == scene.tenant.lost

    run_virtual(main())


def test_a_taskmanager_that_is_proved_dead_is_given_up_at_once_and_only_once() -> None:
    async def main() -> None:
        scene = Scene()
        scene.serve()
        silence = asyncio.ensure_future(scene.resources.give_up_the_silent())
        await scene.call()
        scene.graves.bury(ONE)
        await asyncio.sleep(0.01)

        assert [(ONE, "its TaskManager died")] == scene.tenant.lost

        await asyncio.sleep(3 * GRACE_S)

        assert 1 == len(scene.tenant.lost)
        assert {} == scene.resources.taskmanagers
        silence.cancel()

    run_virtual(main())


def test_one_that_an_intent_names_and_that_never_calls_is_given_up_after_the_grace() -> None:
    async def main() -> None:
        scene = Scene()
        scene.serve()
        silence = asyncio.ensure_future(scene.resources.give_up_the_silent())
        scene.resources.expect(ONE)
        await asyncio.sleep(GRACE_S - 2)

        assert [] == scene.tenant.lost

        await asyncio.sleep(4)

        assert [(ONE, "its TaskManager was silent for too long")] == scene.tenant.lost
        assert [ONE] == scene.graves.asked, "what it has left might write beside the next attempt"
        silence.cancel()

    run_virtual(main())


def test_one_that_is_expected_and_calls_in_time_is_not_given_up() -> None:
    async def main() -> None:
        scene = Scene()
        scene.serve()
        silence = asyncio.ensure_future(scene.resources.give_up_the_silent())
        scene.resources.expect(ONE)
        await asyncio.sleep(GRACE_S - 2)
        link = await scene.call()
        for number in range(10):
            await asyncio.sleep(GRACE_S / 4)
            link.send(messages.Heartbeat(number=number))

        assert [] == scene.tenant.lost
        silence.cancel()

    run_virtual(main())


def test_one_that_calls_while_its_strays_are_looked_for_is_not_given_up() -> None:
    async def main() -> None:
        scene = Scene()
        scene.serve()
        scene.graves.ends_strays_s = 2.0
        silence = asyncio.ensure_future(scene.resources.give_up_the_silent())
        scene.resources.expect(ONE)
        await asyncio.sleep(GRACE_S + 1)
        await scene.call()
        await asyncio.sleep(GRACE_S / 2)

        assert [ONE] == scene.graves.asked
        assert [] == scene.tenant.lost
        silence.cancel()

    run_virtual(main())


def test_at_the_end_of_a_term_every_link_is_closed_and_nobody_is_called_dead() -> None:
    async def main() -> None:
        scene = Scene()
        scene.serve()
        links = [await scene.call(Incarnation(f"taskmanager-{number}")) for number in (1, 2)]
        scene.resources.close()
        heard = [[await link.receive() for _ in range(3)] for link in links]
        scene.graves.bury(ONE)
        await asyncio.sleep(2 * GRACE_S)

        assert [None, None] == [each[2] for each in heard]
        assert [] == scene.tenant.lost

    run_virtual(main())


@pytest.mark.parametrize("given_up_first", [True, False])
def test_of_one_that_was_given_up_no_driver_is_offered_any_more(*, given_up_first: bool) -> None:
    """What it had sent before may be heard after its death is proved."""
    report = messages.DriverReport(driver=Incarnation("driver"), slot=1, state="warm")

    async def main() -> None:
        scene = Scene()
        scene.serve()
        link = await scene.call()
        if not given_up_first:
            link.send(messages.Drivers(drivers=(report,)))
            await asyncio.sleep(0.01)
        known = scene.resources._ledger.workplaces
        scene.resources._lose(ONE, "its TaskManager died")
        link.send(messages.Drivers(drivers=(report,)))
        await asyncio.sleep(1)

        assert given_up_first != any(one.seats for one in known.values())
        assert {} == scene.resources.taskmanagers
        assert {} == scene.resources._ledger.workplaces

    run_virtual(main())


def warm(driver: str, application: str, slot: int = 1) -> messages.DriverReport:
    """Return the report of a warm driver."""
    purpose = Tenant(application).purpose
    return messages.DriverReport(
        driver=Incarnation(driver),
        slot=slot,
        state="warm",
        application_id=application,
        profile=purpose.profile,
    )


async def heard(link: LocalLink[LinkMessage]) -> list[LinkMessage]:
    """Return what a TaskManager has been told so far."""
    found = []
    with contextlib.suppress(TimeoutError):
        while True:
            envelope = await asyncio.wait_for(link.receive(), 0.01)
            if envelope is None:
                break
            found.append(envelope.message)
    return found


def keeps(told: list[LinkMessage]) -> list[list[str]]:
    """Return which drivers a TaskManager was told to have, each time."""
    return [
        [one.applications[position].application_id for position in one.wanted]
        for one in told
        if isinstance(one, messages.KeepDrivers)
    ]


def test_each_job_gets_a_driver_of_its_own_application_and_the_drivers_follow_the_jobs() -> None:
    async def main() -> None:
        scene, other = Scene(), Tenant("other", ("2",))
        scene.serve(other)
        link = await scene.call()
        link.send(messages.Drivers(drivers=(warm("a", "application"),)))
        await asyncio.sleep(0.01)
        began = scene.resources.request(ApplicationId("other"), JobId("2"))
        waits = scene.resources.why_waiting(JobId("2"), None)
        link.send(messages.Drivers(drivers=(warm("b", "other"),)))
        told = keeps(await heard(link))

        assert (False, "waits for a slot: its driver is starting") == (began, waits)
        assert [["other"], ["application"], ["other"]] == told
        assert ([], ["2"]) == (scene.tenant.offered, other.offered)

    run_virtual(main())


def test_a_taskmanager_that_drains_gets_no_more_jobs_and_is_not_missed_once_it_has_left() -> None:
    """A job that wants a slot waits for another TaskManager, as if this one were not there."""

    async def main() -> None:
        scene = Scene()
        scene.serve()
        link, other = await scene.call(), await scene.call(TWO)
        link.send(messages.Draining())
        link.send(messages.Drivers(drivers=(warm("a", "application"),)))
        await asyncio.sleep(0.01)
        began = scene.resources.request(ApplicationId("application"), JobId("1"))
        assert (False, 1) == (began, scene.resources.slots())
        assert [] == keeps(await heard(link))[-1], "its idle drivers have no purpose any more"

        other.send(messages.Drivers(drivers=(warm("b", "application"),)))
        await asyncio.sleep(0.01)
        assert ["1"] == scene.tenant.offered

        link.send(messages.Leaving())
        assert [] == await rest(link)
        assert [TWO] == [*scene.resources.taskmanagers]
        assert [ONE] == [taskmanager for taskmanager, _ in scene.tenant.lost]

    run_virtual(main())


async def rest(link: LocalLink[LinkMessage]) -> list[LinkMessage]:
    """Return what is still said, up to the end of the link."""
    found = []
    async with asyncio.timeout(1.0):
        while (envelope := await link.receive()) is not None:
            found.append(envelope.message)
    return found


def test_a_waiting_job_shows_its_place_in_the_queue() -> None:
    async def main() -> None:
        scene, other = Scene(), Tenant("other", ("2",))
        scene.tenant.jobs = ("1", "3", "4")
        scene.serve(other)
        link = await scene.call()
        link.send(messages.Drivers(drivers=(warm("a", "application"),)))
        await asyncio.sleep(0.01)
        for job_id in ("1", "3", "4"):
            scene.resources.request(ApplicationId("application"), JobId(job_id))
        scene.resources.request(ApplicationId("other"), JobId("2"))
        shown = [scene.resources.why_waiting(JobId(one), None) for one in "1234"]

        assert [
            "",
            "waits for a slot: 1 of 1 run other jobs (place 1 of 3)",
            "waits for a slot: 1 of 1 run other jobs (place 2 of 3)",
            "waits for a slot: 1 of 1 run other jobs (place 3 of 3)",
        ] == shown

    run_virtual(main())


def attempt(job_id: str, application: str) -> messages.AttemptReport:
    """Return the report of a running attempt."""
    return messages.AttemptReport(
        job_id=JobId(job_id),
        attempt=1,
        driver=Incarnation(f"driver of {job_id}"),
        ran_s=1.0,
        application_id=ApplicationId(application),
    )


def test_attempts_are_judged_by_their_own_application_and_those_of_none_are_stopped() -> None:
    async def main() -> None:
        scene, other = Scene(), Tenant("other", ("2",))
        scene.serve(other)
        scene.resources.park(ApplicationId("damaged"))
        of_all = [("1", "application"), ("2", "other"), ("3", "damaged"), ("4", "ended")]
        link = await scene.call(ONE, *(attempt(*one) for one in of_all))
        stops = [one.job_id for one in await heard(link) if isinstance(one, messages.StopAttempt)]

        assert (["1"], ["2"], ["4"]) == (scene.tenant.reported, other.reported, stops)

    run_virtual(main())


def test_what_ends_while_its_application_is_parked_is_kept_until_it_is_served_again() -> None:
    async def main() -> None:
        scene = Scene()
        scene.serve()
        scene.resources.park(ApplicationId("application"))
        link = await scene.call()
        link.send(ended())
        told = await heard(link)
        scene.resources.serve(scene.tenant)

        assert not [one for one in told if isinstance(one, messages.Forget)]
        assert await link.receive() is None, "it is to register again"

        again = await scene.call()
        again.send(ended())
        await heard(again)
        assert [ended()] == scene.tenant.heard

    run_virtual(main())


def test_what_is_left_of_an_application_that_has_gone_is_no_longer_asked_for() -> None:
    async def main() -> None:
        scene, other = Scene(), Tenant("other", ("2",))
        scene.serve(other)
        link = await scene.call()
        link.send(messages.Drivers(drivers=(warm("a", "application"),)))
        await asyncio.sleep(0.01)
        scene.resources.request(ApplicationId("application"), JobId("1"))
        scene.resources.request(ApplicationId("other"), JobId("2"))
        await heard(link)
        scene.resources.leave(ApplicationId("application"))

        assert [["other"]] == keeps(await heard(link))
        assert (JobId("2"),) == scene.resources.waiting()

    run_virtual(main())


def test_an_application_whose_drivers_cannot_start_is_told_and_no_other() -> None:
    async def main() -> None:
        scene, other = Scene(), Tenant("other", ("2",))
        scene.serve(other)
        link = await scene.call()
        link.send(messages.CannotStart(application_id=ApplicationId("other"), reason="no Java"))
        await asyncio.sleep(0.01)

        assert ([], [ONE]) == (scene.tenant.unable, other.unable)

    run_virtual(main())
