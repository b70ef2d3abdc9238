"""Two applications with conflicting versions of one library, at once, in one TaskManager."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.wheels import wheel
from understudy.clock import SystemClock
from understudy.core.drivers import DriverState
from understudy.ha.blobs import BlobStore
from understudy.ha.format import digest
from understudy.ha.storage import LocalStorage
from understudy.model import ApplicationId, JobId, Pointer, RunId, SessionProfile
from understudy.process import code, plans, requirements
from understudy.process.environments import Environments, EnvironmentSettings
from understudy.process.processes import GuardedProcesses
from understudy.process.reporter import Silent
from understudy.rpc.messages import AttemptEnded, Deploy, LinkMessage, Prepare
from understudy.taskmanager.driver import Driver, Grounds
from understudy.taskmanager.driver_pool import DriverPool, PoolSettings
from understudy.taskmanager.outbox import Outbox

PATIENCE_S = 240.0


class Ends(Outbox):
    """The shipped outbox; says when an attempt has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.happened = asyncio.Condition()
        self.staged: dict[str, str] = {}

    def send(self, message: LinkMessage) -> None:
        """See `Outbox.send`."""
        super().send(message)
        if isinstance(message, AttemptEnded):
            self.staged[message.job_id] = message.source.path
        asyncio.ensure_future(self._tell())  # noqa: RUF006 -- ends at once

    async def _tell(self) -> None:
        async with self.happened:
            self.happened.notify_all()


class Scene:
    """A pool with real drivers, and a storage."""

    def __init__(self, place: Path) -> None:
        self.storage = LocalStorage(place / "ha")
        self.environments = Environments(
            EnvironmentSettings(place / "tmp/environments", (str(place / "wheels"),), True),
            GuardedProcesses(self._settle),
            SystemClock(),
        )
        self.outbox = Ends()
        settings = PoolSettings(
            "session-less", 2, 0, 60.0, 180.0, 5.0, self.storage.url, place / "scratch"
        )
        self.pool = DriverPool(
            settings,
            GuardedProcesses(self._settle),
            SystemClock(),
            self.outbox,
            Silent(),
            Grounds(self.storage, "c", self.environments),
        )

    async def _settle(self) -> None:
        """See `GuardedProcesses`."""

    def prepare(self, name: str, text: str) -> Prepare:
        """Store an application that has only requirements."""
        files = requirements.given("", text)
        artifacts = code.store(BlobStore(self.storage, "c", name), files)
        return Prepare(
            application_id=ApplicationId(name),
            run_id=RunId(name),
            directory=name,
            profile=SessionProfile(code=code.code_digest(artifacts)),
            artifacts=artifacts,
        )

    async def warm(self, name: str) -> Driver:
        """Wait for the warm driver of an application."""
        async with self.outbox.happened:
            while True:
                for one in self.pool.drivers():
                    if (one.prepare.application_id, one.state) == (name, DriverState.WARM):
                        return one
                await self.outbox.happened.wait()

    def run(self, driver: Driver) -> None:
        """Ask a driver which cherry it has."""
        name = driver.prepare.application_id
        plan = plans.encode_plan(name, lambda ctx: __import__("cherry").VERSION, (), {})
        pointer = Pointer(path=f"{name}/plan", digest=digest(plan), size=len(plan))
        self.storage.publish(pointer.path, plan)
        deploy = Deploy(
            application_id=driver.prepare.application_id,
            run_id=driver.prepare.run_id,
            job_id=JobId(name),
            name=name,
            attempt=1,
            driver=driver.incarnation,
            plan=pointer,
            staged=f"{name}/staged",
            writer=name,
            result_size_max=1_000,
        )
        self.pool.run_attempt(driver, deploy, 1)

    async def outcomes(self, *names: str) -> list[str]:
        """Return the outcomes of the attempts, once they have ended."""
        async with self.outbox.happened:
            while not set(names) <= self.outbox.staged.keys():
                await self.outbox.happened.wait()
        return [str(self.storage.read(self.outbox.staged[name])) for name in names]


def test_each_has_drivers_of_its_own_environment(tmp_path: Path) -> None:
    for version in ("1.0", "2.0"):
        wheel(tmp_path / "wheels", "cherry", version)

    async def main() -> None:
        scene = Scene(tmp_path)
        scene.pool.keep([scene.prepare("old", "cherry<2"), scene.prepare("new", "cherry>=2")])
        serving = asyncio.create_task(scene.pool.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                drivers = [await scene.warm("old"), await scene.warm("new")]
                assert {1, 2} == {one.slot for one in drivers}, "both at once"
                for one in drivers:
                    scene.run(one)
                old, new = await scene.outcomes("old", "new")
        finally:
            scene.pool.kill_all("the test ends")
            await scene.pool.emptied()
            serving.cancel()
            await scene.environments.close()

        assert "1.0" in old
        assert "2.0" in new
        assert not (tmp_path / "tmp/environments").exists()

    asyncio.run(main())
