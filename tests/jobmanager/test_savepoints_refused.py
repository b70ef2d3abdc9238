"""What a savepoint is refused for, what it waits for, and that a failed one leaves nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.jobmanager.test_savepoint_coordinator import JOB, STATE, TRIGGER, Ground, done, in_a_loop
from understudy.core.checkpoints import WriteNote, WriteState, encoded
from understudy.errors import CheckpointError
from understudy.ha import savepoints
from understudy.jobmanager import savepoint_coordinator, savepoint_files
from understudy.model import Checkpoint, CheckpointKind, JobStatus


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def put_batch(query: Path) -> None:
    """Lay out a query that has committed batches 0 and 1."""
    for name in ("metadata", "offsets/0", "commits/0", "offsets/1", "commits/1"):
        (query / name).parent.mkdir(parents=True, exist_ok=True)
        (query / name).write_bytes(b"x")


@in_a_loop
async def test_one_that_fails_leaves_nothing_behind(ground: Ground) -> None:
    ground.target.mkdir()
    (ground.target / "mine.txt").touch()
    gone = Checkpoint(
        kind=CheckpointKind.BATCH, name="q", attempt=1, number=5, batch_id=9, location="one/cp/q"
    )
    put_batch(ground.storage / gone.location)
    ground.register.body = replace(ground.register.body, completed=(STATE, gone))
    async with ground.leader() as leader:
        await leader.trigger(TRIGGER, str(ground.target))
        told = await done(leader)

    assert told.failure
    assert "but batch 1 is the last that lies there" in told.failure.message
    assert ["mine.txt"] == os.listdir(ground.target)


@in_a_loop
async def test_what_lay_there_before_is_neither_used_nor_removed(ground: Ground) -> None:
    there = ground.target / savepoint_coordinator.name_of(JOB, TRIGGER)
    there.mkdir(parents=True)
    (there / "mine.txt").touch()
    async with ground.leader() as leader:
        wanted = await leader.trigger(TRIGGER, str(ground.target))
        told = await done(leader)

    assert told.location == wanted.location != str(there)
    assert [Path(told.location).name] == ground.whole
    assert ["mine.txt"] == os.listdir(there)


@pytest.mark.parametrize("then", [None, JobStatus.FINISHED])
@in_a_loop
async def test_what_lies_outside_of_the_jobs_directory_is_refused_before_anything_is_stopped(
    ground: Ground, then: JobStatus | None
) -> None:
    outside = replace(STATE, location="/elsewhere/1-4.json")
    ground.register.body = replace(ground.register.body, completed=(outside,))
    async with ground.leader() as leader:
        with pytest.raises(CheckpointError, match=r"outside of the job's own directory"):
            await leader.trigger(TRIGGER, str(ground.target), then)

    assert [] == ground.register.writes
    assert [] == ground.noted
    assert ground.told.empty()


def under_way(state: WriteState) -> Checkpoint:
    """Return what is recorded of a safe write."""
    note = encoded(WriteNote(state=state, target="/out"))
    return Checkpoint(
        kind=CheckpointKind.WRITE, name="out", attempt=1, number=3, location="/out", note=note
    )


@in_a_loop
async def test_a_savepoint_of_a_job_that_goes_on_waits_for_a_write_that_is_under_way(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savepoint_coordinator, "PAUSE_S", 0.01)
    prepared, published = (
        replace(ground.register.body, completed=(under_way(state), STATE))
        for state in (WriteState.PREPARED, WriteState.PUBLISHED)
    )
    refused = asyncio.Event()
    loop = asyncio.get_running_loop()
    write = savepoint_files.write

    def seen(*args: object) -> object:
        try:
            return write(*args)  # type: ignore[arg-type]
        except CheckpointError:
            loop.call_soon_threadsafe(refused.set)
            raise

    monkeypatch.setattr(savepoint_files, "write", seen)
    ground.register.body = prepared
    async with ground.leader() as leader:
        await leader.trigger(TRIGGER, str(ground.target))
        async with asyncio.timeout(20):
            await refused.wait()
        ground.register.body = replace(
            published,
            savepoints=ground.register.body.savepoints,
            counter=ground.register.body.counter,
        )
        told = await done(leader)

    assert told.failure is None
    assert [3, 4] == [one.number for one in savepoints.read(told.location).manifest.checkpoints]


@pytest.mark.parametrize("then", [None, JobStatus.FINISHED])
@in_a_loop
async def test_a_write_that_stays_under_way_is_not_waited_for_for_ever_and_never_by_a_job_that_ends(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, then: JobStatus | None
) -> None:
    monkeypatch.setattr(savepoint_coordinator, "PAUSE_S", 0.01)
    monkeypatch.setattr(savepoint_coordinator, "UNDER_WAY_S", 0.1)
    tries: list[object] = []
    write = savepoint_files.write

    def counted(*args: object) -> object:
        tries.append(args)
        return write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(savepoint_files, "write", counted)
    ground.register.body = replace(
        ground.register.body, completed=(under_way(WriteState.PREPARED), STATE)
    )
    async with ground.leader() as leader:
        await leader.trigger(TRIGGER, str(ground.target), then)
        leader.stands_still()
        told = await done(leader)

    assert told.failure
    assert "write to /out was under way: ask again" in told.failure.message
    assert (len(tries) == 1) is (then is not None)
    assert not ground.target.exists() or [] == os.listdir(ground.target)
