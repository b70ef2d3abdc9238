"""What a job should leave as it found it: the process that it ran in.

A driver runs one job after the other, and the next one must not feel the one before. What cannot
be seen to be as it was retires the driver. (Spark's own things are looked at by its session.)
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

OURS = ("understudy-", "py4j", "fsspecIO", "asyncio_")
"""How the threads are called that belong to the driver: the last two serve a storage on S3, and
begin when it is first used."""

_LIMITS = tuple(
    (name, getattr(resource, name)) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")
)


@dataclass(frozen=True)
class Surroundings:
    """The process, as it is at one moment."""

    threads: frozenset[int]
    children: frozenset[int]
    environment: dict[str, str]
    directory: str
    path: tuple[str, ...]
    umask: int
    signals: tuple[object, ...]
    limits: tuple[tuple[int, int], ...]
    output: tuple[object, ...]

    @staticmethod
    def now(apart: int = 0) -> Surroundings:
        """Look around; ``apart`` is a child that belongs to the driver."""
        return Surroundings(
            threads=frozenset(
                thread.ident or 0
                for thread in threading.enumerate()
                if thread.is_alive() and not thread.name.startswith(OURS)
            ),
            children=_children() - {apart},
            environment=dict(os.environ),
            directory=_directory(),
            path=tuple(sys.path),
            umask=_umask(),
            signals=tuple(signal.getsignal(number) for number in sorted(signal.valid_signals())),
            limits=tuple(resource.getrlimit(number) for _, number in _LIMITS),
            output=(sys.stdout, sys.stderr, _file(1), _file(2)),
        )

    def differences(self, before: Surroundings) -> list[str]:
        """Return what is not as it was, in words that follow a driver's name."""
        found = {
            "it left threads": bool(self.threads - before.threads),
            "it left child processes": bool(self.children - before.children),
            "it changed the environment": self.environment != before.environment,
            "it changed the working directory": self.directory != before.directory,
            "it changed the module path": self.path != before.path,
            "it changed the umask": self.umask != before.umask,
            "it changed signal handlers": self.signals != before.signals,
            "it changed resource limits": self.limits != before.limits,
            "it replaced or closed its output": self.output != before.output,
        }
        return [reason for reason, differs in found.items() if differs]


def _children() -> frozenset[int]:
    """Return our children, and those of the guardian: what they left behind when they ended."""
    parents = {os.getpid(), os.getppid()}
    try:
        return frozenset().union(*map(_listed_children, parents))
    except (FileNotFoundError, ProcessLookupError):
        # Not every kernel lists processes by their parent; or a thread has just ended.
        return _searched_children(parents)


def _listed_children(parent: int) -> frozenset[int]:
    found: set[int] = set()
    for thread in Path(f"/proc/{parent}/task").iterdir():
        found.update(map(int, (thread / "children").read_bytes().split()))
    return frozenset(found)


def _searched_children(parents: set[int]) -> frozenset[int]:
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(entry.path, "stat").read_bytes()
                if int(stat.rpartition(b")")[2].split()[1]) in parents:
                    found.add(int(entry.name))
    return frozenset(found)


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""  # It was removed.


def _umask() -> int:
    """Return the umask, which is read by setting it; meanwhile nothing is open to others."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _file(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
