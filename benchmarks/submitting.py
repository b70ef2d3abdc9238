"""What a session shows when many submit to it, one measure for each system."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import Series

CLIENTS = 50
ENDED = {"FINISHED", "FAILED", "CANCELED"}
POLL_S = 1.0
WATCHED_S = 300.0
"""So long at most: applications start processes, and a thousand may take longer than that."""

STEPS = 8
"""So often the costs of ended applications are noted."""


@dataclass(frozen=True)
class Cost:
    """What the leader has used after so many applications have ended."""

    ended: int
    memory: int
    """Resident, in bytes."""
    processor_s: float


@dataclass
class Found:
    """What one session has shown."""

    system: str
    acknowledged: list[float] = field(default_factory=list)
    """How long each submission took until it was acknowledged as durable, in seconds."""
    whole_s: float = 0.0
    """... and all of them together."""
    waiting: int = 0
    """How many had not ended when the leader was killed."""
    served_s: float = 0.0
    """From then until another one served all of them."""
    costs: list[Cost] = field(default_factory=list)

    @property
    def series(self) -> Series:
        """Return the submissions as a series."""
        return Series(self.system, tuple(self.acknowledged))

    @property
    def rate(self) -> float:
        """Return the submissions that were acknowledged in a second."""
        return len(self.acknowledged) / self.whole_s

    def per_thousand(self) -> tuple[float, float]:
        """Return what a thousand ended applications have cost: megabytes, processor seconds."""
        first, last = self.costs[0], self.costs[-1]
        thousands = max(last.ended - first.ended, 1) / 1000
        grown = (last.memory - first.memory) / (1 << 20)
        return grown / thousands, (last.processor_s - first.processor_s) / thousands

    async def submit_all(self, count: int, submit: Callable[[int], Awaitable[object]]) -> None:
        """Let fifty clients submit so many, each the next one once the last is acknowledged."""
        numbers = iter(range(count))

        async def client() -> None:
            for number in numbers:
                began = time.monotonic()
                await submit(number)
                self.acknowledged.append(time.monotonic() - began)

        began = time.monotonic()
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        self.whole_s = time.monotonic() - began

    async def note_costs(self, count: int, look: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        """Note what the leader uses until all have ended, or time is up.

        ``look``: how many have ended, and the leader's pid.
        """
        until = time.monotonic() + WATCHED_S
        ended = -1
        while ended < count and time.monotonic() < until:
            await asyncio.sleep(POLL_S)
            ended, leader = await look()
            if not self.costs or ended == count or ended >= self._next(count):
                self.costs.append(Cost(ended, _memory(leader), _processor_s(leader)))

    def _next(self, count: int) -> int:
        return self.costs[-1].ended + max(count // STEPS, 1)


def _memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _processor_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
