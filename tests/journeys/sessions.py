"""A session of real processes on this machine, which outlives its applications."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, command
from understudy.api.client import ClusterClient
from understudy.cli.commands.ask import with_client
from understudy.errors import UnderstudyError

SLOTS = 4

KILL_S = 5.0
"""How long a leader leads, at least, before it is killed."""

ENDED = frozenset({"FINISHED", "FAILED", "CANCELED"})

T = TypeVar("T")


class Session:
    """A session on this machine, whose processes are replaced once they have died."""

    def __init__(self, place: Path, *settings: str, taskmanagers: int = 1) -> None:
        self.place = place
        options = [*SESSION_LESS, *harness.impatient(), "-D", "taskmanager.spare-drivers=0"]
        self.options = [*options, *settings]
        slots = SLOTS // taskmanagers
        self._start = ["session", "start", "--slots", str(slots), *self.options]
        self._taskmanagers = str(taskmanagers)
        overrides = [one for one in self.options if one != "-D"]
        self.configuration = harness.configuration(
            place, dict(one.split("=", 1) for one in overrides)
        )

    def start(self) -> None:
        """Start it."""
        command(self.place, *self._start, "--taskmanagers", self._taskmanagers)

    async def replace_the_dead(self) -> None:
        """Start what is missing."""
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, *self._start),
            cwd=self.place,
            env=harness.environment(self.place),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await asyncio.wait_for(process.wait(), harness.PATIENCE_S)

    async def ask(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Call a function with a client of the session; needs its $XDG_STATE_HOME."""
        found: T = await with_client(self.configuration, "session", work)
        return found

    async def kill_leaders(self, client: ClusterClient, *, taskmanagers: int = 0) -> int:
        """Kill the leader's worker at once, and again and again until cancelled; return how often.

        ``taskmanagers``: after so many leaders, a TaskManager is killed as well; 0 for never.
        """
        killed = 0
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                with contextlib.suppress(UnderstudyError, OSError):
                    leader = await leader_of(client)
                    os.kill(leader, 9)
                    killed += 1
                    if taskmanagers and not killed % taskmanagers:
                        harness.kill(self.workers("taskmanager")[:1])
                    await self.replace_the_dead()
                await asyncio.sleep(KILL_S)
        return killed

    def workers(self, role: str) -> list[int]:
        """Return the processes of a role, without their guardians."""
        found = harness.processes_of(self.place)
        return [pid for pid, line in found.items() if line.rstrip().endswith(f"{role}_process")]


@pytest.fixture
def session(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Return a session that runs, and end all its processes afterwards."""
    with running(Session(place), monkeypatch) as one:
        yield one


@contextlib.contextmanager
def running(one: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Start a session; end all its processes afterwards."""
    monkeypatch.setenv("XDG_STATE_HOME", str(one.place / "state"))
    try:
        one.start()
        yield one
    finally:
        harness.kill(harness.processes_of(one.place))


async def leader_of(client: ClusterClient) -> int:
    """Return the process that leads, once one does."""
    told = await client.get("/ha/status", awaits_leader=True)
    return int(told["leader"]["pid"])


async def applications(client: ClusterClient) -> dict[str, str]:
    """Return the status of each application, as whoever leads tells."""
    told: Any = await client.get("/applications/overview", awaits_leader=True)
    return {one["id"]: one["status"] for one in told["applications"]}
