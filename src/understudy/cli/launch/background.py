"""Background processes: they outlive the command that starts them, and later commands find them.

A process leads its own session, prints into a log file, and has a record file with its pid, start
time and boot id. A process that reuses the pid, or has it after a reboot, is never mistaken for
the recorded one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from understudy.ha import own_directory
from understudy.ha.drafts import published
from understudy.process.guardian import start_ticks

KILL_S = 5.0
"""How long a killed process may take to end."""

TAIL_BYTES_MAX = 64 << 10
"""Part of a log's end that is searched for its last lines."""


class Background(msgspec.Struct, frozen=True):
    """A background process as its record identifies it."""

    pid: int
    started: int
    """Start time, in clock ticks since the machine booted."""
    boot: str
    """Id of the machine's boot."""
    log: str
    about: dict[str, str] = {}
    """Facts that the starter wants to read back."""

    @property
    def lives(self) -> bool:
        """Return whether the process is alive; a zombie is not."""
        return bool(self.started) and (self.boot, self.started) == (_boot(), start_ticks(self.pid))


def start(
    command: Sequence[str],
    record: Path,
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    fds: tuple[int, ...] = (),
    about: Mapping[str, str] | None = None,
) -> Background:
    """Start a background process and write its record. Raises ``OSError``.

    The process appends its output to the log. The record must not name a live process: check with
    `recorded` first, inside `alone`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [*command],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=None if environment is None else {**environment},
            pass_fds=fds,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    told = Background(process.pid, start_ticks(process.pid), _boot(), str(log), {**(about or {})})
    try:
        write(record, told)
    except OSError:
        process.kill()  # No later command would find it.
        process.wait(KILL_S)
        raise
    process.returncode = 0  # It outlives this command: no waiting for it.
    return told


def recorded(record: Path) -> Background | None:
    """Return the process of a record; None if the record is missing or unreadable."""
    try:
        return msgspec.json.decode(record.read_bytes(), type=Background)
    except (OSError, msgspec.MsgspecError):
        return None


def end(process: Background, grace_s: float) -> bool:
    """End a process: SIGTERM, then SIGKILL after ``grace_s``. Return whether it has ended.

    Blocks until the process has ended; returns at once if it is not alive.
    """
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_S)):
        try:
            handle = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return True
        try:
            # The pid may belong to another process by now: check through the handle.
            if not process.lives:
                return True
            signal.pidfd_send_signal(handle, number)
            if is_over(handle, patience_s):
                return True
        except ProcessLookupError:
            return True
        finally:
            os.close(handle)
    return not process.lives


def is_over(handle: int, patience_s: float) -> bool:
    """Wait for a process to end, by its pidfd; return whether it ended in time."""
    watch = select.poll()
    watch.register(handle, select.POLLIN)
    return bool(watch.poll(patience_s * 1000))


def last_lines(log: Path, count: int) -> list[str]:
    """Return the last lines of a log; none if the log cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES_MAX))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold a directory's records: one command at a time reads and changes them."""
    own_directory.make(directory, way_out="set env.pid.dir to another one")
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write(path: Path, process: Background) -> None:
    """Write a record atomically, replacing an existing one. Raises ``OSError``."""
    with published(path) as file:
        file.write(msgspec.json.encode(process))


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
