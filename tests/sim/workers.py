"""What users would run, simulated: drivers in which jobs run, and processes of ``main``.

They say and store what `driver.driver_process` and `application.application_process` do, in the
same order, and use the shipped code where it needs no thread: staging, assigning ids.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from tests.sim.effects import SimStorage
from tests.sim.hosts import SimProcess
from tests.sim.keeping import SimKeeper
from tests.sim.program import Job
from tests.sim.wire import SimLink, link_pair
from tests.support.memory_storage import MemoryStorage
from understudy.core import matching
from understudy.core.matching import Assignment
from understudy.driver.attempt import Attempt
from understudy.errors import CheckpointError, CorruptDataError, DataError, NotFoundError
from understudy.ha.format import digest
from understudy.jobmanager.main_process import MainProcess
from understudy.model import Failure, JobId, JobStatus, Pointer
from understudy.process.persist import persist
from understudy.rpc import messages
from understudy.rpc.messages import AttemptEnded, Deploy, DriverMessage, MainMessage
from understudy.taskmanager.driver import Driver, Opening
from understudy.taskmanager.driver_pool import DriverPool

if TYPE_CHECKING:
    from tests.sim.world import World

WARM_S = 3.0
DRIVER_HEARTBEAT_S = 30.0
MAIN_HEARTBEAT_S = 30.0
BEATS = 4


class SimPool(DriverPool):
    """The shipped pool, whose processes are simulated."""

    world: World
    process: SimProcess

    async def _start(self, opening: Opening) -> Driver:
        # Code is laid out nowhere, as nothing here imports it.
        child = self.world.process("driver", self.process)
        ends: tuple[SimLink[DriverMessage], SimLink[DriverMessage]] = link_pair(
            self.world, self.process, child
        )
        opening.incarnation = child.incarnation
        one = self._employ(opening, child, ends[0])
        if self._until is not None:
            child.until(self._until)
        ends[0].send(
            messages.StartSession(
                kind="session-less",
                application_id=opening.prepare.application_id,
                conf={},
                python_path=(),
                scratch="",
                storage="",
            )
        )
        self.world.live(child, SimDriver(self.world, child, ends[1]).serve())
        return one


class SimDriver:
    """One driver; see `understudy.driver.driver_process.DriverProcess`."""

    def __init__(self, world: World, process: SimProcess, link: SimLink[DriverMessage]) -> None:
        self._world = world
        self._process = process
        self._link = link
        self._storage = SimStorage(world, process)
        self._inbox: asyncio.Queue[messages.RunAttempt] = asyncio.Queue()
        self._interrupted = False
        self._function: asyncio.Task[None] | None = None
        self._keeper: SimKeeper | None = None

    async def serve(self) -> None:
        """Warm up, run attempts until one of them ends badly, and exit."""
        machine = self._process.machine
        machine.spawn(pulse(self._process, DRIVER_HEARTBEAT_S))
        machine.spawn(self._receive())
        await asyncio.sleep(WARM_S * self._process.chance.uniform(0.3, 1.5))
        while True:
            self._link.send(messages.Warm())
            order = await self._inbox.get()
            ended, reason = await self._run(order)
            if not reason:  # Else what it has started may live, until all of it is reaped.
                self._world.watch.left(ended.job_id, ended.attempt)
            self._link.send(ended)
            if reason:
                self._link.send(messages.Retiring(reason=reason))
                await asyncio.sleep(0.01)
                self._process.exit(0)
                return

    async def _receive(self) -> None:
        while (envelope := await self._link.receive()) is not None:
            match envelope.message:
                case messages.RunAttempt() as order:
                    self._inbox.put_nowait(order)
                case messages.Interrupt():
                    self._interrupted = True
                    if self._function:
                        self._function.cancel()
                case messages.CheckpointsRecorded() | messages.CheckpointsRefused() as answer:
                    if self._keeper:
                        self._keeper.answered(answer)
        self._process.exit(0)

    async def _run(self, order: messages.RunAttempt) -> tuple[AttemptEnded, str]:
        deploy = order.deploy
        self._interrupted = False
        draft = MemoryStorage()
        attempt = Attempt(deploy, order.term, draft, self._process.machine.clock)
        self._link.send(messages.Entered(job_id=deploy.job_id, attempt=deploy.attempt))
        self._world.watch.entered(self._process, deploy, self._version(deploy))
        self._expect_dead(deploy)
        try:
            self._read_plan(deploy)
            await self._call(deploy)
            value = msgspec.Raw(msgspec.json.encode({deploy.name: deploy.attempt}))
            attempt.finished(value)
            reason = ""
        except (
            ValueError,
            NotFoundError,
            DataError,
            CheckpointError,
            asyncio.CancelledError,
        ) as error:
            if self._interrupted:
                attempt.interrupted()
                reason = "its job was cancelled"
            else:
                attempt.failed(error)
                reason = "its job failed"
        ended = attempt.stage()
        for path, data in draft.files.items():
            await persist("stage", functools.partial(self._storage.publish, path, data))
        return ended, reason

    def _expect_dead(self, deploy: Deploy) -> None:
        """Hold that a driver runs nothing whose Spark application this attempt would end."""
        for one in self._world.processes():
            if one.incarnation == deploy.lost_driver:
                lives = self._world.watch.in_good_standing(one)
                self._world.watch.demand(not lives, f"{deploy.name}: {one.name} is called dead")

    def _read_plan(self, deploy: Deploy) -> None:
        """Read what is to run; raises `NotFoundError` or `CorruptDataError`."""
        data = self._world.storage.read(deploy.plan.path)
        if digest(data) != deploy.plan.digest:
            raise CorruptDataError(f"{deploy.plan.path}: the plan was altered since it was stored")

    def _version(self, deploy: Deploy) -> int | None:
        """Return whose code the plan is, as far as can be told."""
        data = self._world.storage.files.get(deploy.plan.path, b"")
        version = data.rpartition(b" ")[2]
        return int(version) if digest(data) == deploy.plan.digest else None

    async def _call(self, deploy: Deploy) -> None:
        """Do what the job's function does."""
        job = self._world.job(deploy.name)
        send = functools.partial(self._link.send)
        self._keeper = SimKeeper(self._world, self._process, self._storage, send, deploy)
        self._function = asyncio.ensure_future(self._keeper.work(job))
        try:
            await self._function
        finally:
            self._function = None
        if deploy.attempt <= job.kills:
            self._process.crash_now(f"by job {job.name} itself")
            await asyncio.Event().wait()
        if deploy.attempt <= job.kills + job.raises:
            raise ValueError(f"attempt {deploy.attempt} of {job.name}")


class SimMains:
    """Where processes of ``main`` come from; see `MainProcesses`."""

    ready = True

    def __init__(self, world: World, process: SimProcess) -> None:
        self._world = world
        self._process = process
        self._taken: list[SimProcess] = []
        self.held_until: float | None = None

    def hold(self, deadline: float) -> None:
        """See `MainProcesses.hold`."""
        self.held_until = deadline
        for main in self._taken:
            main.until(deadline)

    async def take(self, python: str) -> MainProcess:
        """See `MainProcesses.take`."""
        await asyncio.sleep(self._process.chance.uniform(0, 0.5))
        child = self._world.process("main", self._process)
        ends: tuple[SimLink[MainMessage], SimLink[MainMessage]] = link_pair(
            self._world, self._process, child
        )
        self._taken = [main for main in self._taken if main.alive]
        self._taken.append(child)
        if self.held_until is not None:
            child.until(self.held_until)
        self._world.live(child, SimMain(self._world, child, ends[1]).serve())
        return MainProcess(child, ends[0])


class JobError(Exception):
    """What `Environment.execute` raises."""


class SimMain:
    """One process of ``main``; see `understudy.application.application_process`."""

    def __init__(self, world: World, process: SimProcess, link: SimLink[MainMessage]) -> None:
        self._world = world
        self._process = process
        self._link = link
        self._storage = SimStorage(world, process)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[MainMessage]] = {}
        self._plans = ""
        self._version = 0
        self._past: dict[JobId, messages.JobDone] = {}

    async def serve(self) -> None:
        """Wait for an application, execute it, say how it ended, and exit."""
        self._process.machine.spawn(pulse(self._process, MAIN_HEARTBEAT_S))
        envelope = await self._link.receive()
        if envelope is None or not isinstance(envelope.message, messages.RunMain):
            self._process.exit(0)
            return
        run = envelope.message
        self._plans = run.plans
        self._version = int(run.conf.get("version", 0))
        self._world.watch.main_began(self._process, run, self._version)
        self._process.machine.spawn(self._receive())
        failure = None
        try:
            await self._main(run)
        except Exception as error:
            failure = Failure(type=type(error).__name__, message=str(error))
        self._world.tell(f"{self._process.name} ends: {failure.message if failure else 'well'}")
        self._link.send(messages.MainEnded(failure=failure))
        await asyncio.sleep(0.01)
        self._process.exit(1 if failure else 0)

    async def _main(self, run: messages.RunMain) -> None:
        program = self._world.program(run.run_id, self._version)
        assignment = Assignment(run.application_id, run.first_job_id, run.first_job_name)
        for stage in program.path(run.execution):
            waits: list[Callable[[], Awaitable[None]]] = []
            for job in stage:
                assignment, assigned = matching.assign(assignment, job.name)
                await self._submit(job, assigned, first=run.execution == 1)
                waits.append(self._awaiter(job, assigned))
            for wait in waits:
                try:
                    await wait()
                except JobError:
                    if not program.catches:
                        raise
        if program.lasts_s:
            await asyncio.sleep(program.lasts_s)
        if program.raises:
            raise ValueError("main raises")

    async def _submit(self, job: Job, assigned: matching.Assigned, *, first: bool) -> None:
        """See `Environment.execute_async`."""
        if assigned.job_id in self._past:
            told = messages.ComeBy(
                job_id=assigned.job_id, name=assigned.name, occurrence=assigned.occurrence
            )
            self._link.send(told)
            return
        pointer = await self._put_plan(assigned) if first else None
        answer = await self._ask(assigned, pointer)
        if isinstance(answer, messages.NeedPlan):
            answer = await self._ask(assigned, await self._put_plan(assigned))
        if not isinstance(answer, messages.Accepted):
            raise RuntimeError(f"{job.name} was not accepted: {answer}")
        self._past = dict(answer.past)
        self._world.watch.acknowledged.add(assigned.job_id)
        if job.cancelled:
            await self._request(
                lambda number: messages.CancelJob(request=number, job_id=assigned.job_id)
            )

    async def _ask(self, assigned: matching.Assigned, plan: Pointer | None) -> MainMessage:
        return await self._request(
            lambda number: messages.Submit(
                request=number,
                job_id=assigned.job_id,
                name=assigned.name,
                occurrence=assigned.occurrence,
                plan=plan,
            )
        )

    def _awaiter(self, job: Job, assigned: matching.Assigned) -> Callable[[], Awaitable[None]]:
        past = self._past.pop(assigned.job_id, None)

        async def wait() -> None:
            done = past or await self._request(
                lambda number: messages.AwaitJob(request=number, job_id=assigned.job_id)
            )
            if not isinstance(done, messages.JobDone):
                raise RuntimeError(f"{job.name}: {done}")
            self._world.watch.answered(done, assigned.job_id)
            if done.status is not JobStatus.FINISHED:
                raise JobError(job.name)

        return wait

    async def _put_plan(self, assigned: matching.Assigned) -> Pointer:
        plan = f"plan of {assigned.name}, version {self._version}".encode()
        path = f"{self._plans}/{assigned.job_id}-{digest(plan)[-16:]}"
        await persist("store a plan", lambda: self._storage.publish(path, plan))
        return Pointer(path=path, digest=digest(plan), size=len(plan))

    async def _request(self, message: Callable[[int], MainMessage]) -> MainMessage:
        number = next(self._numbers)
        answer: asyncio.Future[MainMessage] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._link.send(message(number))
        return await answer

    async def _receive(self) -> None:
        while (envelope := await self._link.receive()) is not None:
            answer = self._waiting.pop(getattr(envelope.message, "request", 0), None)
            if answer:
                answer.set_result(envelope.message)


async def pulse(process: SimProcess, timeout_s: float) -> None:
    """Tell the guardian again and again that the worker is there."""
    while True:
        process.announce(process.machine.time() + timeout_s)
        await asyncio.sleep(timeout_s / BEATS)
