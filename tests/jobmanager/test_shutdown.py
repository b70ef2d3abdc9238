"""A request shuts the cluster down: its processes end, and later ones do not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ha import ground
from tests.jobmanager.test_late_leader import dispatcher
from tests.support.faulty_register import Durable, Faults
from tests.support.virtual_time import run_virtual
from understudy.errors import LeadershipLost
from understudy.ha.registry import Shutdown
from understudy.jobmanager.job_manager import JobManager
from understudy.model import RegistryBody
from understudy.process.reporter import Silent


def registry(mark: str) -> RegistryBody:
    return RegistryBody(cluster_id="flights", incarnation="one", shutdown=mark)


@pytest.mark.parametrize(
    ("seen", "ends"),
    [
        ((None, registry("")), False),
        ((None, registry("first")), True),
        ((registry(""), registry("first")), True),
        ((registry("first"), registry("first")), False),
        ((registry("first"), registry("second")), True),
        ((registry("first"), registry("")), False),  # The cluster was destroyed and made again.
        ((registry("first"), None), False),
    ],
)
def test_a_process_heeds_what_was_asked_after_its_start(
    seen: tuple[RegistryBody | None, ...], ends: bool
) -> None:
    shutdown = Shutdown()

    assert ends == [shutdown.look(one) for one in seen][-1]


def test_a_standby_that_is_granted_a_term_after_it_does_not_lead() -> None:
    async def main() -> None:
        durable = Durable()
        await ground.submitted(ground.services(durable))
        stores = ground.services(durable)
        standby = dispatcher(stores, 2, None)
        standby._binding.shutdown.look(await stores.registry.read())
        await stores.registry.shut_down(1)

        async def publish() -> None:
            raise AssertionError("it must not serve")

        with pytest.raises(LeadershipLost, match="shut the cluster down"):
            await standby.run(publish)
        after = await stores.registry.read()

        assert standby._binding.shutdown.asked.is_set()
        assert after is not None
        assert [ground.RUN] == [link.run_id for link in after.applications.values()]

    run_virtual(main())


def test_a_mark_with_an_unknown_outcome_is_written_again_until_it_is_known() -> None:
    async def main() -> None:
        durable = Durable()
        await ground.submitted(ground.services(durable))
        away = True
        faults = Faults(lasting=lambda call: call.writes and away)
        leader = dispatcher(ground.services(durable, faults), 1, None)
        marking = asyncio.ensure_future(leader.shut_down())
        await asyncio.sleep(60)
        waits = not marking.done()
        away = False
        async with asyncio.timeout(60):
            await marking
        after = await ground.services(durable).registry.read()

        assert waits
        assert after is not None
        assert after.shutdown

    run_virtual(main())


def test_a_jobmanager_closes_its_term_as_for_a_signal() -> None:
    async def main() -> None:
        closed: list[str] = []

        async def contend() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                closed.append("released")

        process: Any = SimpleNamespace(
            shutdown=Shutdown(),
            _until_ended=contend,
            me=SimpleNamespace(name="jm-1"),
            around=SimpleNamespace(reporter=Silent()),
        )
        running = asyncio.ensure_future(JobManager._until_ended_or_shut_down(process))
        await asyncio.sleep(1)
        process.shutdown.asked.set()
        async with asyncio.timeout(1):
            await running

        assert ["released"] == closed

    run_virtual(main())
