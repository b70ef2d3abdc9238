"""Rows are in their target once and whole, at whatever system call whoever is killed or stopped."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.support.frail_disk import FrailDisk, Killed, Stop
from understudy.clock import SystemClock
from understudy.core import checkpoints
from understudy.errors import CheckpointError
from understudy.ha.storage import FsspecStorage
from understudy.model import (
    ApplicationId,
    Checkpoint,
    Checkpoints,
    Incarnation,
    JobId,
    Pointer,
    RunId,
)
from understudy.rpc.messages import Deploy
from understudy.runtime import disk
from understudy.runtime.disk import Disk, NotSupported
from understudy.runtime.kept_state import StateKeeper
from understudy.runtime.publishing import Mode
from understudy.runtime.safe_writes import Batch, SafeWrites, sweep, unfinished

JOB = JobId("ab" * 16)


class Leader:
    """Records what the current attempt tells, and nothing of another: see CheckpointCoordinator."""

    def __init__(self, job_id: JobId = JOB) -> None:
        self.job_id = job_id
        self.body = Checkpoints(application_id=ApplicationId("a"), job_id=job_id)
        self.attempt = 0
        self.storage = FsspecStorage("memory://safe-writes")

    def begin(self, disk: Disk | None = None) -> Attempt:
        """Begin the next attempt."""
        self.attempt += 1
        return Attempt(self, self.attempt, disk or Disk())

    def record(self, attempt: int, taken: Iterable[Checkpoint]) -> tuple[int, ...]:
        if attempt != self.attempt:
            raise CheckpointError("another attempt of the job is under way")
        self.body, numbered = checkpoints.record(self.body, list(taken), 1)
        return tuple(one.number for one in numbered)


class Attempt:
    """One attempt: its writes, its recorder, and what it has computed."""

    def __init__(self, leader: Leader, number: int, disk: Disk) -> None:
        self._leader = leader
        self._number = number
        self._disk = disk
        self.computed = 0
        deploy = Deploy(
            application_id=ApplicationId("a"),
            run_id=RunId("r"),
            job_id=leader.job_id,
            name="job",
            attempt=number,
            driver=Incarnation("d"),
            plan=Pointer(path="", digest="", size=0),
            staged="",
            result_size_max=1000,
            checkpoints="job",
            restored=checkpoints.latest(leader.body),
        )
        clock = SystemClock()
        self.state = StateKeeper(deploy, self, leader.storage, clock)
        self.writes = SafeWrites(deploy, self, self.state, clock, disk)

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        """See `Recorder.record`: the dead record nothing."""
        if isinstance(self._disk, FrailDisk) and self._disk.dead:
            raise Killed
        return self._leader.record(self._number, taken)

    def tell(self, *taken: Checkpoint, failed: int = 0) -> None:
        """See `Recorder.tell`."""
        if self._number == self._leader.attempt:
            self.record(*taken)

    def settle(self, timeout_s: float) -> bool:
        """See `Recorder.settle`."""
        return True

    def write(
        self,
        target: Path,
        rows: Iterable[str],
        mode: Mode = Mode.APPEND,
        name: str | None = None,
        batch: Batch | None = None,
    ) -> None:
        """Write rows, each in a file of its own, as Spark would."""

        def emit(directory: Path) -> None:
            self.computed += 1
            directory.mkdir()
            for row in rows:
                file = directory / f"{row}-{self._number}-{os.urandom(4).hex()}"
                file.parent.mkdir(exist_ok=True)
                file.write_text(row)
            (directory / "_SUCCESS").write_text("")

        self.writes.write(target, mode, emit, name, batch)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the disk in peace: no test here takes the power away."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nobody's turn: one that is stopped never gives it up."""
    monkeypatch.setattr(disk, "TURN_S", 0.0)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out"


def rows_of(target: Path) -> list[str]:
    """Return the rows that a reader finds, in order."""
    files = [path for path in target.rglob("*") if path.is_file()]
    shown = [path for path in files if not path.name.startswith((".", "_"))]
    return sorted(path.read_text() for path in shown)


def hidden(target: Path) -> list[str]:
    """Return what lies beside and in the target that nobody needs."""
    beside = [path.name for path in target.parent.iterdir() if path != target]
    return sorted(beside + [path.name for path in target.iterdir() if path.name.startswith(".")])


OLD = ["old-1", "old-2"]
NEW = ["new-1", "new-2", "new-3"]

START: list[tuple[Mode, bool, list[str]]] = [
    (Mode.APPEND, True, NEW + OLD),
    (Mode.APPEND, False, NEW),
    (Mode.OVERWRITE, True, NEW),
    (Mode.OVERWRITE, False, NEW),
    (Mode.ERROR, False, NEW),
    (Mode.IGNORE, False, NEW),
]
"""The mode, whether the target is there before, and the rows that it holds in the end."""


def calls_of(target: Path, mode: Mode, there: bool) -> int:
    """Return how many system calls a write takes that nobody disturbs."""
    disk = FrailDisk()
    if there:
        Leader(JobId("00" * 16)).begin().write(target, OLD)
    Leader().begin(disk).write(target, NEW, mode)
    return len(disk.calls)


class Reader:
    """Lists a target again and again, in a thread of its own; remembers each sight."""

    def __init__(self, target: Path) -> None:
        self.seen: set[tuple[str, ...]] = set()
        self._target = target
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def look(self) -> None:
        """List once."""
        try:
            names = os.listdir(self._target)
        except FileNotFoundError:
            names = []
        shown = [name for name in names if not name.startswith((".", "_"))]
        self.seen.add(tuple(sorted(name.rsplit("-", 2)[0] for name in shown)))

    def _read(self) -> None:
        while not self._end.is_set():
            self.look()


@pytest.mark.parametrize(("mode", "there", "expected"), START)
def test_whoever_is_killed_at_whatever_call_each_row_is_there_once(
    mode: Mode, there: bool, expected: list[str], tmp_path: Path
) -> None:
    calls = calls_of(tmp_path / "probe" / "out", mode, there)
    allowed = {tuple(OLD) if there else (), tuple(sorted(expected))}
    found = []
    for number in range(1, calls + 1):
        for when in ("before", "after"):
            target = tmp_path / f"{number}-{when}" / "out"
            if there:
                Leader(JobId("00" * 16)).begin().write(target, OLD)
            leader, reader = Leader(), Reader(target)
            first = leader.begin(FrailDisk(number, when))
            with pytest.raises(Killed):
                first.write(target, NEW, mode)
            reader.look()
            second = leader.begin(disk := FrailDisk())
            second.write(target, NEW, mode)
            reader.look()
            again = leader.begin()
            again.write(target, NEW, mode)
            right = (
                reader.seen <= allowed
                and rows_of(target) == sorted(expected)
                and hidden(target) == []
                and first.computed + second.computed <= 2
                and again.computed == 0
            )
            found += [] if right else [(number, when, first._disk.calls, disk.calls)]  # type: ignore[attr-defined]

    assert [] == found


def test_whoever_is_killed_twice_each_row_is_there_once(tmp_path: Path) -> None:
    calls = calls_of(tmp_path / "probe" / "out", Mode.APPEND, True)
    wrong = []
    for one in range(1, calls + 1):
        for other in range(1, calls + 12):
            target = tmp_path / f"{one}-{other}" / "out"
            target.mkdir(parents=True)
            (target / "old").write_text("old")
            leader = Leader()
            for number in (one, other):
                try:
                    leader.begin(FrailDisk(number, "after")).write(target, ["new"])
                except Killed:
                    continue
            leader.begin().write(target, ["new"])
            if rows_of(target) != ["new", "old"] or hidden(target):
                wrong.append((one, other))

    assert [] == wrong


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("mode", "there", "expected"), START)
def test_a_zombie_that_wakes_at_whatever_call_adds_nothing(
    mode: Mode, there: bool, expected: list[str], tmp_path: Path
) -> None:
    calls = calls_of(tmp_path / "probe" / "out", mode, there)
    wrong = []
    for number in range(1, calls + 1):
        target = tmp_path / str(number) / "out"
        if there:
            Leader(JobId("00" * 16)).begin().write(target, OLD)
        leader, stop = Leader(), Stop()
        zombie = leader.begin(FrailDisk(number, "before", stop))
        ended = _in_a_thread(lambda z=zombie, t=target: z.write(t, NEW, mode))  # type: ignore[misc]
        stop.reached.wait()
        leader.begin().write(target, NEW, mode)
        stop.cont()
        error = ended()
        if rows_of(target) != sorted(expected) or not isinstance(
            error, CheckpointError | OSError | None
        ):
            wrong.append((number, zombie._disk.calls, rows_of(target), error))  # type: ignore[attr-defined]

    assert [] == wrong


def _in_a_thread(body: Callable[[], None]) -> Callable[[], BaseException | None]:
    ends: list[BaseException | None] = []

    def run() -> None:
        try:
            body()
            ends.append(None)
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def ended() -> BaseException | None:
        thread.join()
        return ends[0]

    return ended


def test_what_another_adds_at_whatever_call_is_there_once(tmp_path: Path) -> None:
    """The other takes no turns: as plain Spark, which knows nothing of us."""
    calls = calls_of(tmp_path / "probe" / "out", Mode.APPEND, True)
    wrong = []
    for number in range(1, calls + 1):
        target = tmp_path / str(number) / "out"
        Leader(JobId("00" * 16)).begin().write(target, OLD)

        def add(target: Path = target) -> None:
            (target / "part=1").mkdir()
            (target / "part=1" / "theirs").write_text("theirs")
            next(target.glob("old-1-*")).unlink()

        Leader().begin(FrailDisk(number, "before", add)).write(target, NEW)
        if rows_of(target) != [*NEW, "old-2", "theirs"] or hidden(target):
            wrong.append((number, rows_of(target), hidden(target)))

    assert [] == wrong


@pytest.mark.usefixtures("impatient")
def test_what_another_job_appends_at_whatever_call_is_there_once(tmp_path: Path) -> None:
    calls = calls_of(tmp_path / "probe" / "out", Mode.APPEND, True)
    wrong = []
    for number in range(1, calls + 1):
        target = tmp_path / str(number) / "out"
        Leader(JobId("00" * 16)).begin().write(target, OLD)

        def append(target: Path = target) -> None:
            Leader(JobId("11" * 16)).begin().write(target, ["theirs"])

        Leader().begin(FrailDisk(number, "before", append)).write(target, NEW)
        if rows_of(target) != [*NEW, *OLD, "theirs"] or hidden(target):
            wrong.append((number, rows_of(target), hidden(target)))

    assert [] == wrong


def test_what_another_adds_is_carried_over_by_the_next_attempt(tmp_path: Path) -> None:
    calls = calls_of(tmp_path / "probe" / "out", Mode.APPEND, True)
    wrong = []
    for added in range(1, calls + 1):
        for killed in range(added, calls + 1):
            target = tmp_path / f"{added}-{killed}" / "out"
            Leader(JobId("00" * 16)).begin().write(target, OLD)

            class Both(FrailDisk):
                def _call(self, name: str, *arguments: object) -> None:
                    if len(self.calls) + 1 == self.added:  # type: ignore[attr-defined]
                        (self.target / "theirs").write_text("theirs")  # type: ignore[attr-defined]
                    super()._call(name, *arguments)

            leader, disk = Leader(), Both(killed, "after")
            disk.added, disk.target = added, target  # type: ignore[attr-defined]
            with contextlib.suppress(Killed):
                leader.begin(disk).write(target, NEW)
            leader.begin().write(target, NEW)
            if rows_of(target) != [*NEW, *OLD, "theirs"] or hidden(target):
                wrong.append((added, killed, rows_of(target), hidden(target)))

    assert [] == wrong


def test_those_who_append_at_once_all_find_their_rows_and_readers_see_each_write_whole(
    target: Path,
) -> None:
    writers, writes = 4, 10
    Leader(JobId("ff" * 16)).begin().write(target, OLD)

    def append(writer: int) -> None:
        attempt = Leader(JobId(f"{writer:02d}" * 16)).begin()
        for number in range(writes):
            attempt.write(target, [f"{writer}.{number}.{part}" for part in range(3)])

    with Reader(target) as reader:
        ends = [_in_a_thread(lambda one=one: append(one)) for one in range(writers)]  # type: ignore[misc]
        errors = [end() for end in ends]
    expected = [f"{w}.{n}.{p}" for w in range(writers) for n in range(writes) for p in range(3)]
    halves = []
    for seen in reader.seen:
        parts = Counter(row.rpartition(".")[0] for row in seen if not row.startswith("old"))
        halves += [write for write, count in parts.items() if count != 3]

    assert [None] * writers == errors
    assert sorted(expected + OLD) == rows_of(target)
    assert [] == halves
    assert len(reader.seen) > 1


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
