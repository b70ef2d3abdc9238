"""TaskManager: which leader it serves, and whom it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory_storage import MemoryStorage
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.errors import UnreachableError
from understudy.model import (
    ApplicationId,
    Checkpoint,
    CheckpointKind,
    Incarnation,
    JobId,
    JobStatus,
    LeaderRecord,
    Pointer,
    RegistryBody,
    RunId,
    Term,
)
from understudy.process.reporter import Silent
from understudy.process.worker import GuardianLink
from understudy.rpc import messages
from understudy.rpc.local import LocalLink, link_pair
from understudy.rpc.messages import LinkMessage
from understudy.taskmanager.driver_pool import PoolSettings
from understudy.taskmanager.task_manager import (
    LEAVE_S,
    LOOK_AGAIN_S,
    Identity,
    TaskManager,
    TaskManagerContext,
    TaskManagerSettings,
)

ME = Incarnation("taskmanager")
ORPHAN_S, HEARTBEAT_S = 30.0, 5.0
MOMENT_S = 2.0
"""Long enough for a TaskManager to try again."""


class Calls:
    """The network as a TaskManager sees it: whom it has called, and what was said."""

    def __init__(self) -> None:
        self.links: list[tuple[str, LocalLink[LinkMessage]]] = []
        self.unreachable: set[str] = set()
        self.tried: list[str] = []

    def address_of(self, incarnation: Incarnation) -> str:
        """See `Network.address_of`."""
        return str(incarnation)

    async def connect(self, address: str, sender: Incarnation) -> LocalLink[LinkMessage]:
        """See `Network.connect`."""
        self.tried.append(address)
        if address in self.unreachable:
            raise UnreachableError(f"{address}: nobody listens")
        ends: tuple[LocalLink[LinkMessage], LocalLink[LinkMessage]] = link_pair(
            sender, Incarnation(address)
        )
        self.links.append((address, ends[1]))
        return ends[0]

    def listen(self, incarnation: Incarnation, serve: Any) -> Any:
        """Nobody calls a TaskManager."""
        raise NotImplementedError

    @property
    def called(self) -> list[str]:
        """Return whom it has reached, in order."""
        return [address for address, _ in self.links]


class Scene:
    """One TaskManager, and the leaders that it is told of."""

    def __init__(self) -> None:
        self.network = Calls()
        self._leaders: asyncio.Queue[LeaderRecord | None] = asyncio.Queue()
        self.registry: RegistryBody | OSError | None = None
        nobody: Any = None  # No driver is started: nobody asks for one.
        pool = PoolSettings("session-less", 1, 0, 30.0, 180.0, 5.0, "", Path("/scratch"))
        self.manager = TaskManager(
            Identity(ME, "taskmanager", 0, 0, "here", ""),
            TaskManagerSettings(pool, "flights", ORPHAN_S, HEARTBEAT_S),
            TaskManagerContext(
                nobody,
                self.network,
                MemoryStorage(),
                virtual_clock(),
                GuardianLink(None),
                Silent(),
                self._told,
                registry=self._read,
            ),
        )
        self.task = asyncio.ensure_future(self.manager.run())

    async def _told(self) -> AsyncIterator[LeaderRecord | None]:
        while True:
            yield await self._leaders.get()

    async def _read(self) -> RegistryBody | None:
        if isinstance(self.registry, OSError):
            raise self.registry
        return self.registry

    async def leader(self, term: Term, address: str = "") -> None:
        """Let this one lead; term 0: nobody."""
        record = LeaderRecord(
            holder=Incarnation(f"jm-{term}"),
            term=term,
            session="",
            rpc=address or f"leader-{term}",
        )
        self._leaders.put_nowait(record if term else None)
        await asyncio.sleep(MOMENT_S)

    async def welcome(self, term: Term) -> LocalLink[LinkMessage]:
        """Let whoever was called last take it in; return the leader's end."""
        link = self.network.links[-1][1]
        registration = await link.receive()
        assert registration is not None
        assert isinstance(registration.message, messages.RegisterTaskManager)
        link.send(messages.Welcome(), term)
        await asyncio.sleep(0.01)
        return link

    async def end(self) -> None:
        """End it."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def said(link: LocalLink[LinkMessage]) -> LinkMessage:
    """Return the next message, while the link lasts."""
    envelope = await link.receive()
    assert envelope is not None
    return envelope.message


async def rest(link: LocalLink[LinkMessage]) -> list[str]:
    """Return the kinds of what was still said, up to the end of the link."""
    kinds = []
    async with asyncio.timeout(MOMENT_S):
        while (envelope := await link.receive()) is not None:
            kinds.append(type(envelope.message).__name__)
    return kinds


def test_it_leaves_a_leader_for_the_next_one_and_registers_there() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.leader(1)
        first = await scene.welcome(1)
        await scene.leader(2)
        second = await scene.welcome(2)

        assert ["leader-1", "leader-2"] == scene.network.called
        assert "Register" not in await rest(first), "its link has ended"

        second.send(messages.HeartbeatAnswer(number=1), 2)
        await asyncio.sleep(MOMENT_S)

        assert 2 == len(scene.network.called)
        await scene.end()

    run_virtual(main())


def test_it_does_not_call_a_leader_again_that_is_named_no_longer() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.leader(1)
        link = await scene.welcome(1)
        await scene.leader(0)
        link.close()
        await asyncio.sleep(10 * MOMENT_S)

        assert ["leader-1"] == scene.network.called
        await scene.end()

    run_virtual(main())


def test_a_leader_that_cannot_be_found_but_talked_to_is_kept() -> None:
    """The register may be out of this host's reach only."""

    async def main() -> None:
        scene = Scene()
        await scene.leader(1)
        link = await scene.welcome(1)
        await scene.leader(0)
        unfound = [type(await said(link)).__name__ for _ in range(3)]
        await scene.leader(1)
        found = [type(await said(link)).__name__ for _ in range(3)]

        assert "Heartbeat" in unfound
        assert "Register" not in unfound + found
        assert ["leader-1"] == scene.network.called
        await scene.end()

    run_virtual(main())


def test_a_leader_that_was_lost_while_nobody_could_be_found_is_called_once_it_is() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.leader(1)
        link = await scene.welcome(1)
        await scene.leader(0)
        link.close()
        await asyncio.sleep(MOMENT_S)
        await scene.leader(1)
        await scene.welcome(1)

        assert ["leader-1", "leader-1"] == scene.network.called
        await scene.end()

    run_virtual(main())


def test_it_calls_again_a_leader_that_ended_the_link_and_still_leads() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.leader(1)
        link = await scene.welcome(1)
        link.close()
        await asyncio.sleep(MOMENT_S)
        await scene.welcome(1)

        assert ["leader-1", "leader-1"] == scene.network.called
        await scene.end()

    run_virtual(main())


def test_it_tries_an_address_again_until_somebody_listens_there() -> None:
    async def main() -> None:
        scene = Scene()
        scene.network.unreachable.add("leader-1")
        await scene.leader(1)
        tried = len(scene.network.tried)
        scene.network.unreachable.clear()
        await asyncio.sleep(MOMENT_S)
        await scene.welcome(1)

        assert tried > 1
        assert ["leader-1"] == scene.network.called
        await scene.end()

    run_virtual(main())


def test_a_new_leader_at_the_address_of_the_last_one_is_registered_with() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.leader(1, "always here")
        await scene.welcome(1)
        await scene.leader(2, "always here")
        await scene.welcome(2)

        assert ["always here"] * 2 == scene.network.called
        await scene.end()

    run_virtual(main())


def test_a_leader_of_an_older_term_is_not_called() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.leader(5)
        await scene.welcome(5)
        await scene.leader(4)
        await asyncio.sleep(10 * MOMENT_S)

        assert ["leader-5"] == scene.network.called
        await scene.end()

    run_virtual(main())


def test_what_is_said_under_an_older_term_ends_the_link_and_is_not_obeyed() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.leader(5)
        link = await scene.welcome(5)
        link.send(messages.StopAttempt(job_id=JobId("1"), attempt=1), 4)
        left = await rest(link)

        assert "AttemptLost" not in left, "the answer to StopAttempt"
        assert scene.manager._outbox.term == 5
        await scene.end()

    run_virtual(main())


def test_what_is_said_under_the_leaders_term_is_answered() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.leader(5)
        link = await scene.welcome(5)
        link.send(messages.StopAttempt(job_id=JobId("1"), attempt=1), 5)
        async with asyncio.timeout(MOMENT_S):
            while not isinstance(await said(link), messages.AttemptLost):
                continue

        assert ["leader-5"] == scene.network.called
        await scene.end()

    run_virtual(main())


def test_leaders_that_come_and_go_in_a_row_leave_it_with_the_last() -> None:
    async def main() -> None:
        scene = Scene()
        for term in range(1, 30):
            record = LeaderRecord(
                holder=Incarnation(f"jm-{term}"), term=term, session="", rpc=f"leader-{term}"
            )
            scene._leaders.put_nowait(record)
            if term % 3 == 0:
                scene._leaders.put_nowait(None)
            if term % 5 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(MOMENT_S)
        await scene.welcome(29)

        assert "leader-29" == scene.network.called[-1]
        await scene.end()

    run_virtual(main())


def test_checkpoints_are_told_to_each_new_leader_until_one_has_answered() -> None:
    def taken(sequence: int) -> messages.CheckpointsTaken:
        one = Checkpoint(kind=CheckpointKind.STATE, name="", attempt=1, location=f"{sequence}")
        return messages.CheckpointsTaken(
            job_id=JobId("job"), attempt=1, sequence=sequence, checkpoints=(one,)
        )

    async def heard(link: LocalLink[LinkMessage], count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            if isinstance(message := await said(link), messages.CheckpointsTaken):
                found.append(message.sequence)
        return found

    async def main() -> None:
        scene = Scene()
        await scene.leader(1)
        first = await scene.welcome(1)
        for sequence in (1, 2, 3):
            scene.manager._outbox.send(taken(sequence))
        assert [1, 2, 3] == await heard(first, 3)
        done = messages.CheckpointsRecorded(job_id=JobId("job"), attempt=1, sequence=1)
        refused = messages.CheckpointsRefused(
            job_id=JobId("job"), attempt=1, sequence=3, reason="no room"
        )
        first.send(done, 1)
        first.send(refused, 1)
        await asyncio.sleep(0.01)
        await scene.leader(2)
        second = await scene.welcome(2)
        scene.manager._outbox.send(taken(4))

        assert [2, 4] == await heard(second, 2)
        second.send(messages.Forget(job_id=JobId("job"), attempt=1), 2)
        await asyncio.sleep(0.01)
        await scene.leader(3)
        third = await scene.welcome(3)
        await scene.end()

        assert "CheckpointsTaken" not in await rest(third)

    run_virtual(main())


def shut_down_by(mark: str) -> RegistryBody:
    return RegistryBody(cluster_id="flights", incarnation="one", shutdown=mark)


@pytest.mark.parametrize("lost", ["link", "leader"])
def test_it_ends_where_a_request_has_shut_the_cluster_down(lost: str) -> None:
    async def main() -> None:
        scene = Scene()
        scene.registry = shut_down_by("before it was started again")
        await scene.leader(1)
        link = await scene.welcome(1)
        scene.registry = OSError("the register does not answer just now")
        if lost == "link":
            link.close()
        else:
            await scene.leader(0)
        await asyncio.sleep(MOMENT_S)
        before = scene.task.done()
        scene.registry = shut_down_by("now")
        async with asyncio.timeout(2 * LOOK_AGAIN_S):
            await scene.task

        assert not before

    run_virtual(main())


def test_it_stays_in_a_cluster_that_was_shut_down_before_its_start() -> None:
    async def main() -> None:
        scene = Scene()
        scene.registry = shut_down_by("before")
        await scene.leader(1)
        (await scene.welcome(1)).close()
        await scene.leader(0)
        await scene.leader(2)
        stays = not scene.task.done()
        await scene.end()

        assert stays

    run_virtual(main())


def test_one_that_is_asked_to_end_takes_no_more_work_and_its_leave_once_the_leader_knows() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.leader(1)
        link = await scene.welcome(1)
        draining = asyncio.ensure_future(scene.manager.drain(5.0))
        kinds = [type(await said(link)).__name__ for _ in range(4)]
        assert ["Draining", "Leaving"] == [kind for kind in kinds if kind not in USUAL]
        link.send(deploy(), 1)
        refused = await said(link)
        assert isinstance(refused, messages.AttemptLost)
        assert (True, "its TaskManager is asked to end") == (refused.handed_over, refused.reason)
        assert not draining.done()

        link.close()
        async with asyncio.timeout(MOMENT_S):
            await draining
        assert not scene.task.done(), "who has asked for the drain ends it"
        await scene.end()

    run_virtual(main())


def test_a_leader_that_it_finds_while_it_drains_learns_that_it_offers_no_slots() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.leader(1)
        (await scene.welcome(1)).close()
        await scene.manager.drain(5.0)
        await scene.leader(2)
        _, link = scene.network.links[-1]
        registration = await said(link)
        assert isinstance(registration, messages.RegisterTaskManager)
        assert (0, 0) == (registration.slots, registration.spares)
        await scene.end()

    run_virtual(main())


def test_a_drain_while_nobody_leads_ends_in_time_and_the_next_leader_is_told_of_each_end() -> None:
    ended = messages.AttemptEnded(
        job_id=JobId("j"),
        attempt=1,
        status=JobStatus.FINISHED,
        retryable=False,
        source=Pointer(path="staged", digest="", size=0),
        ran_s=1.0,
        start_time=0.0,
        end_time=1.0,
        reaped=True,
    )

    async def main() -> None:
        scene = Scene()
        await scene.leader(1)
        (await scene.welcome(1)).close()
        await scene.leader(0)
        scene.manager._outbox.send(ended)
        async with asyncio.timeout(5.0 + LEAVE_S + MOMENT_S):
            await scene.manager.drain(5.0)

        await scene.leader(2)
        link = await scene.welcome(2)
        assert ended in [await said(link) for _ in range(4)]
        await scene.end()

    run_virtual(main())


USUAL = ("Drivers", "Heartbeat")


def deploy() -> messages.Deploy:
    """Return an order that was sent before the leader knew of the drain."""
    pointer = Pointer(path="", digest="", size=0)
    return messages.Deploy(
        application_id=ApplicationId("a"),
        run_id=RunId("r"),
        job_id=JobId("j"),
        name="load",
        attempt=1,
        driver=Incarnation("d"),
        plan=pointer,
        staged="",
        writer="",
        result_size_max=1,
    )
