"""ResourceManager: whom it takes in, under which term, and when it gives somebody up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.core.recovery import Inventory
from understudy.jobmanager.resource_manager import JobInbox, ResourceManager
from understudy.model import Incarnation, JobId, JobStatus, Pointer
from understudy.process.liveness_lock import DeathNote, Locks
from understudy.rpc import messages
from understudy.rpc.local import LocalLink, link_pair
from understudy.rpc.messages import LinkMessage

TERM, GRACE_S = 7, 40.0
ONE = Incarnation("taskmanager-1")


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


@dataclass
class Tenant:
    """Hears what becomes of TaskManagers; see `resource_manager.Tenant`."""

    lost: list[tuple[Incarnation, str]] = field(default_factory=list)
    taken_in: list[Incarnation] = field(default_factory=list)
    settled: bool = False
    """What is said of every end."""

    @property
    def inboxes(self) -> dict[JobId, JobInbox]:
        """See `Tenant.inboxes`."""
        return {}

    def is_settled(self, message: messages.AttemptEnded) -> bool:
        """See `Tenant.is_settled`."""
        return self.settled

    def registered(self, taskmanager: Incarnation, reported: tuple[Inventory, ...]) -> None:
        """See `Tenant.registered`."""
        self.taken_in.append(taskmanager)

    def cannot_start(self, taskmanager: Incarnation, reason: str) -> None:
        """See `Tenant.cannot_start`."""

    def taskmanager_lost(self, taskmanager: Incarnation, reason: str) -> None:
        """See `Tenant.taskmanager_lost`."""
        self.lost.append((taskmanager, reason))

    def wanted(self) -> messages.Prepare | None:
        """See `Tenant.wanted`."""
        return None


class Scene:
    """A ResourceManager, its tenant, and the TaskManagers that call."""

    def __init__(self) -> None:
        self.graves, self.tenant = Graves(), Tenant()
        self._serving: list[asyncio.Task[None]] = []
        self.resources = ResourceManager(
            TERM, GRACE_S, cast("Locks", self.graves), virtual_clock(), lambda: None
        )

    async def call(self, sender: Incarnation = ONE) -> LocalLink[LinkMessage]:
        """Let a TaskManager register; return its end of the link."""
        ends: tuple[LocalLink[LinkMessage], LocalLink[LinkMessage]] = link_pair(
            sender, Incarnation("leader")
        )
        mine, theirs = ends
        self._serving.append(asyncio.ensure_future(self._serve(theirs, sender)))
        await asyncio.sleep(0.01)
        return mine

    async def _serve(self, link: LocalLink[LinkMessage], sender: Incarnation) -> None:
        try:
            await self.resources.converse(link, sender, registration())
        finally:
            link.close()


def registration() -> messages.RegisterTaskManager:
    """Return what an idle TaskManager says of itself."""
    return messages.RegisterTaskManager(
        name="taskmanager-1",
        pid=1,
        guardian_pid=2,
        host="here",
        lock="",
        slots=1,
        spares=0,
        drivers=(),
        attempts=(),
    )


def test_a_taskmanager_is_welcomed_under_the_leaders_term() -> None:
    async def main() -> None:
        scene = Scene()
        scene.resources.serve(scene.tenant)
        envelope = await (await scene.call()).receive()

        assert envelope is not None
        assert (TERM, messages.Welcome()) == (envelope.term, envelope.message)
        assert [ONE] == scene.tenant.taken_in

    run_virtual(main())


def test_nobody_is_taken_in_before_the_leader_has_recovered() -> None:
    async def main() -> None:
        scene = Scene()
        early = await scene.call()

        assert await early.receive() is None
        assert {} == scene.resources.taskmanagers

        scene.resources.serve(scene.tenant)
        again = await (await scene.call()).receive()

        assert again is not None
        assert [ONE] == list(scene.resources.taskmanagers)

    run_virtual(main())


def test_a_taskmanager_that_registers_again_has_one_link_and_is_not_lost() -> None:
    async def main() -> None:
        scene = Scene()
        scene.resources.serve(scene.tenant)
        first = await scene.call()
        second = await scene.call()
        heard = [await first.receive(), await first.receive()]
        await second.receive()
        sent = scene.resources.send(ONE, messages.StopAttempt(job_id=JobId("1"), attempt=1))
        envelope = await second.receive()

        assert heard[1] is None, "the first is closed"
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
        scene.resources.serve(scene.tenant)
        link = await scene.call()
        link.send(ended())
        await asyncio.sleep(0.01)
        link.send(messages.Heartbeat(number=1))
        told = [await link.receive() for _ in range(3 if settled else 2)]
        kinds = [type(envelope.message) for envelope in told if envelope]
        last = [messages.HeartbeatAnswer]

        assert [messages.Welcome, *([messages.Forget] if settled else []), *last] == kinds

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
        scene.resources.serve(scene.tenant)
        (await scene.call()).close()
        await asyncio.sleep(GRACE_S / 2)

        assert not scene.resources.send(ONE, messages.Welcome())
        assert [] == scene.tenant.lost

    run_virtual(main())


def test_a_taskmanager_that_is_proved_dead_is_given_up_at_once_and_only_once() -> None:
    async def main() -> None:
        scene = Scene()
        scene.resources.serve(scene.tenant)
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
        scene.resources.serve(scene.tenant)
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
        scene.resources.serve(scene.tenant)
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
        scene.resources.serve(scene.tenant)
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
        scene.resources.serve(scene.tenant)
        links = [await scene.call(Incarnation(f"taskmanager-{number}")) for number in (1, 2)]
        scene.resources.close()
        heard = [[await link.receive(), await link.receive()] for link in links]
        scene.graves.bury(ONE)
        await asyncio.sleep(2 * GRACE_S)

        assert [None, None] == [each[1] for each in heard]
        assert [] == scene.tenant.lost

    run_virtual(main())


@pytest.mark.parametrize("given_up_first", [True, False])
def test_of_one_that_was_given_up_no_driver_is_offered_any_more(*, given_up_first: bool) -> None:
    """What it had sent before may be heard after its death is proved."""
    report = messages.DriverReport(driver=Incarnation("driver"), slot=1, state="warm")

    async def main() -> None:
        scene = Scene()
        scene.resources.serve(scene.tenant)
        link = await scene.call()
        if not given_up_first:
            link.send(messages.Drivers(drivers=(report,)))
            await asyncio.sleep(0.01)
        offered = dict(scene.resources._ledger.warm)
        scene.resources._lose(ONE, "its TaskManager died")
        link.send(messages.Drivers(drivers=(report,)))
        await asyncio.sleep(1)

        assert given_up_first != any(offered.values())
        assert {} == scene.resources.taskmanagers
        assert {} == scene.resources._ledger.warm

    run_virtual(main())
