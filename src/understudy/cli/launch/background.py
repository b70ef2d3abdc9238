"""Processes in the background: they outlive the command that starts them, and are found again.

A process leads a session of its own, prints into a log file, and is named by a record file that
holds its pid together with the time at which it was started. A pid that was given to somebody else
meanwhile, or before the machine was booted, is never taken for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from understudy.ha import own_directory

KILL_S = 5.0
"""How long a process that was killed may take to be gone."""

TAIL_BYTES_MAX = 64 << 10
"""So much of the end of a log is looked at for its last lines."""


class Background(msgspec.Struct, frozen=True):
    """A process in the background, as its record names it."""

    pid: int
    started: int
    """When it was started, in clock ticks since the machine was booted."""
    boot: str
    """Which boot of the machine that was."""
    log: str
    about: dict[str, str] = {}
    """What whoever started it wants to know again."""

    @property
    def lives(self) -> bool:
        """Say whether it is still there; one that has ended and was not reaped is not."""
        return bool(self.started) and (self.boot, self.started) == (_boot(), _started(self.pid))


def start(
    command: Sequence[str],
    record: Path,
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    fds: tuple[int, ...] = (),
    about: Mapping[str, str] | None = None,
) -> Background:
    """Start a process in the background, and write its record. Raises ``OSError``.

    What it prints is added to the log. Its record must not name a process that lives: ask
    `recorded` first, inside of `alone`.
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
    told = Background(process.pid, _started(process.pid), _boot(), str(log), {**(about or {})})
    try:
        write(record, told)
    except OSError:
        process.kill()  # Nobody would find it again.
        process.wait(KILL_S)
        raise
    process.returncode = 0  # Not ours to wait for: it stays when this command has ended.
    return told


def recorded(record: Path) -> Background | None:
    """Return the process that a record names; None where there is none, or it is unreadable."""
    try:
        return msgspec.json.decode(record.read_bytes(), type=Background)
    except (OSError, msgspec.MsgspecError):
        return None


def end(process: Background, grace_s: float) -> bool:
    """End a process: SIGTERM, and SIGKILL after the grace. Return whether it is gone.

    Blocks until then; one that does not live any more is gone at once.
    """
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_S)):
        try:
            handle = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return True
        try:
            # The handle is on whoever has the number now: it must still be the one that is meant.
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
    """Wait for the end of a process, by its pidfd; return whether it has ended in time."""
    watch = select.poll()
    watch.register(handle, select.POLLIN)
    return bool(watch.poll(patience_s * 1000))


def last_lines(log: Path, count: int) -> list[str]:
    """Return the last lines of a log; none where it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES_MAX))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Let one command at a time look at the records of a directory and change them."""
    own_directory.make(directory, way_out="set env.pid.dir to another one")
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write(path: Path, process: Background) -> None:
    """Publish a record, in place of the one that is there. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(process))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _started(pid: int) -> int:
    """Return when a living process was started; 0 where there is none."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] in {b"Z", b"X"} else int(words[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
