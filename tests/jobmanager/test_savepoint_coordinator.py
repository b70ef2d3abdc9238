"""How savepoints are asked for, taken, taken over by the next leader, and begun with."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from understudy.clock import SystemClock
from understudy.core import job
from understudy.errors import CheckpointError, LeadershipLost, NotFoundError, UsageError
from understudy.ha import savepoints
from understudy.jobmanager import savepoint_coordinator, savepoint_files
from understudy.jobmanager.savepoint_coordinator import About, SavepointCoordinator
from understudy.jobmanager.savepoint_files import Directories
from understudy.model import (
    ApplicationId,
    Checkpoint,
    CheckpointKind,
    Checkpoints,
    JobId,
    JobStatus,
    Savepoint,
    StartFrom,
)

JOB = JobId("0123456789abcdef" * 2)
TRIGGER = "fedcba9876543210" * 2
ABOUT = About(JOB, "live", "app", "a" * 32, "monday", "one")
STATE = Checkpoint(
    kind=CheckpointKind.STATE, name="", attempt=1, number=4, location="one/cp/state/1-4.json"
)


class Register:
    """What is durable; a leader that dies takes nothing of it along."""

    def __init__(self) -> None:
        self.body = Checkpoints(
            application_id=ApplicationId("a" * 32), job_id=JOB, counter=4, completed=(STATE,)
        )
        self.writes: list[str] = []
        self.received: tuple[Checkpoint, ...] = ()
        """Checkpoints that are not recorded yet."""
        self.stalls = False

    async def drain(self) -> None:
        if self.stalls:
            raise TimeoutError("not recorded yet")
        if self.received:
            self.body = replace(self.body, completed=self.received)

    async def known(self) -> bool:
        return True

    async def change(self, what: str, change: Callable[[Checkpoints], Checkpoints]) -> Checkpoints:
        self.body = change(self.body)
        self.writes.append(what)
        return self.body


class Ground:
    """A storage with a job's state, and where savepoints go."""

    def __init__(self, place: Path) -> None:
        self.storage = place / "storage"
        self.target = place / "kept"
        self.register = Register()
        self.told: asyncio.Queue[job.Event] = asyncio.Queue()
        self.noted: list[tuple[JobStatus | None, int]] = []
        """As what the job is to end, and how much it had been told by then."""
        self.task: asyncio.Task[None]
        path = self.storage / STATE.location
        path.parent.mkdir(parents=True)
        path.write_bytes(b"{}")

    @contextlib.asynccontextmanager
    async def leader(self, start: StartFrom | None = None) -> AsyncIterator[SavepointCoordinator]:
        """Lead as long as the block lasts; then die."""
        leader = SavepointCoordinator(
            dataclasses.replace(ABOUT, start=start),
            Directories(str(self.storage), "one/cp", f"one/tables/{JOB}"),
            self.register,
            SystemClock(),
            self.told.put_nowait,
            self.note,
        )
        self.task = task = asyncio.create_task(leader.run())
        try:
            yield leader
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def note(self, status: JobStatus | None) -> None:
        """Make durable as what the job is to end."""
        self.noted.append((status, self.told.qsize()))

    @property
    def whole(self) -> list[str]:
        """Return the savepoints that are whole."""
        return sorted(path.parent.name for path in self.target.glob("*/_metadata"))


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def done(leader: SavepointCoordinator, trigger: str = TRIGGER) -> Savepoint:
    async with asyncio.timeout(20):
        while True:
            found = leader.find(trigger)
            if found and not found.is_pending:
                return found
            await asyncio.sleep(0.01)


@in_a_loop
async def test_a_savepoint_is_durable_once_it_is_told(ground: Ground) -> None:
    async with ground.leader() as leader:
        wanted = await leader.trigger(TRIGGER, str(ground.target))
        told = await done(leader)

    assert wanted.location == told.location == leader.last
    assert "savepoint-012345-fedcba987654" == Path(told.location).name
    assert 5 == told.number == ground.register.body.counter
    assert savepoints.read(told.location).digest == told.digest
    assert [Path(told.location).name] == os.listdir(ground.target)
    assert ground.told.empty()


@in_a_loop
async def test_the_same_id_again_is_the_same_savepoint(ground: Ground) -> None:
    async with ground.leader() as leader:
        told = [await leader.trigger(TRIGGER, str(ground.target)) for _ in range(2)]
        await done(leader)
        told.append(await leader.trigger(TRIGGER, str(ground.storage / "elsewhere")))

    assert 1 == len({one.location for one in told})
    assert 1 == ground.register.writes.count("note a savepoint that is wanted")
    assert 1 == len(ground.whole)


@in_a_loop
async def test_nothing_is_copied_of_a_job_that_is_to_end_before_it_stands_still(
    ground: Ground,
) -> None:
    async with ground.leader() as leader:
        wanted = await leader.trigger(TRIGGER, str(ground.target), JobStatus.FINISHED)
        told = [await ground.told.get()]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await ground.told.get()
        before = Path(wanted.location).exists()
        leader.stands_still()
        told.append(await ground.told.get())

    assert not before
    assert [job.Stop(JobStatus.FINISHED), job.Saved(durable=True)] == told
    assert 1 == len(ground.whole)


@in_a_loop
async def test_that_a_job_is_to_end_is_durable_before_its_attempt_is_touched(
    ground: Ground,
) -> None:
    async with ground.leader() as leader:
        await leader.trigger(TRIGGER, str(ground.target), JobStatus.FINISHED)
        told = [await ground.told.get()]
    async with ground.leader(), asyncio.timeout(20):
        told.append(await ground.told.get())

    assert [(JobStatus.FINISHED, 0)] * 2 == ground.noted
    assert [job.Stop(JobStatus.FINISHED)] * 2 == told


async def asked_to_stop(
    ground: Ground, leader: SavepointCoordinator, over: Callable[[], None]
) -> None:
    """Ask for a savepoint that the job is to end with; before its attempt has, all is over."""
    await leader.trigger(TRIGGER, str(ground.target), JobStatus.FINISHED)
    await ground.told.get()
    over()
    async with asyncio.timeout(20):
        await ground.task


@in_a_loop
async def test_a_job_that_ends_otherwise_is_not_waited_for_until_it_stands_still(
    ground: Ground,
) -> None:
    async with ground.leader() as leader:
        await asked_to_stop(ground, leader, lambda: leader.close("the job has ended"))

    assert [] == ground.whole


@in_a_loop
async def test_a_leader_that_goes_calls_no_savepoint_failed_and_takes_no_other(
    ground: Ground,
) -> None:
    """The next leader takes it all the same."""
    async with ground.leader() as leader:
        await asked_to_stop(ground, leader, leader.leave)
        found = leader.find(TRIGGER)
        with pytest.raises(LeadershipLost, match="another leader continues"):
            await leader.trigger("another", str(ground.target))

    assert found is not None
    assert found.is_pending
    assert found.failure is None


@in_a_loop
async def test_a_savepoint_that_fails_lets_the_job_go_on(ground: Ground) -> None:
    (ground.storage / STATE.location).unlink()
    async with ground.leader() as leader:
        await leader.trigger(TRIGGER, str(ground.target), JobStatus.FINISHED)
        leader.stands_still()
        told = await done(leader)
        events = [await ground.told.get() for _ in range(2)]

    assert told.failure
    assert "state of checkpoint 4 is not there" in told.failure.message
    assert job.Saved(durable=False) == events[-1]
    assert "" == leader.last
    assert [] == ground.whole


@in_a_loop
async def test_the_next_leader_takes_what_was_asked_for(ground: Ground) -> None:
    async with ground.leader() as leader:
        wanted = await leader.trigger(TRIGGER, str(ground.target), JobStatus.FINISHED)
    half = Path(wanted.location) / "checkpoints"
    half.mkdir(parents=True)
    (half / "half").touch()
    ground.told = asyncio.Queue()
    async with ground.leader() as leader:
        stop = await ground.told.get()
        leader.stands_still()
        told = await done(leader)

    assert job.Stop(JobStatus.FINISHED) == stop
    assert told.location != wanted.location
    assert [Path(told.location).name] == ground.whole == os.listdir(ground.target)


@in_a_loop
async def test_the_next_leader_takes_none_anew_that_is_whole(ground: Ground) -> None:
    async with ground.leader() as leader:
        await leader.trigger(TRIGGER, str(ground.target))
        first = await done(leader)
    pending = replace(first, completed_at=0.0, digest="", size=0)
    ground.register.body = replace(ground.register.body, savepoints=(pending,))
    async with ground.leader() as leader:
        again = await done(leader)

    assert (first.location, first.digest) == (again.location, again.digest)
    assert 1 == len(ground.whole)


@in_a_loop
async def test_what_is_recorded_while_it_is_copied_is_taken_instead(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savepoint_coordinator, "PAUSE_S", 0.01)
    newer = replace(STATE, number=5, location="one/cp/state/1-5.json")
    (ground.storage / STATE.location).rename(ground.storage / newer.location)
    write = savepoint_files.write

    def late(*args: object) -> object:
        try:
            return write(*args)  # type: ignore[arg-type]
        except NotFoundError:
            ground.register.body = replace(ground.register.body, completed=(newer,))
            raise

    monkeypatch.setattr(savepoint_files, "write", late)
    async with ground.leader() as leader:
        await leader.trigger(TRIGGER, str(ground.target))
        told = await done(leader)

    assert [5] == [one.number for one in savepoints.read(told.location).manifest.checkpoints]


@in_a_loop
@pytest.mark.parametrize("then", [None, JobStatus.FINISHED])
async def test_it_has_the_checkpoints_that_were_received_before(
    ground: Ground, then: JobStatus | None
) -> None:
    newer = replace(STATE, number=5, location="one/cp/state/1-5.json")
    (ground.storage / newer.location).write_bytes(b"{}")
    async with ground.leader() as leader:
        await leader.trigger(TRIGGER, str(ground.target), then)
        ground.register.received = (newer,)
        leader.stands_still()
        told = await done(leader)

    assert [5] == [one.number for one in savepoints.read(told.location).manifest.checkpoints]


@in_a_loop
async def test_one_whose_last_checkpoints_cannot_be_recorded_fails(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savepoint_coordinator, "PAUSE_S", 0.01)
    monkeypatch.setattr(savepoint_coordinator, "PATIENCE_S", 0.1)
    ground.register.stalls = True
    async with ground.leader() as leader:
        await leader.trigger(TRIGGER, str(ground.target), JobStatus.FINISHED)
        leader.stands_still()
        told = await done(leader)
        events = [await ground.told.get() for _ in range(2)]

    assert told.failure
    assert "not recorded yet" in told.failure.message
    assert job.Saved(durable=False) == events[-1]
    assert [] == ground.whole


@in_a_loop
async def test_the_end_of_the_job_ends_what_is_copied(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    chosen = savepoint_files._chosen

    def slowly(*args: object) -> object:
        for name in chosen(*args):  # type: ignore[arg-type]
            begun.set()
            go_on.wait(10)
            yield name

    monkeypatch.setattr(savepoint_files, "_chosen", slowly)
    async with ground.leader() as leader:
        await leader.trigger(TRIGGER, str(ground.target))
        await asyncio.to_thread(begun.wait, 10)
        leader.close("the job has ended")
        go_on.set()
        await ground.task
        told = await done(leader)
        with pytest.raises(NotFoundError):
            await leader.trigger("0" * 32, str(ground.target))

    assert told.failure
    assert "the job has ended" == told.failure.message
    assert [] == ground.whole


@in_a_loop
async def test_what_cannot_be_taken_is_refused_before_anything_is_noted(
    ground: Ground, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    async with ground.leader() as leader:
        with pytest.raises(UsageError, match="no savepoint can be written to"):
            await leader.trigger(TRIGGER, str(tmp_path / "file"))
        ground.register.body = replace(ground.register.body, completed=())
        with pytest.raises(CheckpointError, match="nothing to go on from yet"):
            await leader.trigger(TRIGGER, str(ground.target))

    assert [] == ground.register.writes


# --- beginning with one ---------------------------------------------------------------------------


async def taken(ground: Ground) -> Savepoint:
    async with ground.leader() as leader:
        await leader.trigger(TRIGGER, str(ground.target))
        return await done(leader)


@pytest.fixture
def kept(ground: Ground) -> StartFrom:
    """Return a savepoint, as a person has named it."""
    told = asyncio.run(taken(ground))
    ground.register = Register()
    ground.register.body = replace(ground.register.body, counter=0, completed=())
    return StartFrom(path=told.location, digest=told.digest, job_name="live")


@in_a_loop
async def test_a_job_begins_with_what_the_savepoint_has(ground: Ground, kept: StartFrom) -> None:
    async with ground.leader(kept) as leader:
        await leader.begin()
    body = ground.register.body

    assert kept.path == body.started_from
    assert [(4, 0, "one/cp/from-savepoint/state/1-4.json")] == [
        (one.number, one.attempt, one.location) for one in body.completed
    ]
    assert 5 == body.counter
    assert 1 == len(ground.whole)


@in_a_loop
async def test_it_is_laid_out_once(ground: Ground, kept: StartFrom) -> None:
    for _ in range(2):
        async with ground.leader(kept) as leader:
            await leader.begin()

    assert 1 == len(ground.register.writes)


@in_a_loop
async def test_a_claimed_one_is_removed_by_whoever_leads_then(
    ground: Ground, kept: StartFrom
) -> None:
    async with ground.leader(kept) as leader:
        await leader.begin()
    assert 1 == len(ground.whole)
    claimed = replace(kept, claim=True)
    async with ground.leader(claimed) as leader:
        async with asyncio.timeout(10):
            while os.listdir(ground.target):
                await asyncio.sleep(0.01)

    assert [] == ground.whole


@in_a_loop
async def test_another_savepoint_in_its_place_is_neither_taken_nor_removed(
    ground: Ground, kept: StartFrom
) -> None:
    other = replace(kept, digest="sha256:" + "0" * 64, claim=True)
    async with ground.leader(other) as leader:
        with pytest.raises(CheckpointError, match="another savepoint lies there"):
            await leader.begin()

    assert 1 == len(ground.whole)
    assert [] == ground.register.writes
