"""Faults at single system calls of a real process, by ``strace``.

The process waits at its gate, so that the counting begins where the interesting part does.
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
"""The calls by which a process changes a file system (``openat`` also opens what is there)."""

NOTHING_SKIPPED = "NOTHING_SKIPPED"
"""Set in the environment where a test that cannot run is a failure: see `.ci/run`."""

_CALL = re.compile(r"^(?:\d+ +)?(\w+)\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Moment:
    """The n-th call of one name, counted from 1."""

    name: str
    number: int

    def __str__(self) -> str:
        """Say which moment it is, for people."""
        return f"{self.name} {self.number}"


@functools.cache
def why_not() -> str:
    """Return why no faults can be injected here, or an empty string."""
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
    """Let a child that waits at its gate run to its end; return its writing calls, as they came."""
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
