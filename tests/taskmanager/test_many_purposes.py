"""The pool with drivers of several applications: who has trouble delays no other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.ha.ground import RUN
from tests.support.virtual_time import run_virtual, virtual_clock
from tests.taskmanager.test_driver_pool import SETTINGS, FakeProcess, Told, deploy, grounds
from understudy.core.drivers import DriverState
from understudy.errors import EnvironmentFailed, StorageError
from understudy.model import ApplicationId, Incarnation, SessionProfile
from understudy.process.environments import ONE_INTERPRETER, Interpreters, OneInterpreter
from understudy.process.processes import Death
from understudy.process.reporter import Silent
from understudy.rpc import messages
from understudy.rpc.local import LocalLink, link_pair
from understudy.rpc.messages import DriverMessage, LinkMessage, Prepare
from understudy.taskmanager.driver import Driver, Opening
from understudy.taskmanager.driver_pool import DriverPool


def prepare(name: str) -> Prepare:
    """Return what is needed to start drivers of an application."""
    return Prepare(
        application_id=ApplicationId(name),
        run_id=RUN,
        directory=name,
        profile=SessionProfile(cwd=name),
        artifacts=(),
    )


class Heard(Told):
    """The shipped outbox; keeps for which applications no driver can be started."""

    def __init__(self) -> None:
        super().__init__()
        self.unable: list[str] = []

    def send(self, message: LinkMessage) -> None:
        """See `Outbox.send`."""
        super().send(message)
        if isinstance(message, messages.CannotStart):
            self.unable.append(message.application_id)


class ManyDrivers(DriverPool):
    """The shipped pool; what its drivers do is the test's."""

    def __init__(
        self, slots: int, spares: int = 0, interpreters: Interpreters = ONE_INTERPRETER
    ) -> None:
        nobody: Any = None
        settings = replace(SETTINGS, slots=slots, spares=spares)
        super().__init__(
            settings, nobody, virtual_clock(), Heard(), Silent(), grounds(interpreters)
        )
        self.links: dict[Incarnation, LocalLink[DriverMessage]] = {}
        self.processes: dict[Incarnation, FakeProcess] = {}
        self.failing: set[str] = set()
        self.error: Exception = StorageError("its code cannot be read")
        self.slow: set[str] = set()

    async def _start(self, opening: Opening) -> Driver:
        name = opening.prepare.application_id
        await self._prepared(opening)
        if name in self.slow:
            await asyncio.Future()
        if name in self.failing:
            raise self.error
        ends: tuple[LocalLink[DriverMessage], LocalLink[DriverMessage]] = link_pair(
            Incarnation("pool"), opening.incarnation
        )
        process = FakeProcess()
        driver = self._employ(opening, process, ends[0])
        self.links[driver.incarnation] = ends[1]
        self.processes[driver.incarnation] = process
        ends[1].send(messages.Warm())
        return driver

    async def keeps(self, *names: str) -> list[str]:
        """Ask for these drivers; return those that are there after a second."""
        self.keep([prepare(name) for name in names])
        await asyncio.sleep(1)
        return self.living()

    def living(self) -> list[str]:
        """Return the drivers that are warm, in the order of their slots."""
        return [
            f"{one.slot or '-'} {one.prepare.application_id}"
            for one in self.drivers()
            if one.state.value in {"warm", "busy"}
        ]

    async def reap(self) -> None:
        """Let those that are killed be dead."""
        for name, process in list(self.processes.items()):
            if process.killed and not process.death.done():
                self.links[name].close()
                process.death.set_result(Death(0, 9, virtual_clock().now(), "killed"))
        await asyncio.sleep(1)


def serving(pool: ManyDrivers) -> asyncio.Task[None]:
    """Let the pool arrange its drivers."""
    return asyncio.create_task(pool.run())


def test_drivers_follow_what_is_wanted_and_idle_ones_give_way() -> None:
    async def main() -> None:
        pool = ManyDrivers(2)
        task = serving(pool)
        first = await pool.keeps("red", "red")
        await pool.keeps("red", "blue")
        await pool.reap()
        second = pool.living()
        await pool.keeps("blue", "green")
        await pool.reap()
        reasons = [process.killed for process in pool.processes.values() if process.killed]

        assert ["1 red", "2 red"] == first
        assert ["red", "blue"] == [one.split()[1] for one in second]
        assert {"blue", "green"} == {one.split()[1] for one in pool.living()}
        assert [
            ["another application needs its place"],
            ["its application is not served here any more"],
        ] == sorted(reasons)
        task.cancel()

    run_virtual(main())


def test_a_driver_at_work_stays_whatever_is_wanted() -> None:
    async def main() -> None:
        pool = ManyDrivers(1)
        task = serving(pool)
        await pool.keeps("red")
        (driver,) = pool.drivers()
        pool.run_attempt(driver, deploy(), 1)

        assert ["1 red"] == await pool.keeps("blue")
        assert ["1 red"] == await pool.keeps()
        assert not pool.processes[driver.incarnation].killed
        task.cancel()

    run_virtual(main())


@pytest.mark.parametrize("trouble", ["failing", "slow"])
def test_an_application_whose_drivers_do_not_start_delays_no_other(trouble: str) -> None:
    async def main() -> None:
        pool = ManyDrivers(3)
        getattr(pool, trouble).add("red")
        task = serving(pool)

        assert ["blue", "green"] == sorted(
            one.split()[1] for one in await pool.keeps("red", "blue", "green")
        )
        task.cancel()

    run_virtual(main())


@pytest.mark.parametrize("error", [StorageError("unread"), KeyError("an error of ours")])
def test_failed_starts_are_counted_for_each_application_and_told_by_name(error: Exception) -> None:
    async def main() -> None:
        pool = ManyDrivers(2)
        pool.failing.add("red")
        pool.error = error
        task = serving(pool)
        await pool.keeps("red", "blue")
        await asyncio.sleep(10)
        outbox = pool._outbox
        assert isinstance(outbox, Heard)
        told = set(outbox.unable)
        pool.failing.clear()
        await asyncio.sleep(60)

        assert {"red"} == told
        assert ["1 red", "2 blue"] == sorted(pool.living())
        task.cancel()

    run_virtual(main())


def test_a_spare_that_gets_an_attempt_takes_the_slot_of_an_idle_driver() -> None:
    async def main() -> None:
        pool = ManyDrivers(1, 1)
        task = serving(pool)
        await pool.keeps("red", "blue")
        spare = next(one for one in pool.drivers() if one.slot is None)
        has_slot = pool.has_slot(spare)
        pool.run_attempt(spare, deploy(), 1)
        other = next(one for one in pool.drivers() if one is not spare)

        assert has_slot
        assert (1, None) == (spare.slot, other.slot)
        assert not pool.has_slot(other), "the only slot is busy"
        task.cancel()

    run_virtual(main())


class Builds(OneInterpreter):
    """Builds for ever, or in vain, as the application's name says."""

    def __init__(self) -> None:
        self.building: list[str] = []
        self.left: list[str] = []

    async def python_for(self, user: ApplicationId, *_: object) -> str:
        """See `Interpreters.python_for`."""
        if user.startswith("vain"):
            raise EnvironmentFailed("there is no cherry==9.0")
        if user.startswith("slow"):
            self.building.append(user)
            try:
                await asyncio.Future()
            finally:
                self.building.remove(user)
        return "python"

    async def leave(self, user: ApplicationId) -> None:
        """See `Interpreters.leave`."""
        self.left.append(user)


def test_an_environment_that_is_built_holds_up_its_application_only() -> None:
    """However many are built: more than drivers may start at once."""

    async def main() -> None:
        builds = Builds()
        pool = ManyDrivers(6, interpreters=builds)
        task = serving(pool)
        slow = [f"slow {number}" for number in range(5)]

        assert ["6 blue"] == await pool.keeps(*slow, "blue")
        assert slow == builds.building
        task.cancel()

    run_virtual(main())


def test_a_build_ends_with_its_application_which_then_uses_nothing_here() -> None:
    async def main() -> None:
        builds = Builds()
        pool = ManyDrivers(3, interpreters=builds)
        task = serving(pool)
        await pool.keeps("slow", "red", "blue")
        assert ["slow"] == builds.building

        await pool.keeps("blue")
        assert ([], ["slow"]) == (builds.building, builds.left), "a driver of red lives"
        await pool.reap()
        assert ["slow", "red"] == builds.left
        assert ["3 blue"] == pool.living()
        task.cancel()

    run_virtual(main())


def test_a_build_that_fails_is_told_at_once() -> None:
    async def main() -> None:
        pool = ManyDrivers(2, interpreters=Builds())
        task = serving(pool)
        living = await pool.keeps("vain", "blue")
        outbox = pool._outbox
        assert isinstance(outbox, Heard)

        assert (["2 blue"], ["vain"]) == (living, outbox.unable)
        task.cancel()

    run_virtual(main())


def test_a_spare_takes_the_slot_of_a_driver_whose_attempt_has_ended() -> None:
    async def main() -> None:
        pool = ManyDrivers(1, 1)
        task = serving(pool)
        await pool.keeps("red", "red")
        first, spare = pool.drivers()
        pool.run_attempt(first, deploy(), 1)
        while_it_ran = pool.has_slot(spare)
        first.deploy = None  # Its attempt has ended; what is left of the attempt is being removed.

        assert not while_it_ran
        assert pool.has_slot(spare)
        assert (1, None) == (spare.slot, first.slot)
        task.cancel()

    run_virtual(main())


def test_a_driver_that_is_ending_keeps_its_slot_for_its_last_report() -> None:
    async def main() -> None:
        pool = ManyDrivers(1, 1)
        task = serving(pool)
        await pool.keeps("red", "red")
        first, spare = pool.drivers()
        first.state = DriverState.ENDING

        assert pool.has_slot(spare)
        assert (1, 1) == (spare.slot, first.slot)
        task.cancel()

    run_virtual(main())


class Lines(Silent):
    """Keeps what drivers print, with the name before each line."""

    def __init__(self) -> None:
        super().__init__()
        self.printed: list[str] = []

    def line(self, log: str, source: str, text: str) -> None:
        """See `Reporter.line`."""
        self.printed.append(f"[{source}] {text}")


def test_what_a_job_printed_last_has_its_name_though_its_attempt_has_ended() -> None:
    async def main() -> None:
        pool = ManyDrivers(1)
        lines = pool._reporter = Lines()
        task = serving(pool)
        await pool.keeps("red")
        (one,) = pool.drivers()
        pool._printed(one.incarnation, "before")
        pool.run_attempt(one, deploy(), 1)
        one.deploy = None
        pool._printed(one.incarnation, "behind")

        assert [f"[{one.name}] before", f"[{deploy().name}] behind"] == lines.printed
        task.cancel()

    run_virtual(main())
