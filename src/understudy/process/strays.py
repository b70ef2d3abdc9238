"""Strays: processes of this host that outlive the guarded process that they descend from.

A guardian leaves none. If a guardian was killed together with those above it, for instance by
``pkill -9``, nobody is left to reap what the guarded process has started. Such a process is known
by its environment, which names every guarded process that it descends from. An incarnation is never
used twice, so whoever finds a stray may kill it.
"""

from __future__ import annotations

import contextlib
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

EMPTY_LOOKS = 2
"""So many looks in a row must find nothing: one misses a stray that forks behind it and ends."""

STATE, FLAGS, ENV_END = 0, 6, 48
"""Places in ``/proc/PID/stat`` behind the name of the program (proc(5), counted from its state)."""

PF_KTHREAD = 0x00200000
"""The flag of the kernel's own threads, which never have an environment."""

_MARK = f"{guardian.GUARDED}=".encode()


def look(incarnation: Incarnation) -> tuple[list[int], bool]:
    """Return the living processes that descend from a guarded process, and whether these are all.

    Itself is included. These may not be all if a process could not be looked at.
    """
    found, complete = [], True
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if _is_of(pid, incarnation):
                found.append(pid)
        except OSError:
            complete = False
    return found, complete


def end(incarnation: Incarnation) -> bool:
    """Kill the strays of a process that is dead; return whether surely none is left. Blocks.

    Raises ``OSError`` if the processes cannot be listed.
    """
    deadline = time.monotonic() + END_S
    empty = 0
    while empty < EMPTY_LOOKS:
        found, complete = look(incarnation)
        if not _killed(found, incarnation, deadline) or not complete:
            return False
        empty = 0 if found else empty + 1
    return True


def _is_of(pid: int, incarnation: Incarnation) -> bool:
    """Return whether a living process of this user descends from a guarded process."""
    marks = (one.removeprefix(_MARK) for one in _variables(pid) if one.startswith(_MARK))
    return any(incarnation.encode() in one.split(b",") for one in marks)


def _variables(pid: int) -> list[bytes]:
    """Return the environment of a process; empty if it is dead or another user's.

    The kernel shows none while the process is within ``execve``. Then it is read again. Raises
    ``OSError`` if it cannot be read, and ``TimeoutError`` if that takes longer than `EXEC_S`.
    """
    deadline = time.monotonic() + EXEC_S
    before = None
    try:
        while not (found := _read(pid)):
            after = _end_of_environment(pid)
            # The same end before and after a read: no ``execve`` began or ended meanwhile.
            if after is None or (after and after == before):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {pid} has shown no environment for {EXEC_S:g} s")
            before = after
            os.sched_yield()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
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


def _killed(pids: list[int], incarnation: Incarnation, deadline: float) -> bool:
    """Kill strays, all before any is waited for; return whether all died before the deadline."""
    with contextlib.ExitStack() as stack:
        waiting = select.poll()  # It takes descriptors of any number.
        left, complete = 0, True
        for pid in pids:
            try:
                handle = os.pidfd_open(pid)
                stack.callback(os.close, handle)
                # Never a foreign process that has got its pid.
                if _is_of(pid, incarnation):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    waiting.register(handle, select.POLLIN)
                    left += 1
            except ProcessLookupError:
                continue
            except OSError:
                complete = False
        while left:
            # Ready once all threads of the process are dead.
            dead = waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not dead:
                return False
            for handle, _ in dead:
                waiting.unregister(handle)
                left -= 1
    return complete
