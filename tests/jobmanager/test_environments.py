"""Applications with a Python of their own: what its build does to them, and not to others."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from tests.ha import ground
from tests.jobmanager.test_dispatcher import STAYS, Grant, binding
from tests.jobmanager.test_many_applications import led, of
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual
from understudy.errors import EnvironmentFailed
from understudy.model import ApplicationId, ApplicationStatus, RunId, SessionProfile
from understudy.process.environments import LaidOut, OneInterpreter

PACKED = {"spark.archives": "/env.tar.gz#env", "spark.pyspark.python": "./env/bin/python"}


class Builds(OneInterpreter):
    """Builds in vain, or for ever."""

    def __init__(self, failure: str = "") -> None:
        self._failure = failure
        self.building: set[ApplicationId] = set()
        self.left: list[ApplicationId] = []

    async def python_for(self, user: ApplicationId, laid_out: LaidOut) -> str:
        """See `Interpreters.python_for`."""
        if not laid_out.conf:
            return await super().python_for(user, laid_out)
        if self._failure:
            raise EnvironmentFailed(self._failure)
        self.building.add(user)
        try:
            await asyncio.Future()
        finally:
            self.building.remove(user)
        raise AssertionError("unreachable")

    async def leave(self, user: ApplicationId) -> None:
        """See `Interpreters.leave`."""
        self.left.append(user)


async def stored(durable: Durable, **confs: dict[str, str]) -> None:
    """Leave applications that an earlier leader has stored, with these settings of Spark."""
    stores = ground.services(durable)
    await stores.registry.claim(1, ephemeral=False)
    for run, conf in confs.items():
        record = replace(ground.record(RunId(run), of(run)), profile=SessionProfile(conf=conf))
        await stores.applications.put(1, record, stores.applications.new_directory())


def test_builds_hold_up_no_main_of_others_and_end_with_their_application() -> None:
    """More are built than processes of main may start at once."""

    async def main() -> None:
        durable = Durable()
        await stored(durable, one=PACKED, two=PACKED, three=PACKED, four={})
        builds = Builds()
        grant = Grant(durable, 2, binding(), STAYS, interpreters=builds)
        leading = await led(grant)
        async with asyncio.timeout(10):
            await grant.mains.asked.acquire()
        assert {of("one"), of("two"), of("three")} == builds.building

        linked = grant.dispatcher.applications[of("one")]
        assert linked.application is not None
        await linked.application.cancel()
        await asyncio.sleep(1)
        assert {of("two"), of("three")} == builds.building
        assert [of("one")] == builds.left
        assert of("one") not in grant.dispatcher.applications
        leading.cancel()

    run_virtual(main())


def test_an_application_fails_where_its_python_cannot_be_built_and_the_leader_goes_on() -> None:
    async def main() -> None:
        durable = Durable()
        await stored(durable, one=PACKED, four={})
        builds = Builds("there is no cherry==9.0")
        grant = Grant(durable, 2, binding(), STAYS, interpreters=builds)
        leading = await led(grant)
        await asyncio.sleep(10)
        registry = await ground.services(durable).registry.read()

        assert registry is not None
        assert ApplicationStatus.FAILED is registry.tombstones[RunId("one")].status
        assert [of("four")] == list(grant.dispatcher.applications)
        assert [of("one")] == builds.left
        assert not leading.done()
        leading.cancel()

    run_virtual(main())
