"""The first intent of a job is stored together with the job, where a slot is free."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.jobmanager.test_late_leader import context
from tests.jobmanager.test_resource_manager import ONE, Graves, registration, resource_manager
from tests.jobmanager.test_submitted_with import JOB, LIMITS, jobs_in, submit
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual
from understudy.core import job
from understudy.core.drivers import DriverState
from understudy.core.reaching import main_started
from understudy.core.recovery import Inventory
from understudy.errors import LeadershipLost, TooLargeError
from understudy.jobmanager.application_jobs import ApplicationJobs
from understudy.jobmanager.job_requests import JobRequests
from understudy.jobmanager.job_slots import JobSlots
from understudy.model import Incarnation, JobId, StartFrom
from understudy.rpc import messages
from understudy.rpc.local import LocalLink, link_pair
from understudy.rpc.messages import DriverReport, LinkMessage

DRIVER = Incarnation("driver")


class Scene:
    """A leader with one application, a TaskManager with one slot, and what is written and sent."""

    def __init__(self, *, warm: bool = True) -> None:
        self._warm = warm
        self.tasks: list[asyncio.Task[Any]] = []
        self.writes = 0

    async def open(self) -> None:
        """Lead, and let the TaskManager register."""
        stores = ground.services(Durable())
        await ground.opened(stores)
        stored, _ = await ground.taken_over(stores, 2)
        shared = context(stores, stored, 2)
        self.resources = resource_manager(2, Graves())
        self.shared = dataclasses.replace(shared, resources=self.resources)
        await self.shared.plans.claim(2)
        self.jobs: ApplicationJobs = jobs_in(self.shared, self.tasks)
        self.slots = JobSlots(self.jobs)
        self.resources.open()
        self.resources.serve(self.slots)
        ends: tuple[LocalLink[LinkMessage], LocalLink[LinkMessage]] = link_pair(
            ONE, Incarnation("leader")
        )
        self.taskmanager, theirs = ends
        serving = self.resources.converse(theirs, ONE, registration())
        self.tasks.append(asyncio.ensure_future(serving))
        self.taskmanager.send(messages.Drivers(drivers=(self._driver(),)))
        await asyncio.sleep(0.01)
        swap = stores.register.swap

        async def counted(key: str, value: bytes | None, expected: str | None) -> str:
            self.writes += 1
            return await swap(key, value, expected)

        stores.register.swap = counted  # type: ignore[method-assign]

    def _driver(self) -> DriverReport:
        state = DriverState.WARM if self._warm else DriverState.STARTING
        purpose = self.slots.purpose
        return DriverReport(
            driver=DRIVER,
            slot=1,
            state=state.value,
            application_id=purpose.application_id,
            profile=purpose.profile,
            driver_pid=1,
            guardian_pid=2,
        )

    async def deployed(self) -> list[messages.Deploy]:
        """Return the attempts that were sent to the TaskManager so far."""
        await asyncio.sleep(1)
        self.taskmanager.send(messages.Heartbeat(number=1))
        sent: list[messages.Deploy] = []
        while (envelope := await self.taskmanager.receive()) is not None:
            if isinstance(envelope.message, messages.HeartbeatAnswer):
                break
            if isinstance(envelope.message, messages.Deploy):
                sent.append(envelope.message)
        return sent

    async def close(self) -> None:
        """End what is under way."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def in_scene(scene: Scene, steps: Any) -> None:
    """Take the steps in a scene."""

    async def main() -> None:
        await scene.open()
        try:
            await steps(scene)
        finally:
            await scene.close()

    run_virtual(main())


def test_a_job_and_its_first_intent_are_one_write_where_a_slot_is_free() -> None:
    async def steps(scene: Scene) -> None:
        await JobRequests(scene.jobs).submit(submit(LIMITS))
        entry = scene.jobs.entries[JOB]
        first_segment = 2  # Its document, and the application that names it.

        assert entry.intent is not None
        assert (1, 1, DRIVER) == (entry.attempt, entry.intent.attempt, entry.intent.driver)
        assert [(JOB, 1, DRIVER)] == [
            (one.job_id, one.attempt, one.driver) for one in await scene.deployed()
        ]
        assert first_segment + 1 == scene.writes

    in_scene(Scene(), steps)


def test_a_job_without_a_slot_is_stored_before_it_waits() -> None:
    async def steps(scene: Scene) -> None:
        await JobRequests(scene.jobs).submit(submit(LIMITS))

        assert scene.jobs.entries[JOB].intent is None
        assert [] == await scene.deployed()
        assert (JOB,) == scene.resources.waiting()

    in_scene(Scene(warm=False), steps)


def test_a_job_that_is_held_back_takes_no_slot() -> None:
    async def steps(scene: Scene) -> None:
        scene.jobs._reaching = main_started(scene.jobs._reaching, frozenset({JobId("other")}))
        await JobRequests(scene.jobs).submit(submit(LIMITS))

        assert scene.jobs.entries[JOB].intent is None
        assert [] == await scene.deployed()

    in_scene(Scene(), steps)


def test_a_job_that_begins_with_a_savepoint_takes_no_slot_before_that_is_laid_out() -> None:
    async def steps(scene: Scene) -> None:
        start = StartFrom(path="savepoint", digest="", job_name="load")
        scene.jobs._record = replace(scene.jobs._record, savepoints=(start,))
        await JobRequests(scene.jobs).submit(submit(LIMITS))

        assert scene.jobs.entries[JOB].intent is None

    in_scene(Scene(), steps)


@pytest.mark.parametrize(
    "error", [TooLargeError("full"), LeadershipLost("deposed"), asyncio.CancelledError()]
)
def test_a_job_that_cannot_be_stored_gives_its_slot_back(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise error

    async def steps(scene: Scene) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(scene.shared.plans, "add", full)
            with pytest.raises(type(error)):
                await JobRequests(scene.jobs).submit(submit(LIMITS))

        assert scene.resources.take(scene.shared.application_id, JobId("next")) is not None

    in_scene(Scene(), steps)


def test_no_attempt_is_sent_before_its_job_is_stored() -> None:
    async def steps(scene: Scene) -> None:
        add = scene.shared.plans.add
        before: list[messages.Deploy] = []

        async def slowly(term: int, entry: Any) -> None:
            before.extend(await scene.deployed())
            await add(term, entry)

        scene.shared.plans.add = slowly  # type: ignore[method-assign]
        await JobRequests(scene.jobs).submit(submit(LIMITS))

        assert [] == before
        assert [1] == [one.attempt for one in await scene.deployed()]

    in_scene(Scene(), steps)


def test_a_job_whose_application_is_left_while_it_is_stored_keeps_no_slot() -> None:
    async def steps(scene: Scene) -> None:
        async def left(term: int, entry: Any) -> None:
            scene.resources.leave(scene.shared.application_id)
            raise asyncio.CancelledError

        scene.shared.plans.add = left  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await JobRequests(scene.jobs).submit(submit(LIMITS))
        scene.resources.serve(scene.slots)

        assert scene.resources.take(scene.shared.application_id, JobId("next")) is not None

    in_scene(Scene(), steps)


def test_a_taskmanager_that_registers_while_the_job_is_stored_gets_the_attempt_once() -> None:
    async def steps(scene: Scene) -> None:
        add = scene.shared.plans.add

        async def slowly(term: int, entry: Any) -> None:
            await add(term, entry)  # Its answer is lost, and another write has shown the job.
            scene.slots.registered(ONE, ())
            scene.slots.registered(ONE, (Inventory(JobId("foreign"), 1, running=False),))
            await asyncio.sleep(0.1)

        scene.shared.plans.add = slowly  # type: ignore[method-assign]
        await JobRequests(scene.jobs).submit(submit(LIMITS))

        assert [1] == [one.attempt for one in await scene.deployed()]
        assert job.Phase.DEPLOYING is scene.jobs.masters[JOB].state.phase

    in_scene(Scene(), steps)


def test_an_attempt_that_counts_as_lost_before_it_is_sent_is_not_sent() -> None:
    async def steps(scene: Scene) -> None:
        await JobRequests(scene.jobs).submit(submit(LIMITS))
        scene.slots.registered(ONE, ())  # Before the JobMaster has begun.

        assert [] == [one for one in await scene.deployed() if one.attempt == 1]
        assert 1 == scene.jobs.masters[JOB].state.restarts.losses

    in_scene(Scene(), steps)


def test_an_attempt_is_tried_again_if_its_taskmanager_dies_while_the_job_is_stored() -> None:
    async def steps(scene: Scene) -> None:
        add = scene.shared.plans.add

        async def slowly(term: int, entry: Any) -> None:
            scene.resources._locks.bury(ONE)  # type: ignore[attr-defined]
            await asyncio.sleep(1)
            assert {} == scene.resources.taskmanagers
            await add(term, entry)

        scene.shared.plans.add = slowly  # type: ignore[method-assign]
        await JobRequests(scene.jobs).submit(submit(LIMITS))
        await asyncio.sleep(100)

        assert 1 == scene.jobs.masters[JOB].state.restarts.losses
        assert job.Phase.WAITING is scene.jobs.masters[JOB].state.phase

    in_scene(Scene(), steps)
