"""Which write is which, what becomes of batches, and what is refused."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

import pytest

from tests.support.frail_disk import FrailDisk, Killed
from tests.support.writing import JOB, NEW, OLD, Attempt, Leader, calls_of, hidden, rows_of
from understudy.core.backoff import Backoff
from understudy.core.checkpoints import is_under_way
from understudy.errors import CheckpointError
from understudy.jobmanager.checkpoint_cleanup import sweep, unfinished
from understudy.model import JobId
from understudy.process import persist
from understudy.process.disk import Disk, NotSupported
from understudy.process.publishing import Mode


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the disk in peace: no test here takes the power away."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_partitions_that_new_rows_lie_in_are_replaced_and_no_others(target: Path) -> None:
    Leader(JobId("00" * 16)).begin().write(target, ["d=1/one", "d=1/two", "d=2/three"])
    Leader().begin().write(target, ["d=1/new"], Mode.PARTITIONS)

    assert ["d=1/new", "d=2/three"] == rows_of(target)


def test_a_loop_that_goes_on_from_a_saved_step_writes_each_step_once(target: Path) -> None:
    leader = Leader()

    def run(attempt: Attempt, until: int) -> None:
        for step in range(attempt.state.restored() or 0, until):
            attempt.write(target, [f"step-{step}"])
            if step + 1 < until:
                attempt.state.save(step + 1)

    run(leader.begin(), 3)  # killed after its third write, before it has saved that
    run(leader.begin(), 5)

    assert [f"step-{step}" for step in range(5)] == rows_of(target)


def test_a_job_that_begins_at_the_top_finds_its_writes_though_it_saves(target: Path) -> None:
    leader = Leader()
    for _ in range(2):
        attempt = leader.begin()
        for step in range(3):
            attempt.write(target, [f"step-{step}"])
            attempt.state.save(step)

    assert [f"step-{step}" for step in range(3)] == rows_of(target)


def test_a_name_is_used_once_in_an_attempt(target: Path) -> None:
    attempt = Leader().begin()
    attempt.write(target, OLD, name="rows")

    with pytest.raises(CheckpointError, match="'rows' was used by an earlier write"):
        attempt.write(target, NEW, name="rows")
    assert rows_of(target) == OLD


def test_a_batch_is_run_again_until_it_is_done_and_then_never(target: Path) -> None:
    leader = Leader()

    def run(attempt: Attempt, number: int, *, dies: bool = False) -> bool:
        batch = attempt.writes.begin("query", number)
        if batch is None:
            return False
        attempt.write(target, [f"batch-{number}"], batch=batch)
        attempt.write(target, [f"more-{number}"], batch=batch)
        if dies:
            return False
        attempt.writes.end(batch)
        return True

    first = leader.begin()
    ran = [run(first, 0), run(first, 1), run(first, 2, dies=True)]
    second = leader.begin()
    ran += [run(second, 2), run(second, 2), run(second, 3)]

    assert [True, True, False, True, False, True] == ran
    assert rows_of(target) == [*(f"batch-{n}" for n in range(4)), *(f"more-{n}" for n in range(4))]
    assert hidden(target) == []
    with pytest.raises(CheckpointError, match=r"batch 1 .* comes again, though batch 3"):
        second.writes.begin("query", 1)


def test_a_batch_that_fails_may_be_run_again_in_the_same_attempt(target: Path) -> None:
    attempt = Leader().begin()
    for last in (False, True):
        batch = attempt.writes.begin("query", 0)
        assert batch is not None
        attempt.write(target, ["row"], batch=batch)
        if last:
            attempt.writes.end(batch)

    assert ["row"] == rows_of(target)
    assert attempt.computed == 1
    assert hidden(target) == []


def test_the_area_of_a_job_that_ended_is_removed(target: Path) -> None:
    calls = calls_of(target.parent / "probe" / "out", Mode.APPEND, False)
    left = []
    for number in range(1, calls + 1):
        place = target.parent / str(number) / "out"
        leader = Leader()
        with contextlib.suppress(Killed):
            leader.begin(FrailDisk(number, "after")).write(place, NEW)
        for one in unfinished(leader.body.completed):
            sweep(JOB, one)
        left += [path.name for path in place.parent.iterdir() if path != place]

    assert [] == left


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.OVERWRITE])
def test_what_cannot_be_made_safe_is_refused_before_anything_is_computed(
    mode: Mode, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "stream" / "_spark_metadata").mkdir(parents=True)
    for name, reason in (
        ("file", "is not a directory"),
        ("delta", "is a Delta table"),
        ("stream", "output of a streaming query"),
    ):
        attempt = Leader().begin()
        with pytest.raises(CheckpointError, match=reason):
            attempt.write(tmp_path / name, NEW, mode)
        assert attempt.computed == 0


class Poor(Disk):
    """A file system as NFS is."""

    def exchange(self, one: Path, other: Path) -> None:
        raise NotSupported(errno.EINVAL, "Invalid argument")


def test_a_file_system_that_cannot_swap_takes_new_targets_only(target: Path) -> None:
    Leader().begin(Poor()).write(target, OLD)
    attempt = Leader(JobId("11" * 16)).begin(Poor())
    with pytest.raises(CheckpointError, match="cannot swap two directories in one step"):
        attempt.write(target, NEW)

    assert attempt.computed == 0
    assert rows_of(target) == OLD
    assert hidden(target) == []


def test_an_existing_target_is_refused_or_left_as_the_mode_says(target: Path) -> None:
    Leader(JobId("00" * 16)).begin().write(target, OLD)
    attempt = Leader().begin()
    attempt.write(target, NEW, Mode.IGNORE)
    with pytest.raises(CheckpointError, match="exists already"):
        attempt.write(target, NEW, Mode.ERROR)

    assert attempt.computed == 0
    assert rows_of(target) == OLD
    assert hidden(target) == []


def test_an_area_that_somebody_removed_is_named(target: Path) -> None:
    calls = calls_of(target.parent / "probe" / "out", Mode.APPEND, False)
    leader = Leader()
    with contextlib.suppress(Killed):
        leader.begin(FrailDisk(calls - 1)).write(target, NEW)
    for path in target.parent.glob(".out.*"):
        shutil.rmtree(path)

    with pytest.raises(CheckpointError, match="nobody can say any more"):
        leader.begin().write(target, NEW)


def test_rows_that_are_not_whole_any_more_are_computed_again(target: Path) -> None:
    calls = calls_of(target.parent / "probe" / "out", Mode.APPEND, False)
    leader = Leader()
    with contextlib.suppress(Killed):
        leader.begin(FrailDisk(calls - 10)).write(target, NEW)
    (area,) = target.parent.glob(".out.*")
    next((area / "rows").glob("new-1-*")).write_text("torn off")
    second = leader.begin()
    second.write(target, NEW)

    assert second.computed == 1
    assert rows_of(target) == NEW


def test_what_is_published_is_not_computed_again_though_its_area_is_torn(target: Path) -> None:
    calls = calls_of(target.parent / "probe" / "out", Mode.APPEND, False)
    leader = Leader()
    with contextlib.suppress(Killed):
        leader.begin(FrailDisk(calls - 1)).write(target, NEW)
    (area,) = target.parent.glob(".out.*")
    shutil.rmtree(area / "rows")
    second = leader.begin()
    second.write(target, NEW)

    assert second.computed == 0
    assert rows_of(target) == NEW


def test_a_write_counts_as_a_checkpoint_of_the_job_once_it_is_published(target: Path) -> None:
    calls = calls_of(target.parent / "probe" / "out", Mode.APPEND, False)
    leader = Leader()
    with contextlib.suppress(Killed):
        leader.begin(FrailDisk(calls - 1)).write(target, NEW)
    before = [is_under_way(one) for one in leader.body.completed]
    leader.begin().write(target, NEW)

    assert [True] == before
    assert [False] == [is_under_way(one) for one in leader.body.completed]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.OVERWRITE])
def test_a_disk_that_fails_once_does_not_end_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, when: str
) -> None:
    """Each call fails in its turn, before it has its effect or after."""
    monkeypatch.setattr(persist, "BACKOFF", Backoff(0.0))
    expected = sorted(OLD + NEW) if mode is Mode.APPEND else sorted(NEW)

    def fail() -> None:
        raise OSError(errno.EIO, "for a moment")

    at, failed = 0, True
    while failed:
        at += 1
        target, disk = tmp_path / str(at) / "table", FrailDisk(at, when, fail)
        Leader(JobId("00" * 16)).begin().write(target, OLD)
        Leader().begin(disk).write(target, NEW, mode)
        failed = len(disk.calls) >= at

        assert expected == rows_of(target), disk.calls
        assert hidden(target) == [], disk.calls
    assert at > 10
