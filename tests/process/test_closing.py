"""A process that closes goes on past an error of one step, and reports all of them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from understudy.cli.launch import worker
from understudy.cli.launch.cluster import ClusterPlan, LocalCluster
from understudy.cli.launch.spec import ApplicationSpec
from understudy.cli.launch.story import Story
from understudy.config import Configuration
from understudy.jobmanager.redeployment import NO_CHANGES
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.process.closing import Closing
from understudy.process.liveness_lock import LivenessLocks
from understudy.taskmanager.driver_pool import DriverPool
from understudy.taskmanager.outbox import Outbox
from understudy.taskmanager.task_manager import TaskManager


def test_each_step_is_taken_whatever_the_one_before_has_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken = []
    with Closing("a thing") as closing:
        for name in ("one", "two", "three"):
            with closing.step(name):
                taken.append(name)
                if name != "three":
                    raise OSError(f"{name} is broken")

    assert taken == ["one", "two", "three"]
    assert "one is broken" in caplog.text
    assert "two is broken" in caplog.text
    assert "while closing a thing: two" in caplog.text


def test_nothing_is_said_of_a_close_without_errors(caplog: pytest.LogCaptureFixture) -> None:
    with Closing("a thing") as closing, closing.step("one"):
        pass

    assert caplog.text == ""


def test_a_cancellation_is_no_error_of_a_step() -> None:
    with (
        pytest.raises(asyncio.CancelledError),
        Closing("a thing") as closing,
        closing.step("one"),
    ):
        raise asyncio.CancelledError


class Backend:
    """A register that cannot be released."""

    def on_release(self, notify: Any) -> None:
        """See `Releasable`."""

    def release(self) -> None:
        raise OSError("the quorum is away")


class Reporter:
    closed = False

    def close(self) -> None:
        self.closed = True


class Posts:
    def __enter__(self) -> Posts:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_worker_whose_register_is_not_released_writes_its_events_and_keeps_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = Reporter()
    services = SimpleNamespace(backend=Backend())
    parts = SimpleNamespace(posts=Posts(), services=services, reporter=reporter)
    monkeypatch.setattr(worker, "assemble", lambda _: parts)

    async def role(_: Any) -> int:
        return 7

    with caplog.at_level(logging.ERROR):
        code = asyncio.run(worker.run(SimpleNamespace(name="jobmanager-1"), role))  # type: ignore[arg-type]

    assert 7 == code
    assert reporter.closed
    assert "the quorum is away" in caplog.text


class Sturdy:
    """A process that ends when it is told to."""

    def __init__(self) -> None:
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def kill(self, reason: str) -> None:
        self.death.set_result(None)


class Broken(Sturdy):
    """A process whose guardian cannot be told."""

    def kill(self, reason: str) -> None:
        super().kill(reason)
        raise OSError(f"nobody hears: {reason}")


def test_a_taskmanager_ends_all_its_drivers_though_one_cannot_be_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> list[bool]:
        drivers = [SimpleNamespace(process=kind()) for kind in (Sturdy, Broken, Sturdy)]
        pool: Any = DriverPool.__new__(DriverPool)
        pool._drivers = {f"driver {number}": one for number, one in enumerate(drivers)}
        pool._openings = []
        pool.kill_all("the end")
        await pool.emptied()
        return [one.process.death.done() for one in drivers]

    assert [True, True, True] == asyncio.run(main())
    assert "nobody hears: the end" in caplog.text


def test_a_taskmanager_waits_for_its_drivers_whatever_its_end_has_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waited = []

    class Pool:
        def drivers(self) -> list[Any]:
            return []

        def kill_all(self, reason: str) -> None:
            raise OSError("no drivers can be told")

        async def emptied(self) -> None:
            waited.append(True)

        async def run(self) -> None:
            raise OSError("it ends")

    async def for_ever(*_: object) -> None:
        await asyncio.Event().wait()

    manager: Any = TaskManager.__new__(TaskManager)
    manager._pool, manager._outbox = Pool(), Outbox()
    manager._follow_leaders = manager._give_up_orphans = for_ever
    manager._guardian = SimpleNamespace(beat=for_ever)
    manager._clock, manager._settings = None, SimpleNamespace(orphan_s=1.0)

    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        asyncio.run(manager.run())

    assert [True] == waited
    assert "no drivers can be told" in caplog.text


def test_a_jobmanager_closes_each_link_though_one_cannot_be_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = []

    class Link:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)
            if self.name == "one":
                raise OSError("one is broken")

    resources: Any = ResourceManager.__new__(ResourceManager)
    resources._watching = {}
    resources.taskmanagers = {name: SimpleNamespace(link=Link(name)) for name in ("one", "two")}
    resources.close()

    assert ["one", "two"] == closed
    assert "one is broken" in caplog.text


def test_a_launcher_removes_the_rest_though_its_locks_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = tmp_path / "ha"
    (storage / "run-1" / "locks").mkdir(parents=True)
    settings = {"high-availability.storageDir": str(storage), "io.tmp.dirs": str(tmp_path)}
    plan = ClusterPlan(
        Configuration(settings),
        "run-1",
        True,
        "run",
        cast("ApplicationSpec", None),
        1,
        1,
        NO_CHANGES,
    )

    def broken(*_: object) -> None:
        raise OSError("the locks are of somebody else")

    async def main() -> None:
        launcher = LocalCluster(plan, Story(lambda: 0.0), lambda _: None)
        launcher._finished.set()
        await launcher._end()

    monkeypatch.setattr(LivenessLocks, "clear", broken)
    monkeypatch.setattr(LocalCluster, "_strays", lambda _: [])
    asyncio.run(main())

    assert "the locks are of somebody else" in caplog.text
    assert not (storage / "run-1").exists()
