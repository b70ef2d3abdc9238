"""Single processes of a cluster, each a command in the foreground, as a person starts them."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.journeys import harness
from tests.journeys.harness import COMMAND

Begin = Callable[..., subprocess.Popen[bytes]]
"""Starts a command with arguments; returns the launched process."""

END_S = 30.0


@contextlib.contextmanager
def members(place: Path, log: str = "{role}-{number}.log") -> Iterator[Begin]:
    """Lend a function that starts processes in a place; end them, and all that is left of them.

    What a process prints is added to its ``log``, a name in which ``role`` and ``number`` stand.
    """
    started: list[subprocess.Popen[bytes]] = []

    def begin(role: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (place / log.format(role=role, number=len(started))).open("ab") as file:
            member = subprocess.Popen(
                [*COMMAND, role, *arguments],
                cwd=place,
                env=harness.environment(place),
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        started.append(member)
        return member

    try:
        yield begin
    finally:
        for member in started:
            member.terminate()
        for member in started:
            member.wait(END_S)
        harness.kill(harness.processes_of(place))


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + harness.PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
