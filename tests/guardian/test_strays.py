"""What a worker leaves when its guardian is killed with it is found by its environment."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.guardian.conftest import StartGuard
from tests.guardian.ground import PATIENCE_S, Guard, alive, lock_is_free, murder, until
from understudy.model import Incarnation
from understudy.process import guardian, strays
from understudy.process.liveness_lock import LivenessLocks

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

    assert sorted((worker, child)) == sorted(strays.of(name))
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

    assert {above.started(), told["guardian"], told["worker"]} == set(strays.of(name))


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
        seen = {tuple(strays.of(name)) for _ in range(LOOKS)}
    finally:
        stray.kill()
        stray.wait()

    assert {(stray.pid,)} == seen
