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

EXEC_S = 1.0
"""How long a process may be within ``execve``. The kernel needs microseconds of processor time."""

STATE, FLAGS, ENV_END = 0, 6, 48
"""Places in ``/proc/PID/stat`` behind the name of the program (proc(5), counted from its state)."""

PF_KTHREAD = 0x00200000
"""The flag of the kernel's own threads, which never have an environment."""

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
    marks = (one.removeprefix(_MARK) for one in _variables(pid) if one.startswith(_MARK))
    return any(incarnation.encode() in one.split(b",") for one in marks)


def _variables(pid: int) -> list[bytes]:
    """Return the environment of a process; empty if it is dead or another user's.

    The kernel shows none while the process is within ``execve``. Then it is read again.
    """
    deadline = time.monotonic() + EXEC_S
    before = None
    try:
        while not (found := _read(pid)):
            after = _end_of_environment(pid)
            # The same end before and after a read: no ``execve`` began or ended meanwhile.
            if after is None or (after and after == before) or time.monotonic() > deadline:
                break
            before = after
            os.sched_yield()
    except OSError:
        return []
    return found.split(b"\0")


def _read(pid: int) -> bytes:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()


def _end_of_environment(pid: int) -> int | None:
    """Return the address where the environment ends; 0 within ``execve``, None if there is none."""
    stat = guardian.stat_of(pid)
    if not stat or stat[STATE] in {b"Z", b"X"} or int(stat[FLAGS]) & PF_KTHREAD:
        return None
    return int(stat[ENV_END])


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
