"""The pool of drivers: what is told of an attempt's end, and when."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from tests.ha.ground import APPLICATION, RUN
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.clock import SystemClock
from understudy.config import secrets
from understudy.model import Incarnation, JobId, JobStatus, Pointer, SessionProfile
from understudy.process import channels
from understudy.process.environments import ONE_INTERPRETER, Interpreters
from understudy.process.processes import Death, Spec
from understudy.process.reporter import Silent
from understudy.rpc import messages
from understudy.rpc.local import LocalLink, link_pair
from understudy.rpc.messages import AttemptEnded, Deploy, DriverMessage, LinkMessage, Prepare
from understudy.rpc.wire import BlockingLink
from understudy.taskmanager.driver import Driver, Grounds, Opening
from understudy.taskmanager.driver_pool import HANDED_OVER, UNWANTED, DriverPool, PoolSettings
from understudy.taskmanager.outbox import Outbox

DRIVER = Incarnation("driver")
JOB = JobId("job")
SETTINGS = PoolSettings("session-less", 1, 0, 30.0, 180.0, 5.0, "", Path("/scratch"))
WANTED = Prepare(
    application_id=APPLICATION, run_id=RUN, directory="", profile=SessionProfile(), artifacts=()
)
POINTER = Pointer(path="staged", digest="", size=0)


def grounds(interpreters: Interpreters = ONE_INTERPRETER) -> Grounds:
    """Return what drivers of applications without code stand on."""
    nowhere: Any = None
    return Grounds(nowhere, "", interpreters)


class FakeProcess:
    """A guarded process that ends when the test says so; see `Process`."""

    incarnation = DRIVER
    guardian_pid = pid = 0

    def __init__(self) -> None:
        self.death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self.killed: list[str] = []

    def until(self, deadline: float) -> None:
        """See `Process.until`."""

    def stop(self, grace_s: float) -> None:
        """See `Process.stop`."""

    def kill(self, reason: str) -> None:
        """See `Process.kill`."""
        self.killed.append(reason)

    async def started(self) -> None:
        """See `Process.started`."""


class Told(Outbox):
    """The shipped outbox; keeps what the pool reports of attempts' ends."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[str, bool]] = []
        """Each end: the status, and whether it is said that nothing of it lives."""
        self.losses: list[messages.AttemptLost] = []

    def send(self, message: LinkMessage) -> None:
        """See `Outbox.send`."""
        super().send(message)
        match message:
            case AttemptEnded():
                self.ends.append((message.status.value, message.reaped))
            case messages.AttemptLost():
                self.ends.append(("LOST", True))
                self.losses.append(message)

    def settle(self, ended: AttemptEnded) -> None:
        """See `Outbox.settle`."""
        super().settle(ended)
        self.ends.append((f"{ended.status.value} settled", True))


@dataclass
class Scene:
    """A pool with one driver, in which an attempt runs."""

    pool: DriverPool
    driver: Driver
    process: FakeProcess
    link: LocalLink[DriverMessage]
    """The driver's end."""
    told: Told

    async def says(self, message: DriverMessage) -> None:
        """Let the driver say something, and the pool hear it."""
        self.link.send(message)
        await asyncio.sleep(0.01)

    async def dies(self) -> None:
        """Let the guardian say that all of the driver is reaped."""
        self.link.close()
        self.process.death.set_result(Death(0, 0, virtual_clock().now(), "ended"))
        await asyncio.sleep(0.01)


class OneDriver(DriverPool):
    """The shipped pool, whose driver is the test."""

    scene: Scene

    async def _start(self, opening: Opening) -> Driver:
        ends: tuple[LocalLink[DriverMessage], LocalLink[DriverMessage]] = link_pair(
            Incarnation("pool"), DRIVER
        )
        process, told = FakeProcess(), self._outbox
        assert isinstance(told, Told)
        opening.incarnation = DRIVER
        driver = self._employ(opening, process, ends[0])
        self.scene = Scene(self, driver, process, ends[1], told)
        return driver


async def running() -> Scene:
    """Return a pool in whose driver an attempt has been entered."""
    nobody: Any = None
    pool = OneDriver(SETTINGS, nobody, virtual_clock(), Told(), Silent(), grounds())
    pool.keep([WANTED])
    serving = asyncio.ensure_future(pool.run())
    await asyncio.sleep(0.01)
    serving.cancel()
    scene = pool.scene
    await scene.says(messages.Warm())
    pool.run_attempt(scene.driver, deploy(), 1)
    await scene.says(messages.Entered(job_id=JOB, attempt=1))
    return scene


def deploy() -> Deploy:
    return Deploy(
        application_id=APPLICATION,
        run_id=RUN,
        job_id=JOB,
        name="load",
        attempt=1,
        driver=DRIVER,
        plan=POINTER,
        staged="staged",
        writer="w",
        result_size_max=1 << 18,
    )


def ended(status: JobStatus) -> AttemptEnded:
    return AttemptEnded(
        job_id=JOB,
        attempt=1,
        status=status,
        retryable=True,
        source=POINTER,
        ran_s=1.0,
        start_time=1.0,
        end_time=2.0,
    )


def test_a_success_is_told_at_once_and_settled_when_the_driver_is_free_again() -> None:
    async def main() -> None:
        scene = await running()

        await scene.says(ended(JobStatus.FINISHED))
        assert [("FINISHED", False)] == scene.told.ends

        await scene.says(messages.Warm())
        assert [("FINISHED", False), ("FINISHED settled", True)] == scene.told.ends

    run_virtual(main())


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.CANCELED])
def test_an_end_that_another_attempt_may_follow_is_told_once_all_of_it_is_reaped(
    status: JobStatus,
) -> None:
    """What the function has started may write on, until the guardian has reaped it."""

    async def main() -> None:
        scene = await running()

        await scene.says(ended(status))
        assert [] == scene.told.ends
        assert 1 == len(scene.process.killed), "nothing of it may live on"

        await scene.dies()
        assert [(status.value, True)] == scene.told.ends

    run_virtual(main())


def test_a_success_beside_a_wish_to_stop_is_told_once_all_of_it_is_reaped() -> None:
    """A savepoint follows it: nothing of the attempt may write beside that."""

    async def main() -> None:
        scene = await running()
        scene.pool.stop_attempt(scene.driver)

        await scene.says(ended(JobStatus.FINISHED))
        assert [] == scene.told.ends

        await scene.dies()
        assert [("FINISHED", True)] == scene.told.ends

    run_virtual(main())


def test_a_driver_that_dies_without_a_word_has_lost_its_attempt() -> None:
    async def main() -> None:
        scene = await running()

        await scene.dies()

        assert [("LOST", True)] == scene.told.ends

    run_virtual(main())


def test_what_further_keys_hide_the_pool_hides_and_each_driver_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(secrets, "_learnt", type(secrets._learnt)())
    wanted = replace_struct(WANTED, profile=SessionProfile(conf={"spark.pin": "4711-0815"}))
    ends: list[socket.socket] = []

    class Children:
        """Starts nothing; keeps the driver's end of the channel."""

        async def start(self, spec: Spec, _: Any) -> FakeProcess:
            ends.append(socket.socket(fileno=os.dup(spec.fds[0])))
            return FakeProcess()

    async def started() -> messages.StartSession:
        settings = replace(SETTINGS, redacted_keys=("PIN",))
        children: Any = Children()
        pool = DriverPool(settings, children, SystemClock(), Told(), Silent(), grounds())
        await pool._start(Opening(DRIVER, 1, wanted))
        with ends[0] as channel:
            link = BlockingLink(channel, channels.driver_codec, DRIVER)
            envelope = await asyncio.to_thread(link.receive)
        assert envelope is not None
        assert isinstance(envelope.message, messages.StartSession)
        return envelope.message

    assert ("PIN",) == asyncio.run(started()).redacted_keys
    assert "it printed last: ******" == secrets.masked("it printed last: 4711-0815")


# --- the drain ------------------------------------------------------------------------------------


def recorded(*numbers: int) -> messages.CheckpointsRecorded:
    return messages.CheckpointsRecorded(job_id=JOB, attempt=1, sequence=1, numbers=numbers)


async def heard(link: LocalLink[DriverMessage]) -> list[DriverMessage]:
    """Return what a driver has been told so far."""
    found = []
    with contextlib.suppress(TimeoutError):
        while envelope := await asyncio.wait_for(link.receive(), 0.01):
            found.append(envelope.message)
    return found


def test_an_attempt_is_asked_to_save_and_handed_over_with_its_next_checkpoint() -> None:
    async def main() -> None:
        scene = await running()
        scene.pool.answer(recorded(1))
        scene.pool.drain()
        left = asyncio.ensure_future(scene.pool.left())
        assert messages.Stopping() == (await heard(scene.link))[-1]
        scene.pool.answer(recorded())
        assert [] == scene.process.killed, "it has saved nothing since"

        scene.pool.answer(recorded(2))
        assert [HANDED_OVER] == scene.process.killed
        await scene.dies()

        assert left.done()
        assert [(HANDED_OVER, True)] == [(one.reason, one.handed_over) for one in scene.told.losses]

    run_virtual(main())


def test_an_attempt_that_saves_nothing_may_finish_and_no_driver_follows() -> None:
    async def main() -> None:
        scene = await running()
        scene.pool.drain()
        scene.pool.keep([WANTED])  # The leader does not know yet.
        await scene.says(ended(JobStatus.FINISHED))
        await scene.says(messages.Warm())
        assert [UNWANTED] == scene.process.killed
        await scene.dies()

        async with asyncio.timeout(1.0):
            await scene.pool.left()
        assert ["FINISHED", "FINISHED settled"] == [status for status, _ in scene.told.ends]

    run_virtual(main())


def test_what_is_left_at_the_end_of_the_drain_is_handed_over_as_it_is() -> None:
    async def main() -> None:
        scene = await running()
        scene.pool.drain()
        scene.pool.hand_over()
        await scene.dies()

        assert [True] == [one.handed_over for one in scene.told.losses]

    run_virtual(main())
