"""What the process of a job leaves to others when it ends: its children, and the directory.

All else of a process goes with it. What a driver cannot see to be as it was retires it. (Spark's
own things are looked at by its session.)
"""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

from understudy.clock import poll
from understudy.process import guardian

SETTLE_S = 0.5
"""How long children have to end by themselves: many do once nobody holds the other end of their
pipe."""

SETTLE_POLL_S = 0.01


def left_behind(apart: Set[int]) -> list[str]:
    """Say what a job has left, in words that follow a driver's name.

    ``apart`` are the driver's own children. Children of a dead process are the guardian's.
    """
    found = []
    if _children_after(apart):
        found.append("it left child processes")
    try:
        os.stat(".")  # noqa: PTH116 -- what Path.cwd() names may be another one by now
        Path.cwd()
    except OSError:
        found.append("it removed the working directory")
    return found


def _children_after(apart: Set[int]) -> frozenset[int]:
    """Return the children that are still there a moment later."""

    def living() -> frozenset[int]:
        return frozenset(filter(guardian.start_ticks, _children() - apart))

    return poll(living, bool, SETTLE_S, SETTLE_POLL_S)


def _children() -> frozenset[int]:
    """Return our children, and those of the guardian but ourselves."""
    parents = {os.getpid(), os.getppid()}
    try:
        found = frozenset().union(*map(_listed_children, parents))
    except (FileNotFoundError, ProcessLookupError):
        # Not every kernel lists processes by their parent; or a thread has just ended.
        found = _searched_children(parents)
    return found - {os.getpid()}


def _listed_children(parent: int) -> frozenset[int]:
    found: set[int] = set()
    for thread in Path(f"/proc/{parent}/task").iterdir():
        found.update(map(int, (thread / "children").read_bytes().split()))
    return frozenset(found)


def _searched_children(parents: set[int]) -> frozenset[int]:
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return frozenset(pid for pid in pids if guardian.parent_of(pid) in parents)
