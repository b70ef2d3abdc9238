"""Workers: TaskManagers that are provided as jobs need them, and what their ends prove."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from tests.jobmanager.test_resource_manager import TERM, Scene, warm
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.core.backoff import Backoff
from understudy.core.workers import (
    PoolLimits,
    SeenWorker,
    WorkerId,
    WorkersListed,
    WorkerState,
    WorkersUnseen,
)
from understudy.jobmanager.workers import Workers
from understudy.model import ApplicationId, Incarnation, JobId
from understudy.rpc import messages
from understudy.rpc.local import LocalLink
from understudy.rpc.messages import LinkMessage

LIMITS = PoolLimits(1, 0, 100, 0, 30.0, 300.0, 40.0, Backoff(3.0))
JOB = JobId("1")
APPLICATION = ApplicationId("application")
FIRST, OLD = WorkerId(f"{TERM}-1"), WorkerId("3-1")


class Pods:
    """A provider in memory; see `WorkerProvider`."""

    def __init__(self) -> None:
        self.seen: dict[WorkerId, SeenWorker] = {}
        self.refusal = ""
        self.requests: list[str] = []
        self._tell: Callable[[WorkersListed | WorkersUnseen], None] = lambda _: None

    async def follow(self, tell: Callable[[WorkersListed | WorkersUnseen], None]) -> None:
        """See `WorkerProvider.follow`."""
        self._tell = tell
        self._tell_all()
        await asyncio.Event().wait()

    async def create(self, worker: WorkerId) -> None:
        """See `WorkerProvider.create`."""
        self.requests.append(f"+{worker}")
        if self.refusal:
            raise PermissionError(self.refusal)
        self.put(worker, WorkerState.COMING)

    async def remove(self, worker: WorkerId) -> None:
        """See `WorkerProvider.remove`."""
        self.requests.append(f"-{worker}")
        if self.refusal:
            raise PermissionError(self.refusal)
        del self.seen[worker]
        self._tell_all()

    def put(self, worker: WorkerId, state: WorkerState, problem: str = "") -> None:
        """Let a worker be in a state."""
        self.seen[worker] = SeenWorker(worker, incarnation(worker), state, problem)
        self._tell_all()

    def fail(self, problem: str) -> None:
        """Let nobody see which workers there are."""
        self._tell(WorkersUnseen(problem))

    def _tell_all(self) -> None:
        self._tell(WorkersListed(tuple(self.seen.values())))


def incarnation(worker: WorkerId) -> Incarnation:
    return Incarnation(f"in {worker}")


@contextlib.asynccontextmanager
async def leading(pods: Pods) -> AsyncIterator[Scene]:
    """Have a leader with one application, whose job wants a slot once it is asked for."""
    scene = Scene(Workers(pods, LIMITS, TERM, virtual_clock()))
    scene.serve()
    providing = asyncio.ensure_future(scene.resources.provide_workers())
    await asyncio.sleep(0.01)
    try:
        yield scene
    finally:
        providing.cancel()


async def registered(scene: Scene, pods: Pods, worker: WorkerId) -> LocalLink[LinkMessage]:
    """Let a worker run, and its TaskManager register with a warm driver."""
    pods.put(worker, WorkerState.RUNNING)
    link = await scene.call(incarnation(worker))
    link.send(messages.Drivers(drivers=(warm("driver", APPLICATION),)))
    await asyncio.sleep(0.01)
    return link


def test_a_job_gets_a_worker_which_goes_when_it_has_been_idle() -> None:
    async def main() -> None:
        pods = Pods()
        async with leading(pods) as scene:
            assert [] == pods.requests
            scene.resources.request(APPLICATION, JOB)
            await asyncio.sleep(0.01)
            assert [f"+{FIRST}"] == pods.requests

            await registered(scene, pods, FIRST)
            assert [JOB] == scene.tenant.offered
            await asyncio.sleep(3600)
            assert [f"+{FIRST}"] == pods.requests

            scene.resources.release(JOB)
            await asyncio.sleep(29)
            assert [f"+{FIRST}"] == pods.requests
            await asyncio.sleep(2)
            assert [f"+{FIRST}", f"-{FIRST}"] == pods.requests

    run_virtual(main())


def test_one_that_goes_gets_no_job_though_it_is_still_there() -> None:
    async def main() -> None:
        pods = Pods()
        async with leading(pods) as scene:
            await registered(scene, pods, OLD)
            pods.put(OLD, WorkerState.ENDING)
            await asyncio.sleep(0.01)
            scene.resources.request(APPLICATION, JOB)
            await asyncio.sleep(0.01)

            assert [] == scene.tenant.offered
            assert [f"+{FIRST}"] == pods.requests, "another one, in its place"

    run_virtual(main())


def test_one_that_is_proved_dead_is_given_up_at_once_also_if_it_is_expected_later() -> None:
    async def main() -> None:
        pods = Pods()
        pods.put(OLD, WorkerState.DEAD)
        async with leading(pods) as scene:
            await registered(scene, pods, FIRST)
            scene.resources.expect(incarnation(OLD))
            pods.put(FIRST, WorkerState.DEAD)
            await asyncio.sleep(0.01)

            lost = [incarnation(OLD), incarnation(FIRST)]
            assert sorted(lost) == sorted(one for one, _ in scene.tenant.lost)

    run_virtual(main())


def test_one_that_has_vanished_is_not_known_dead() -> None:
    async def main() -> None:
        pods = Pods()
        async with leading(pods) as scene:
            await registered(scene, pods, FIRST)
            pods.seen.clear()
            pods.put(WorkerId("3-9"), WorkerState.ENDING)
            await asyncio.sleep(20)

            assert [] == scene.tenant.lost

    run_virtual(main())


def test_a_refusal_is_why_a_job_waits_and_is_tried_again() -> None:
    async def main() -> None:
        pods = Pods()
        pods.refusal = "exceeded quota"
        async with leading(pods) as scene:
            scene.resources.request(APPLICATION, JOB)
            await asyncio.sleep(0.01)
            why = scene.resources.why_waiting(JOB, None)
            assert "waits for a slot: exceeded quota" == why

            pods.refusal = ""
            await asyncio.sleep(3)
            assert [f"+{FIRST}", f"+{TERM}-2"] == pods.requests
            await registered(scene, pods, WorkerId(f"{TERM}-2"))
            assert [JOB] == scene.tenant.offered

    run_virtual(main())


def test_nothing_is_asked_for_while_it_is_not_known_what_is_there() -> None:
    async def main() -> None:
        pods = Pods()
        workers = Workers(pods, LIMITS, TERM, virtual_clock())
        scene = Scene(workers)
        scene.serve()
        scene.resources.request(APPLICATION, JOB)
        pods.seen[WorkerId("3-1")] = SeenWorker(
            WorkerId("3-1"), Incarnation("x"), WorkerState.COMING, "no node has room"
        )
        silent, pods._tell_all = pods._tell_all, lambda: None  # type: ignore[method-assign]
        providing = asyncio.ensure_future(scene.resources.provide_workers())
        await asyncio.sleep(1)
        pods.fail("we may not list pods")
        await asyncio.sleep(1)
        assert [] == pods.requests
        assert "waits for a slot: we may not list pods" == scene.resources.why_waiting(JOB, None)

        silent()
        await asyncio.sleep(1)
        assert [] == pods.requests
        why = "waits for a slot: TaskManager 3-1: no node has room"
        assert why == scene.resources.why_waiting(JOB, None)
        providing.cancel()

    run_virtual(main())


def test_a_removal_that_fails_is_repeated() -> None:
    async def main() -> None:
        pods = Pods()
        async with leading(pods) as scene:
            await registered(scene, pods, FIRST)
            pods.refusal = "not now"
            await asyncio.sleep(33.5)
            assert [f"-{FIRST}"] * 3 == pods.requests
            pods.refusal = ""
            await asyncio.sleep(600)
            assert [f"-{FIRST}"] * 4 == pods.requests

    run_virtual(main())
