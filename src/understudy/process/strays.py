"""Strays: processes of this host that outlive the guarded process that they descend from.

A guardian leaves none. If a guardian was killed together with those above it, for instance by
``pkill -9``, nobody is left to reap what the guarded process has started. Such a process is known
by its environment, which names every guarded process that it descends from. An incarnation is never
used twice, so whoever finds a stray may kill it.
"""

from __future__ import annotations

import os
import select
import signal
import time

from understudy.model import Incarnation
from understudy.process import guardian

END_S = 5.0
"""How long strays may take to die. The kernel needs milliseconds, unless a disk hangs."""

_MARK = f"{guardian.GUARDED}=".encode()


def of(incarnation: Incarnation) -> list[int]:
    """Return the living processes that descend from a guarded process; itself included."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if _is_of(pid, incarnation)]


def end(incarnation: Incarnation) -> bool:
    """Kill the strays of a process that is dead; return whether none is left. Blocks."""
    deadline = time.monotonic() + END_S
    while found := of(incarnation):  # Meanwhile they may have forked.
        for pid in found:
            if not _killed(pid, incarnation, deadline):
                return False
    return True


def _is_of(pid: int, incarnation: Incarnation) -> bool:
    """Return whether a living process of this user descends from a guarded process."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return False
    marks = (one.removeprefix(_MARK) for one in variables if one.startswith(_MARK))
    return any(incarnation.encode() in one.split(b",") for one in marks)


def _killed(pid: int, incarnation: Incarnation, deadline: float) -> bool:
    """Kill a stray and wait for its death; never a foreign process that has got its pid."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not _is_of(pid, incarnation):
            return True
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        # Ready once all threads of the process are dead.
        dead, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
        return bool(dead)
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)
