"""A guardian as its parent sees it: a death is told when all is reaped, whoever was frozen."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.guardian.conftest import StartGuard
from tests.guardian.ground import (
    PATIENCE_S,
    WORKER,
    alive,
    freeze,
    lock_is_free,
    murder,
    seen,
    state,
    thaw,
    until,
)
from tests.support.sampling import quickly
from understudy.model import Incarnation
from understudy.process import guardian, processes
from understudy.process.liveness_lock import LivenessLocks
from understudy.process.processes import Guarded, GuardedProcesses, Spec

ROOT = Path(__file__).parents[2]

Story = Callable[["Nursery"], Awaitable[None]]


class Nursery:
    """Starts guarded processes, as the launcher does; this process is the guardian above."""

    def __init__(self, locks: Path) -> None:
        self.settled = 0
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self._locks = locks

    async def start(self, *orders: str, start_s: float | None = None) -> Guarded:
        """Start an obedient worker and wait until it is known."""
        spec = Spec(
            "test",
            Incarnation("one"),
            (*WORKER, *orders),
            lock=str(self._locks / "one"),
            start_s=start_s,
        )
        process = await GuardedProcesses(self._settle).start(spec, self.lines.put_nowait)
        await process.started()
        assert isinstance(process, Guarded)
        return process

    async def told(self) -> str:
        """Return the next line that the worker, or a descendant, has printed."""
        return await asyncio.wait_for(self.lines.get(), PATIENCE_S)

    async def _settle(self) -> None:
        self.settled += 1
        while strays := [
            pid for pid in guardian.descendants() if guardian.parent_of(pid) == os.getpid()
        ]:
            for pid in strays:
                guardian.kill(pid)
                os.waitpid(pid, os.WNOHANG)
            await asyncio.sleep(0.001)


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], Nursery]:
    """Return a function that tells a story to its end, with less patience than is shipped."""
    monkeypatch.setattr(processes, "PATIENCE_S", 0.3)
    monkeypatch.setattr(processes, "SECOND_LOOK_S", 0.1)

    def run(story: Story) -> Nursery:
        async def limited() -> Nursery:
            nursery = Nursery(tmp_path / "locks")
            await asyncio.wait_for(story(nursery), PATIENCE_S)
            return nursery

        return asyncio.run(limited())

    return run


def test_a_death_is_told_with_its_cause(
    tell: Callable[[Story], Nursery], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PATIENCE_S", PATIENCE_S)  # Nobody here is frozen.

    async def story(nursery: Nursery) -> None:
        ended = await (await nursery.start("end 3")).death
        killed = await (await nursery.start("die 9")).death
        wanted = await nursery.start()
        wanted.kill("it was asked for")

        assert "exited with 3" == str(ended)
        assert "was killed by signal 9" == str(killed)
        assert "was killed: it was asked for" == str(await wanted.death)

    assert 0 == tell(story).settled


@pytest.mark.parametrize("also_the_worker", [False, True])
@pytest.mark.parametrize("how", ["child", "orphan", "daemon", "frozen"])
def test_a_killed_guardian_is_told_dead_once_all_it_guarded_is(
    tell: Callable[[Story], Nursery], how: str, *, also_the_worker: bool
) -> None:
    async def story(nursery: Nursery) -> None:
        one = await nursery.start(f"fork {how}")
        descendant = int(await nursery.told())
        murder(one.guardian_pid, *([one.pid] if also_the_worker else []))
        death = await one.death
        left = [pid for pid in (one.pid, descendant) if seen(pid)]

        assert [] == left
        assert "was killed: its guardian was killed" == str(death)

    assert 1 == tell(story).settled


@pytest.mark.parametrize("whom", quickly(["the guardian", "both"], ["both"]))
def test_a_frozen_guardian_is_killed_by_the_parent(
    tell: Callable[[Story], Nursery], tmp_path: Path, whom: str
) -> None:
    async def story(nursery: Nursery) -> None:
        one = await nursery.start("fork daemon", "beat-on 4")
        descendant = int(await nursery.told())
        while one._overdue is None:  # Until the parent has heard of the worker.
            await asyncio.sleep(0.001)
        freeze(one.guardian_pid, *([one.pid] if whom == "both" else []))
        death = await one.death
        left = [pid for pid in (one.guardian_pid, one.pid, descendant) if seen(pid)]

        assert [] == left
        assert "its guardian was killed" == death.reason
        assert lock_is_free(tmp_path / "locks" / "one")

    tell(story)


@pytest.mark.parametrize("asked", ["stop", "kill"])
def test_a_guardian_that_does_not_obey_is_killed(
    tell: Callable[[Story], Nursery], asked: str
) -> None:
    async def story(nursery: Nursery) -> None:
        one = await nursery.start()
        freeze(one.guardian_pid)
        if asked == "stop":
            one.stop(0.1)
        else:
            one.kill("it was asked for")
        death = await one.death

        assert "its guardian was killed" == death.reason
        assert not seen(one.pid)

    tell(story)


def test_a_guardian_that_is_frozen_before_its_worker_was_heard_of_is_killed(
    tell: Callable[[Story], Nursery],
) -> None:
    async def story(nursery: Nursery) -> None:
        one = await nursery.start(start_s=3.0)
        freeze(one.guardian_pid)
        death = await one.death

        assert "its guardian was killed" == death.reason
        assert not seen(one.pid)

    tell(story)


def test_a_guardian_that_was_frozen_for_a_moment_is_spared(
    tell: Callable[[Story], Nursery],
) -> None:
    async def story(nursery: Nursery) -> None:
        one = await nursery.start("beat-on 8")
        await nursery.told()
        freeze(one.guardian_pid)
        await nursery.told()
        thaw(one.guardian_pid)
        await nursery.told()

        assert not one.death.done()
        assert alive(one.pid)

    tell(story)


def test_a_lease_is_held_to_by_the_guardian(tell: Callable[[Story], Nursery]) -> None:
    async def story(nursery: Nursery) -> None:
        one = await nursery.start("beat-on 5")
        one.until(guardian.now() + 0.2)
        death = await one.death

        assert "no leader was heard of for too long" == death.reason

    tell(story)


def test_the_lock_is_the_word_of_the_kernel(
    tell: Callable[[Story], Nursery], tmp_path: Path
) -> None:
    async def story(nursery: Nursery) -> None:
        one = await nursery.start("fork daemon")
        descendant = int(await nursery.told())
        proof = asyncio.create_task(LivenessLocks(tmp_path / "locks").dead(one.incarnation))
        await asyncio.sleep(0)
        murder(one.pid)
        note = await proof
        left = [pid for pid in (one.pid, descendant) if seen(pid)]

        assert [] == left
        assert (await one.death).at == note.at

    tell(story)


@pytest.mark.parametrize("how", ["child", "orphan", "daemon", "deaf"])
def test_the_guardian_above_clears_away_what_a_killed_guardian_leaves(
    guard: StartGuard, how: str
) -> None:
    above = guard(argv=[sys.executable, "-m", "tests.guardian.above", f"fork {how}"])
    told = json.loads(above.answer())
    murder(told["guardian"])
    death = json.loads(above.answer())
    left = [pid for pid in (told["worker"], *told["forked"]) if seen(pid)]

    assert "its guardian was killed" == death["reason"]
    assert [] == left
    assert alive(above.started())


@pytest.mark.parametrize("frozen", ["nobody", "the guardian below", "all below"])
def test_the_lock_above_is_held_until_all_below_are_dead(guard: StartGuard, frozen: str) -> None:
    above = guard(argv=[sys.executable, "-m", "tests.guardian.above", "fork daemon"])
    told = json.loads(above.answer())
    below = [told["guardian"], told["worker"], *told["forked"]]
    freeze(*({"nobody": [], "the guardian below": below[:1]}.get(frozen, below)))
    murder(above.started())
    until(lambda: lock_is_free(above.lock))
    left = [pid for pid in below if seen(pid)]

    assert [] == left
    assert 128 + signal.SIGKILL == above.wait()


def test_whoever_lives_below_a_frozen_guardian_holds_the_lock_above(guard: StartGuard) -> None:
    """Guardian and worker above are killed together; the guardian below cannot act."""
    above = guard(argv=[sys.executable, "-m", "tests.guardian.above"])
    told = json.loads(above.answer())
    worker = above.started()
    freeze(told["guardian"])
    murder(above.guardian_pid, worker)
    until(lambda: not alive(worker))
    held = not lock_is_free(above.lock)
    stopped = state(told["guardian"])
    thaw(told["guardian"])
    until(lambda: lock_is_free(above.lock))

    assert held
    assert "T" == stopped
    assert not alive(told["worker"])
