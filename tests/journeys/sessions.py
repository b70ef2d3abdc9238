"""A session of real processes on this machine, which outlives its applications."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, command
from understudy.api.client import ClusterClient
from understudy.cli.commands.ask import with_client
from understudy.config.configuration import load_configuration

SLOTS = 4

T = TypeVar("T")


class Session:
    """A session on this machine, whose processes are replaced once they have died."""

    def __init__(self, place: Path, *settings: str) -> None:
        self.place = place
        options = [*SESSION_LESS, *harness.impatient(), "-D", "taskmanager.spare-drivers=0"]
        self.options = [*options, *settings]
        overrides = [one for one in self.options if one != "-D"]
        self.configuration = load_configuration(None, overrides)

    def start(self) -> None:
        """Start it."""
        command(self.place, "session", "start", "--slots", str(SLOTS), *self.options)

    async def replace_the_dead(self) -> None:
        """Start what is missing."""
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "session", "start", "--slots", str(SLOTS), *self.options),
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
