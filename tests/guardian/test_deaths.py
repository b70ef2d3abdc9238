"""Whoever dies, all are dead: proved by the lock, and by what the kernel still knows."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.guardian.conftest import StartGuard
from tests.guardian.ground import alive, freeze, lock_is_free, murder, seen, until

DESCENDANTS = ("child", "session", "orphan", "daemon", "deaf", "frozen")
"""Ways to hide from who kills by process group, by parent, by SIGTERM or by descriptors."""


@pytest.mark.parametrize("how", DESCENDANTS)
def test_a_descendant_is_reaped_before_the_lock_is_free(guard: StartGuard, how: str) -> None:
    one = guard()
    worker = one.started()
    descendant = int(one.order("fork", how))
    held = not lock_is_free(one.lock)
    murder(worker)
    until(lambda: lock_is_free(one.lock))
    left = [pid for pid in (worker, descendant) if seen(pid)]

    assert held
    assert [] == left
    assert one.hear("reaped")["signal"] == signal.SIGKILL


def test_a_whole_family_is_reaped_when_the_worker_ends_by_itself(guard: StartGuard) -> None:
    one = guard()
    family = [int(one.order("fork", how)) for how in DESCENDANTS * 3]
    one.order("end", 0)
    until(lambda: lock_is_free(one.lock))

    assert [] == [pid for pid in family if seen(pid)]
    assert 0 == one.wait()


@pytest.mark.parametrize("how", ["the worker", "the parent"])
def test_reaped_is_said_when_all_are_reaped_and_the_lock_is_free(
    guard: StartGuard, how: str
) -> None:
    one = guard()
    worker = one.started()
    family = [worker, *(int(one.order("fork", how)) for how in DESCENDANTS)]
    if how == "the worker":
        murder(worker)
    else:
        one.say(kill="it was asked for")
    note = one.hear("reaped")
    left = [pid for pid in family if seen(pid)]
    free = lock_is_free(one.lock)

    assert [] == left
    assert free
    assert ("ended" if how == "the worker" else "it was asked for") == note["reason"]
    assert 128 + signal.SIGKILL == one.wait() == note["code"]


def test_the_note_in_the_lock_tells_when_the_death_was_seen(guard: StartGuard) -> None:
    one = guard()
    murder(one.started())
    note = one.hear("reaped")

    assert note == json.loads(one.lock.read_text())


@pytest.mark.parametrize("also", [(), ("worker",)])
def test_the_worker_dies_with_its_guardian(guard: StartGuard, also: tuple[str, ...]) -> None:
    one = guard()
    worker = one.started()
    murder(one.guardian_pid, *(worker for _ in also))
    until(lambda: lock_is_free(one.lock))

    # The kernel closes the files of a process that dies before it is seen to be dead.
    until(lambda: not alive(worker))
    assert -signal.SIGKILL == one.wait()


@pytest.mark.parametrize("how", ["child", "session", "orphan", "deaf", "frozen"])
def test_the_lock_is_held_until_the_last_descendant_is_dead(guard: StartGuard, how: str) -> None:
    """Guardian and worker are dead, but what they left is not: nobody may take their place."""
    one = guard()
    worker = one.started()
    descendant = int(one.order("fork", how))
    murder(one.guardian_pid, worker)
    one.wait()
    until(lambda: not alive(worker))
    free_too_early = lock_is_free(one.lock)
    murder(descendant)
    until(lambda: lock_is_free(one.lock))

    assert not free_too_early
    # The kernel closes the files of a process that dies before it is seen to be dead.
    until(lambda: not alive(descendant))


def test_the_lock_is_held_while_the_guardian_stands_still(guard: StartGuard) -> None:
    one = guard()
    worker = one.started()
    freeze(one.guardian_pid)
    murder(worker)
    until(lambda: not alive(worker))

    assert not lock_is_free(one.lock)


def test_one_lock_is_held_by_one_process(guard: StartGuard) -> None:
    one = guard()
    one.started()
    other = guard()

    assert 75 == other.wait()
    assert "another process holds this lock" in other.said()


def test_no_lock_is_left_of_a_worker_that_held_nothing(guard: StartGuard) -> None:
    one = guard()
    one.order("released")
    one.order("end", 0)
    one.wait()

    assert not one.lock.parent.exists()


def test_scratch_is_removed_once_all_are_dead(guard: StartGuard, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "blockmgr").mkdir(parents=True)
    one = guard(scratch=[str(scratch), str(tmp_path / "never made")])
    murder(one.started())
    one.hear("reaped")

    assert not scratch.exists()


def test_strays_are_cleared_away_while_the_worker_lives(guard: StartGuard) -> None:
    """What lost its own guardian comes to the one above: it is told to settle."""
    one = guard()
    worker = one.started()
    strays = [int(one.order("fork", how)) for how in ("orphan", "daemon")]
    child = int(one.order("fork", "child"))
    answer = one.order("settle", 7)
    left = [pid for pid in strays if seen(pid)]

    assert {"settled": 7} == json.loads(answer)
    assert [] == left
    assert alive(worker)
    assert alive(child)


def test_the_worker_gets_no_descriptor_of_its_guardian_but_its_own(guard: StartGuard) -> None:
    one = guard()
    worker = one.started()
    one.order("beat", 60)
    held = {link.readlink() for link in Path(f"/proc/{worker}/fd").iterdir()}
    up = Path(f"/proc/{one.guardian_pid}/fd/{_up_of(one.guardian_pid)}").readlink()

    assert one.lock in held
    assert up not in held


def _up_of(guardian_pid: int) -> int:
    """Return the number of the guardian's line to its parent, as its command line names it."""
    spec = Path(f"/proc/{guardian_pid}/cmdline").read_bytes().split(b"\0")[-2]
    return int(json.loads(spec)["up"])
