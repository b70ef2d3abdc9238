"""What a guardian does once all are dead: it gives up what they held elsewhere."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from tests.guardian.conftest import StartGuard
from tests.guardian.ground import (
    PATIENCE_S,
    Guard,
    freeze,
    lock_is_free,
    murder,
    seen,
    state,
    thaw,
    until,
)
from understudy.process.guardian import RELEASE_S

NOTES = """
import json, os, sys
what = json.load(sys.stdin)
alive = [pid for pid in what["pids"] if os.path.exists(f"/proc/{pid}")]
descriptors = [name for name in os.listdir("/proc/self/fd") if int(name) > 3]
with open(what["file"], "a") as file:
    print(json.dumps({"alive": alive, "descriptors": descriptors}), file=file)
"""
"""The program: it notes who of the dead is still there. (3 is the listing itself.)"""

HANGS = "import time; time.sleep(1000)"


def release(one: Guard, file: Path, *pids: int, program: str = NOTES) -> None:
    """Tell the guardian, as the worker does, what is to be run at its end."""
    told = json.dumps({"file": str(file), "pids": pids})
    what = {"argv": [sys.executable, "-I", "-S", "-c", program], "input": told}
    one.order("release", json.dumps(what))


def notes(file: Path) -> list[dict[str, list[int]]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize("ending", ["die 9", "end 0"])
def test_it_is_run_once_after_the_last_descendant_was_reaped(
    guard: StartGuard, tmp_path: Path, ending: str
) -> None:
    one = guard()
    worker = one.started()
    below = [int(one.order("fork", how)) for how in ("daemon", "deaf", "frozen", "session")]
    release(one, tmp_path / "notes", worker, *below)
    one.shout(ending)
    one.hear("reaped")

    assert [{"alive": [], "descriptors": []}] == notes(tmp_path / "notes")
    one.wait()
    assert "" == one.said()


def test_it_is_not_run_while_somebody_lives(guard: StartGuard, tmp_path: Path) -> None:
    one = guard()
    release(one, tmp_path / "notes")
    one.order("fork", "daemon")

    assert [] == notes(tmp_path / "notes")


def test_the_last_that_was_told_is_run(guard: StartGuard, tmp_path: Path) -> None:
    one = guard()
    release(one, tmp_path / "first")
    release(one, tmp_path / "second")
    one.shout("die 9")
    one.hear("reaped")

    assert ([], 1) == (notes(tmp_path / "first"), len(notes(tmp_path / "second")))


def test_who_has_released_it_is_not_helped(guard: StartGuard, tmp_path: Path) -> None:
    one = guard()
    release(one, tmp_path / "notes")
    one.order("released")
    one.shout("end 0")
    one.hear("reaped")

    assert [] == notes(tmp_path / "notes")


@pytest.mark.parametrize("released", [False, True])
def test_what_was_said_just_before_the_death_counts(
    guard: StartGuard, tmp_path: Path, *, released: bool
) -> None:
    """The guardian may learn of the death and of the last words at once."""
    one = guard()
    worker = one.started()
    one.order("beat", 60)
    one.hear("until")
    # A guardian that is frozen on its way to wait would read the last words before the death.
    until(lambda: state(one.guardian_pid) == "S")
    freeze(one.guardian_pid)
    release(one, tmp_path / "notes", worker)
    if released:
        one.order("released")
    one.shout("die 9")
    until(lambda: state(worker) == "Z")  # Dead, and not reaped.
    thaw(one.guardian_pid)
    one.hear("reaped")

    assert (0 if released else 1) == len(notes(tmp_path / "notes"))


def test_one_that_hangs_is_cut_and_the_end_is_told(guard: StartGuard, tmp_path: Path) -> None:
    one = guard()
    release(one, tmp_path / "notes", program=HANGS)
    began = time.monotonic()
    one.shout("die 9")
    note = one.hear("reaped")
    one.wait()

    assert 9 == note["signal"]
    assert RELEASE_S <= time.monotonic() - began < RELEASE_S + PATIENCE_S / 2


def test_one_that_is_not_there_harms_nobody(guard: StartGuard) -> None:
    one = guard()
    one.order("release", json.dumps({"argv": ["/nowhere/program"], "input": "x" * 10_000}))
    one.shout("die 9")

    assert 9 == one.hear("reaped")["signal"]
    assert 128 + 9 == one.wait()


def test_the_lock_is_free_before_the_program_is_done(guard: StartGuard, tmp_path: Path) -> None:
    """Proof of death does not wait for a backend that does not answer."""
    one = guard()
    release(one, tmp_path / "notes", program=HANGS)
    one.shout("die 9")

    until(lambda: lock_is_free(one.lock))
    assert one.process.poll() is None
    murder(*(pid for pid in children(one.guardian_pid)))
    one.hear("reaped")


def children(pid: int) -> list[int]:
    """Return the children of a process, once it has some."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    until(lambda: bool(path.read_text().split()))
    return [int(word) for word in path.read_text().split()]


def test_a_guardian_that_dies_with_its_worker_runs_nothing(
    guard: StartGuard, tmp_path: Path
) -> None:
    """What was held ends by itself, later."""
    one = guard()
    worker = one.started()
    release(one, tmp_path / "notes", worker)
    freeze(worker)
    murder(one.guardian_pid, worker)
    one.wait()
    until(lambda: not seen(worker) or os.waitpid(worker, os.WNOHANG)[0] == worker)

    assert [] == notes(tmp_path / "notes")
