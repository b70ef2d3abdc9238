"""Waiting for a death: as often as one likes, at the cost of one wait."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from understudy.model import Incarnation
from understudy.process import guardian, strays
from understudy.process.guardian import take_lock
from understudy.process.liveness_lock import DeathNote, LivenessLocks

HELD = Incarnation("held")
TERMS = 50
PATIENCE_S = 30.0


def hold(directory: Path) -> int:
    descriptor = os.open(directory / HELD, os.O_CREAT | os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def waits() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "understudy-lock"}


def test_who_leads_again_and_again_waits_once_for_each_that_lives(tmp_path: Path) -> None:
    """Each term watches all TaskManagers; the kernel's wait cannot be given up with the term."""

    async def main() -> None:
        holder, locks = hold(tmp_path), LivenessLocks(tmp_path)
        before = waits()
        for _ in range(TERMS):
            watching = asyncio.create_task(locks.dead(HELD))
            await asyncio.sleep(0)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        while_it_lives = len(waits() - before)
        both = [asyncio.create_task(locks.dead(HELD)) for _ in range(2)]
        await asyncio.sleep(0)
        os.close(holder)
        async with asyncio.timeout(PATIENCE_S):
            notes = await asyncio.gather(*both)

        assert 1 == while_it_lives
        assert [DeathNote(None)] * 2 == notes

    asyncio.run(main())


def test_a_lock_that_is_not_there_yet_is_looked_for_anew_by_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        locks = LivenessLocks(tmp_path)
        nothing = asyncio.create_task(locks.dead(HELD))
        await asyncio.sleep(0)
        os.close(hold(tmp_path))
        async with asyncio.timeout(PATIENCE_S):
            note = await locks.dead(HELD)
        nothing.cancel()

        assert DeathNote(None) == note

    asyncio.run(main())


def test_a_proof_that_fails_is_tried_again_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(incarnation: Incarnation) -> bool:
        raise ValueError("of a kind that nobody expects")

    async def main() -> None:
        os.close(hold(tmp_path))
        locks = LivenessLocks(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(strays, "end", fail)
            first = asyncio.create_task(locks.dead(HELD))
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.sleep(0)
                while locks._waits:
                    await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            note = await locks.dead(HELD)
        proved = first.done()
        first.cancel()

        assert DeathNote(None) == note
        assert not proved

    asyncio.run(main())

    assert "of a kind that nobody expects" in caplog.text


def test_strays_that_cannot_be_looked_for_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(incarnation: Incarnation) -> bool:
        raise OSError(errno.EMFILE, "Too many open files")

    here = guardian.identity(os.getpid())
    (tmp_path / HELD).write_text(json.dumps({"worker": [here[0], here[1], here[2] + 1]}))
    monkeypatch.setattr(strays, "end", fail)
    asyncio.run(LivenessLocks(tmp_path).end_strays(HELD))

    assert "Too many open files" in caplog.text


def made_and_removed(path: Path) -> Iterator[None]:
    if not path.parent.exists():
        raise FileExistsError(errno.EEXIST, "another one has made it, and removed it", path)
    yield


def removed_above(path: Path) -> Iterator[None]:
    if not path.parent.exists():
        raise FileNotFoundError(errno.ENOENT, "another one has removed what is above", path)
    yield


def removed_directory(path: Path) -> Iterator[None]:
    path.parent.rmdir()
    yield


def removed(path: Path) -> Iterator[None]:
    LivenessLocks(path.parent)._sweep(frozenset())
    assert not path.exists()
    yield


def looked_at(path: Path) -> Iterator[None]:
    looking = hold(path.parent)
    yield
    os.close(looking)
    yield


@pytest.mark.parametrize(
    ("meddle", "module", "name"),
    [
        (made_and_removed, os, "mkdir"),
        (removed_above, os, "mkdir"),
        (removed_directory, os, "open"),
        (removed, fcntl, "flock"),
        (looked_at, fcntl, "flock"),
    ],
)
def test_a_guardian_gets_its_lock_while_those_of_the_dead_are_looked_for(
    meddle: Callable[[Path], Iterator[None]],
    module: ModuleType,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are known by their locks being free, as a new one is for a moment."""
    path = tmp_path / "locks" / HELD
    meddling, call = meddle(path), getattr(module, name)

    def meddled(*arguments: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, call)
            next(meddling, None)
        return call(*arguments)

    monkeypatch.setattr(module, name, meddled)
    descriptor = take_lock(str(path))
    monkeypatch.undo()

    assert os.path.samestat(os.fstat(descriptor), path.stat()), "others find it"
    assert [HELD] == list(LivenessLocks(path.parent)._living())
    os.close(descriptor)


def test_a_lock_that_was_taken_anew_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two who sweep have found the same file: the first removes it, and its owner begins anew."""
    path, taken, call = tmp_path / HELD, [], fcntl.flock
    path.touch()

    def meddled(descriptor: int, how: int) -> None:
        monkeypatch.undo()
        LivenessLocks(tmp_path)._sweep(frozenset())
        taken.append(take_lock(str(path)))
        call(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", meddled)
    LivenessLocks(tmp_path)._sweep(frozenset())

    assert os.path.samestat(os.fstat(taken[0]), path.stat())
    os.close(taken[0])


def test_who_looks_at_the_lock_of_a_dead_process_is_not_taken_for_it(tmp_path: Path) -> None:
    locks, looking = LivenessLocks(tmp_path), hold(tmp_path)
    held = locks._living()
    fcntl.flock(looking, fcntl.LOCK_SH)

    assert [HELD] == list(held)
    assert {} == locks._living()
    os.close(looking)


@pytest.mark.parametrize("another_lives", [True, False])
def test_the_locks_of_another_that_lives_are_left(tmp_path: Path, *, another_lives: bool) -> None:
    directory = tmp_path / "locks"
    another = take_lock(str(directory / "another"))
    (directory / "own").touch()
    (directory / ".proof-of-a-killed-one").touch()
    if not another_lives:
        os.close(another)
    LivenessLocks(directory).clear({"own", "never-seen"})

    left = {"another", ".proof-of-a-killed-one"} if another_lives else set()
    assert left == {path.name for path in directory.glob("*")}
    assert another_lives == directory.exists()
    if another_lives:
        os.close(another)
