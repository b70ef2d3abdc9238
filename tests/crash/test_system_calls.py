"""A kill or an error at any system call of anything that is written leaves the old or the new.

The operations are those of the stores, over the file system (see `formats`). Afterwards a reader
sees what was before or what is after, the operation can be repeated, and what leaders do anyway
removes whatever was left.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest

from tests.crash.formats import DONE, OPERATIONS, UNKNOWN, Ground, Operation, sweep
from tests.support import system_calls, zygote
from tests.support.sampling import quickly
from tests.support.zygote import Zygote

Record = Callable[[str, object], None]

WORK = "tests.crash.formats:work"
PATIENCE_S = 60.0

FAULTS = {"signal=KILL": "", "error=EIO": "Input/output error", "error=ENOSPC": "No space left"}
"""What is injected, and what is told of it."""

needs_strace = pytest.mark.skipif(bool(system_calls.why_not()), reason=system_calls.why_not())


@pytest.fixture(scope="module")
def breeder() -> Iterator[Zygote]:
    """The process from which all others are forked."""
    with zygote.started("tests.crash.formats") as started:
        yield started


@pytest.fixture
def processes(breeder: Zygote) -> Iterator[Zygote]:
    """Start real processes; whatever a test leaves is killed."""
    yield breeder
    breeder.close_children()


@needs_strace
@pytest.mark.parametrize(
    ("name", "fault"), quickly(product(OPERATIONS, FAULTS), tuple(zip(OPERATIONS, cycle(FAULTS))))
)
def test_a_fault_at_any_system_call_leaves_the_old_or_the_new_and_can_be_repeated(
    name: str, fault: str, processes: Zygote, tmp_path: Path, record_property: Record
) -> None:
    operation, log = OPERATIONS[name], tmp_path / "log"
    child = processes.fork(WORK, name, str(_ground(operation, tmp_path / "0").root), gate=True)
    moments = system_calls.moments(child, log)
    codes, seen = [], []
    for number, moment in enumerate(moments, start=1):
        ground = _ground(operation, tmp_path / str(number))
        child = processes.fork(WORK, name, str(ground.root), gate=True)
        with system_calls.traced(child, log, f"{moment.name}:{fault}:when={moment.number}"):
            child.go()
            codes.append(child.wait())
        seen.append(_run(operation.seen, ground))

        assert seen[-1] in {operation.before, operation.after}, moment
        _check_answer(operation, codes[-1], seen[-1], ground, FAULTS[fault])
        _check_recovery(operation, ground)

    record_property("system_calls", len(moments))

    assert moments
    if fault == "signal=KILL":
        assert {-signal.SIGKILL} == set(codes)
        assert operation.before == seen[0], "nothing was done before the first call"


def _check_answer(operation: Operation, code: int, seen: object, ground: Ground, why: str) -> None:
    """Done is done; what is not known to be done is told, with the reason."""
    if not why or not operation.told:
        return
    if code == DONE:
        assert operation.after == seen
        return
    told = Path(f"{ground.root}.error").read_text() if code == UNKNOWN else ""

    assert UNKNOWN == code
    assert why in told


def _check_recovery(operation: Operation, ground: Ground) -> None:
    """Another process does it again, and a leader's sweep leaves no litter."""
    ground = Ground(ground.root)
    _run(operation.work, ground)

    assert operation.after == _run(operation.seen, Ground(ground.root))

    if (ground.root / "flights").exists():
        _run(sweep, Ground(ground.root))
    litter = [path for path in ground.root.rglob("*") if "draft" in path.name]
    values = list(ground.root.glob("flights/register/registry/val.*"))

    assert [] == litter
    assert 1 >= len(values), "the registry's value, and no draft of another one"


def _ground(operation: Operation, root: Path) -> Ground:
    root.mkdir()
    ground = Ground(root)
    _run(operation.begin, ground)
    return Ground(root)


def _run(step: Callable[[Ground], Any], ground: Ground) -> Any:
    async def patiently() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await step(ground)

    return asyncio.run(patiently())
