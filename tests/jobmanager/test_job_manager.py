"""What ends a term, and when a JobManager without an application contends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ha import ground
from tests.support.faulty_register import Durable
from understudy.ha.register import Notice
from understudy.ha.registry import REGISTRY_KEY
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager import job_manager
from understudy.jobmanager.dispatcher import Binding
from understudy.jobmanager.job_manager import JobManager, until_there_is_a_run
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.model import ApplicationId, ApplicationStatus, Pointer, RunId, Tombstone

PATIENCE_S = 30.0


class Endless:
    """A `Dispatcher` that always has something to do."""

    def __init__(self, *_: object) -> None:
        pass

    async def run(self, publish: object) -> None:
        """Lead for ever."""
        await asyncio.Event().wait()


def test_a_term_in_which_nobody_gives_up_the_silent_any_more_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(resources: ResourceManager) -> None:
        raise RuntimeError("can't start new thread")

    announced: list[Notice] = []

    async def main() -> None:
        services = SimpleNamespace(announce=announced.append)
        leader: Any = SimpleNamespace(
            _adoption_grace_s=1.0,
            _changed=asyncio.Event(),
            _binding=None,
            around=SimpleNamespace(locks=None, clock=None, services=services, workers=None),
            me=SimpleNamespace(name="jm-1"),
            standbys={},
        )
        leadership: Any = SimpleNamespace(term=1, reason="first", end="")
        async with asyncio.timeout(PATIENCE_S):
            await JobManager._lead(leader, leadership)

    monkeypatch.setattr(job_manager, "Dispatcher", Endless)
    monkeypatch.setattr(ResourceManager, "give_up_the_silent", fail)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        asyncio.run(main())

    assert ["LeaderElected", "LeadershipLost"] == [one.reason for one in announced]
    assert announced[-1].message.endswith("can't start new thread")


TURNS = 50
"""Enough for all that is in memory to happen."""


def binding(wanted: str | None = None, known: tuple[str, ...] = ()) -> Binding:
    """Return what a process was started for."""
    known_runs = frozenset(map(RunId, known))
    return Binding(RunId(wanted) if wanted else None, False, None, known_at_start=known_runs)


async def end_run(stores: HighAvailabilityServices) -> None:
    """Put an application, and bury it."""
    stored = await ground.submitted(stores)
    stone = Tombstone(
        application_id=stored.body.application_id,
        run_id=ground.RUN,
        name="flights",
        status=ApplicationStatus.FINISHED,
        started_at=1.0,
        ended_at=2.0,
        file=Pointer(path="", digest="", size=0),
    )
    await stores.registry.bury(1, stored.body.application_id, stone)


async def waits(work: asyncio.Future[None]) -> bool:
    """Say whether it still waits once everything else has had its turn."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return not work.done()


def test_without_an_application_it_waits_for_a_run_that_has_not_ended_before() -> None:
    async def story() -> list[bool]:
        durable = Durable()
        stores = ground.services(durable)
        found = []
        for known in ((), (ground.RUN,)):
            work = asyncio.ensure_future(
                until_there_is_a_run(ground.services(durable), binding(known=known))
            )
            found.append(await waits(work))
            if not known:
                work.cancel()
                await end_run(stores)
        await ground.submitted(stores, term=2)
        await asyncio.wait_for(work, PATIENCE_S)
        return found

    assert [True, True] == asyncio.run(story())


def test_in_a_cluster_that_stays_it_contends_before_there_is_a_run() -> None:
    async def story() -> list[str]:
        contended: list[str] = []
        session = Binding(None, False, None, session=True)
        around = SimpleNamespace(services=ground.services(Durable()))
        process: Any = SimpleNamespace(
            _binding=session, around=around, ended=None, waits_for_run=False, _lead=None
        )

        async def contend(lead: object) -> None:
            contended.append("contends")
            process.ended = "ended"

        process._election = SimpleNamespace(run=contend)
        async with asyncio.timeout(PATIENCE_S):
            await JobManager._until_ended(process)
        return contended

    assert ["contends"] == asyncio.run(story())


def test_a_standby_of_many_runs_keeps_to_the_one_that_it_follows() -> None:
    async def story() -> list[RunId | None]:
        stores = ground.services(Durable())
        await stores.registry.claim(1, ephemeral=False)
        found = []
        process: Any = SimpleNamespace(_binding=binding(), around=SimpleNamespace(services=stores))
        for run in ("monday", "tuesday"):
            record = ground.record(RunId(run), ApplicationId(f"of {run}"))
            await stores.applications.put(1, record, stores.applications.new_directory())
            await JobManager._look_at_registry(process, first=False)
            found.append(process._binding.bound)
        return found

    assert ["monday", "monday"] == asyncio.run(story())


def test_a_run_that_ended_while_it_waited_or_that_it_is_here_for_is_answered() -> None:
    async def story(mine: Binding) -> None:
        durable = Durable()
        work = asyncio.ensure_future(until_there_is_a_run(ground.services(durable), mine))
        await end_run(ground.services(durable))
        await asyncio.wait_for(work, PATIENCE_S)

    asyncio.run(story(binding()))
    asyncio.run(story(binding(wanted=ground.RUN, known=(ground.RUN,))))


def test_a_damaged_registry_is_left_to_whoever_leads() -> None:
    async def story() -> None:
        durable = Durable()
        stores = ground.services(durable)
        await ground.submitted(stores)
        entry = await stores.register.load(REGISTRY_KEY)
        assert entry
        await stores.register.swap(REGISTRY_KEY, b"{", entry.version)
        await asyncio.wait_for(until_there_is_a_run(stores, binding()), PATIENCE_S)

    asyncio.run(story())


def test_a_register_that_does_not_answer_is_asked_again() -> None:
    asked = 0

    async def story() -> None:
        durable = Durable()
        stores = ground.services(durable)
        await ground.submitted(stores)
        sound = stores.register.changes

        async def changes(key: str) -> AsyncIterator[None]:
            nonlocal asked
            asked += 1
            if asked < 3:
                raise OSError("the network is down")
            async for _ in sound(key):
                yield

        stores.register.changes = changes  # type: ignore[method-assign]
        await asyncio.wait_for(until_there_is_a_run(stores, binding()), PATIENCE_S)

    asyncio.run(story())

    assert asked == 3
