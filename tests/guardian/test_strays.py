"""What a worker leaves when its guardian is killed with it is found by its environment."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guardian.conftest import StartGuard
from tests.guardian.ground import PATIENCE_S, Guard, alive, lock_is_free, murder, until
from understudy.model import Incarnation
from understudy.process import guardian, strays
from understudy.process.liveness_lock import LivenessLocks

SELECT_MAX = 1024
"""``select`` takes descriptors below that."""

LOOKS = 300
"""So many looks at a process that does nothing but begin programs meet one that begins."""


@pytest.fixture
def name() -> Incarnation:
    """Return an incarnation that no test beside this one has; the lock of a worker is named so."""
    return Incarnation(uuid.uuid4().hex)


async def _proved_dead(one: Guard, name: Incarnation) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await LivenessLocks(one.lock.parent).dead(name)


@pytest.mark.parametrize("how", ["daemon", "orphan", "frozen"])
def test_a_death_is_proved_once_the_strays_are_dead(
    guard: StartGuard, name: Incarnation, how: str
) -> None:
    """A daemon has closed the lock; the others hold it, and nobody is left who would end them."""
    one = guard(incarnation=name)
    worker, stray = one.started(), int(one.order("fork", how))
    murder(one.guardian_pid, worker)
    one.wait()
    until(lambda: not alive(worker))
    if how == "daemon":
        until(lambda: lock_is_free(one.lock))
    held, lived = not lock_is_free(one.lock), alive(stray)
    asyncio.run(_proved_dead(one, name))

    assert lived
    assert held == (how != "daemon")
    until(lambda: not alive(stray))


def test_nobody_is_a_stray_whose_worker_lives(guard: StartGuard, name: Incarnation) -> None:
    one = guard(incarnation=name)
    worker, child = one.started(), int(one.order("fork", "daemon"))
    asyncio.run(LivenessLocks(one.lock.parent).end_strays(name))

    assert sorted((worker, child)) == sorted(strays.look(name)[0])
    assert one.order("beat", 60) == "beaten"


def test_strays_whose_death_nobody_waits_for_are_ended(
    guard: StartGuard, name: Incarnation
) -> None:
    one = guard(incarnation=name)
    worker, stray = one.started(), int(one.order("fork", "orphan"))
    murder(one.guardian_pid, worker)
    until(lambda: not alive(worker))
    asyncio.run(LivenessLocks(one.lock.parent).end_strays(name))

    until(lambda: not alive(stray))


def test_a_worker_of_another_pid_namespace_is_not_taken_for_dead(
    guard: StartGuard, name: Incarnation
) -> None:
    """Its pid means nothing here."""
    one = guard(incarnation=name)
    worker = one.started()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    space = guardian.identity(os.getpid())[1]
    one.lock.write_text(json.dumps({"worker": [gone.pid, space + 1, 1]}))
    asyncio.run(LivenessLocks(one.lock.parent).end_strays(name))
    spared = alive(worker)
    one.lock.write_text(json.dumps({"worker": [gone.pid, space, 1]}))
    asyncio.run(LivenessLocks(one.lock.parent).end_strays(name))

    assert spared
    assert not alive(worker)


def test_a_stray_of_nested_workers_belongs_to_each(guard: StartGuard, name: Incarnation) -> None:
    above = guard(incarnation=name, argv=[sys.executable, "-m", "tests.guardian.above"])
    told = json.loads(above.answer())

    assert {above.started(), told["guardian"], told["worker"]} == set(strays.look(name)[0])


def test_a_stray_that_just_begins_a_program_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Incarnation
) -> None:
    """While a program begins, the kernel shows no environment of its process."""
    again = tmp_path / "again"
    again.write_text('#!/bin/sh\nexec "$0"\n')
    again.chmod(0o755)
    monkeypatch.setenv(guardian.GUARDED, name)
    stray = subprocess.Popen([again])
    try:
        looks = [(number, *strays.look(name)) for number in range(LOOKS)]
        ended = stray.poll()
    finally:
        stray.kill()
        stray.wait()

    assert ended is None, "something else ended the stray"
    # On a crowded machine it may show no environment for too long: then nobody calls it dead.
    whole = [(number, found) for number, found, complete in looks if complete]
    assert whole
    assert [] == [(number, found) for number, found in whole if found != [stray.pid]]


@pytest.fixture
def two(
    monkeypatch: pytest.MonkeyPatch, name: Incarnation
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Return two strays."""
    monkeypatch.setenv(guardian.GUARDED, name)
    both = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    yield both
    for stray in both:
        stray.kill()
        stray.wait()


class NobodyDies:
    """What `select.poll` returns, of processes whose disk hangs."""

    def register(self, handle: int, events: int) -> None:
        """Wait for one more."""

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        """Return nothing, as after the timeout."""
        return []


def test_a_stray_that_does_not_die_saves_no_other(
    two: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, name: Incarnation
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(select, "poll", NobodyDies)
        ended = strays.end(name)

    assert not ended
    assert [-signal.SIGKILL] * 2 == [stray.wait(PATIENCE_S) for stray in two]


def test_a_process_with_many_open_files_ends_strays(
    two: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, name: Incarnation
) -> None:
    """Its descriptors have numbers that ``select`` does not take."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    pidfd_open = os.pidfd_open

    def high(pid: int) -> int:
        handle = pidfd_open(pid)
        try:
            return fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, SELECT_MAX)
        finally:
            os.close(handle)

    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * SELECT_MAX), most))
    try:
        monkeypatch.setattr(os, "pidfd_open", high)
        ended = strays.end(name)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))

    assert ended
    assert [-signal.SIGKILL] * 2 == [stray.wait(PATIENCE_S) for stray in two]


def test_one_look_that_finds_nobody_proves_nothing(
    two: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, name: Incarnation
) -> None:
    """A stray may have forked behind the look, and ended before it was looked at."""
    listed = os.listdir
    missed = [str(stray.pid) for stray in two]

    def behind(path: str) -> list[str]:
        found = [one for one in listed(path) if one not in missed]
        missed.clear()
        return found

    monkeypatch.setattr(os, "listdir", behind)

    assert strays.end(name)
    assert [-signal.SIGKILL] * 2 == [stray.wait(PATIENCE_S) for stray in two]


def test_a_process_that_shows_no_environment_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, name: Incarnation
) -> None:
    """It may be a stray that takes long to begin a program."""
    monkeypatch.setattr(strays, "EXEC_S", 0.0)
    monkeypatch.setattr(strays, "_read", lambda pid: b"")
    monkeypatch.setattr(strays, "_end_of_environment", lambda pid: 0)

    assert not strays.end(name)


def test_what_cannot_be_read_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch, name: Incarnation
) -> None:
    def out_of_files(*_: object) -> object:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(guardian, "open", out_of_files, raising=False)
    monkeypatch.setattr(strays, "open", out_of_files, raising=False)

    with pytest.raises(OSError, match="Too many"):
        guardian.identity(os.getpid())
    assert not strays.end(name)
    assert 0 == guardian.parent_of(os.getpid()), "a guardian looks again"
