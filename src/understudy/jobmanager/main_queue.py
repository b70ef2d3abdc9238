"""Which applications may have a process of ``main``: a few start at a time, and not too many live.

An application that waits is CREATED: it holds no process, and is shown and cancelled like others.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

from understudy.config.options import MAINS_MAX
from understudy.jobmanager.main_process import MainProcess, MainProcesses

Rank = tuple[float, ...]
"""Lower ranks come first; equal ones in the order of their arrival."""

STARTING_MAX = 2
"""A process of ``main`` imports for a second, and needs a core for that."""


class MainQueue:
    """Turns to have a process of ``main``."""

    def __init__(self, mains: MainProcesses, limit: int) -> None:
        """``limit``: so many processes of ``main`` live at once."""
        self.mains = mains
        self._limit = limit
        self._living = 0
        self._starting = 0
        self._numbers = itertools.count()
        self._waiting: list[tuple[Rank, int, asyncio.Future[None]]] = []
        self._places: dict[int, int] | None = None
        """Known once somebody asks, until the queue changes: all that wait may be shown at once."""

    def turn(self, rank: Rank) -> Turn:
        """Return a turn; as a block, it is waited for, and given back at the end."""
        return Turn(self, rank)

    def why_waiting(self, number: int) -> str:
        """Return why the turn with this number waits, and its place among those that wait."""
        if self._places is None:
            waiting = sorted(one[:2] for one in self._waiting if not one[-1].done())
            self._places = {turn: place for place, (_, turn) in enumerate(waiting, start=1)}
        place = self._places.get(number)
        if place is None:
            return ""
        lacks = f"{self._living} of {self._limit} processes of main live ({MAINS_MAX.key})"
        if self._living < self._limit:
            lacks = "others start first"
        return f"waits to execute main: {lacks} (place {place} of {len(self._places)})"

    def number(self) -> int:
        """Return a number for a turn that begins to wait."""
        return next(self._numbers)

    async def enter(self, rank: Rank, number: int) -> None:
        """Wait until one more process may start, and count it."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, number, granted))
        self._places = None
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.started()
                self.leave()
            granted.cancel()
            self._places = None
            raise

    def _grant(self) -> None:
        while self._waiting and self._living < self._limit and self._starting < STARTING_MAX:
            *_, granted = heapq.heappop(self._waiting)
            self._places = None
            if not granted.done():
                self._living += 1
                self._starting += 1
                granted.set_result(None)

    def started(self) -> None:
        """Let the next process start."""
        self._starting -= 1
        self._grant()

    def leave(self) -> None:
        """Count a process no more."""
        self._living -= 1
        self._grant()


class Turn:
    """One application's turn: while its ``main`` has a process, or waits for one."""

    def __init__(self, queue: MainQueue, rank: Rank) -> None:
        self._queue = queue
        self._rank = rank
        self._number = -1
        self._held = False
        self._starts = False

    async def __aenter__(self) -> Turn:
        """Wait for it."""
        await self.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give it back."""
        self.leave()

    @property
    def waits(self) -> str:
        """Return why it is waited for; empty if it is not."""
        return self._queue.why_waiting(self._number)

    async def wait(self) -> None:
        """Wait for the turn, unless it is held."""
        if not self._held:
            self._number = self._queue.number()
            await self._queue.enter(self._rank, self._number)
            self._held = self._starts = True

    async def take(self, python: str) -> MainProcess:
        """Return a process for ``main``; again after the loss of the last one."""
        await self.wait()
        try:
            return await self._queue.mains.take(python)
        finally:
            self.started()

    def leave(self) -> None:
        """Give the turn back: no process lives. Others may have theirs, before this one's next."""
        if self._held:
            self.started()
            self._held = False
            self._queue.leave()

    def started(self) -> None:
        """Let others start: this one has, or does not use a core for long; only once counts."""
        if self._starts:
            self._starts = False
            self._queue.started()
