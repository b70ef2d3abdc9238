"""Faults at single system calls of a real process, injected by ``strace``.

The process waits at its gate, so that the count starts with the code under test.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.zygote import PATIENCE_S, Child

WRITING = (
    "mkdir",
    "openat",
    "write",
    "pwrite64",
    "ftruncate",
    "fsync",
    "rename",
    "unlink",
    "unlinkat",
    "rmdir",
)
"""The calls that change a file system (``openat`` also opens existing files)."""

NOTHING_SKIPPED = "NOTHING_SKIPPED"
"""Environment variable that turns skipped tests into failures: see `.ci/run`."""

_CALL = re.compile(r"^(?:\d+ +)?(\w+)\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Moment:
    """The n-th call of one name, counted from 1."""

    name: str
    number: int

    def __str__(self) -> str:
        """Return a description for people."""
        return f"{self.name} {self.number}"


@functools.cache
def why_not() -> str:
    """Return why no faults can be injected here; empty if they can."""
    why = _why_not()
    if why and os.environ.get(NOTHING_SKIPPED):
        raise RuntimeError(f"{why}, and no test may be skipped here: apt-get install strace")
    return why


def _why_not() -> str:
    if shutil.which("strace") is None:
        return "strace is not installed"
    command = ["strace", "-o", "/dev/null", "-e", "inject=close:error=EIO:when=1000"]
    with subprocess.Popen(["sleep", "60"]) as target:
        try:
            with subprocess.Popen(
                [*command, "-p", str(target.pid)], stderr=subprocess.PIPE, text=True
            ) as probe:
                assert probe.stderr is not None
                told = probe.stderr.readline().strip()
                probe.terminate()
        finally:
            target.kill()
    return "" if "attached" in told else f"strace cannot attach here: {told}"


def moments(child: Child, log: Path) -> list[Moment]:
    """Run a child that waits at its gate to its end; return its writing calls in order."""
    with traced(child, log, ""):
        child.go()
        child.wait()
    counts: Counter[str] = Counter()
    found = []
    for name in _CALL.findall(log.read_text()):
        counts[name] += 1
        found.append(Moment(name, counts[name]))
    return found


@contextlib.contextmanager
def traced(child: Child, log: Path, fault: str) -> Iterator[None]:
    """Trace a child that waits at its gate; ``fault`` is an ``inject`` expression of strace."""
    command = ["strace", "-f", "-o", str(log), "-e", f"trace={','.join(WRITING)}"]
    if fault:
        command += ["-e", f"inject={fault}"]
    with subprocess.Popen(
        [*command, "-p", str(child.pid)], stderr=subprocess.PIPE, text=True
    ) as tracer:
        try:
            assert tracer.stderr is not None
            told = tracer.stderr.readline()
            assert "attached" in told, told
            yield
        finally:
            child.close()
            tracer.wait(PATIENCE_S)
