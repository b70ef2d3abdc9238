"""Rows are in their target once and whole, at whatever system call whoever is killed or stopped."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.frail_disk import FrailDisk, Killed, Stop
from tests.support.sampling import quickly
from tests.support.sights import names_in
from tests.support.writing import NEW, OLD, Leader, calls_of, hidden, rows_of
from understudy.errors import CheckpointError
from understudy.model import JobId
from understudy.process import disk
from understudy.process.publishing import Area, Mode


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


START: list[tuple[Mode, bool, list[str]]] = [
    (Mode.APPEND, True, NEW + OLD),
    (Mode.APPEND, False, NEW),
    (Mode.OVERWRITE, True, NEW),
    (Mode.OVERWRITE, False, NEW),
    (Mode.ERROR, False, NEW),
    (Mode.IGNORE, False, NEW),
]
"""The mode, whether the target is there before, and the rows that it holds in the end."""


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
            names = names_in(self._target)
        except FileNotFoundError:
            names = []
        if names is None:
            return
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


@pytest.mark.parametrize("every", quickly([1, 3], [3]))
def test_whoever_is_killed_twice_each_row_is_there_once(tmp_path: Path, every: int) -> None:
    calls = calls_of(tmp_path / "probe" / "out", Mode.APPEND, True)
    wrong = []
    for one in range(1, calls + 1):
        for other in range(1 + one % every, calls + 12, every):
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


@pytest.mark.parametrize("name", ["scandir", "listdir"])
def test_an_area_that_its_own_attempt_removes_meanwhile_is_gone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, look = tmp_path / "area", getattr(os, name)
    path.mkdir()

    def look_too_late(where: Path) -> object:
        if Path(where) == path:
            monkeypatch.undo()
            path.rmdir()
        return look(where)

    monkeypatch.setattr(os, name, look_too_late)
    Area(path, tmp_path / "target").discard()

    assert [] == os.listdir(tmp_path)


@pytest.mark.parametrize("every", quickly([1, 3], [3]))
def test_what_another_adds_is_carried_over_by_the_next_attempt(tmp_path: Path, every: int) -> None:
    calls = calls_of(tmp_path / "probe" / "out", Mode.APPEND, True)
    wrong = []
    for added in range(1, calls + 1):
        for killed in range(added + added % every, calls + 1, every):
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
