"""A task of a cleanup: how often it is tried, what a try leaves behind, what people see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from understudy.config import Configuration, options
from understudy.errors import DataError, StorageError

FAILURES = (OSError, TimeoutError, DataError, StorageError)
"""What a later try may not meet again."""


@dataclass(frozen=True)
class CleanupStrategy:
    """How a failed task is tried again (Flink's ``cleanup-strategy``)."""

    kind: str
    attempts: int
    initial_s: float
    maximum_s: float

    @staticmethod
    def of(configuration: Configuration) -> CleanupStrategy:
        """Return the configured strategy."""
        kind = configuration.get(options.CLEANUP_TYPE)
        if kind == "fixed-delay":
            delay_s = configuration.get(options.CLEANUP_FIXED_DELAY)
            attempts = configuration.get(options.CLEANUP_FIXED_ATTEMPTS)
            return CleanupStrategy(kind, attempts, delay_s, delay_s)
        if kind == "none":
            return CleanupStrategy(kind, 0, 0.0, 0.0)
        return CleanupStrategy(
            kind,
            configuration.get(options.CLEANUP_ATTEMPTS),
            configuration.get(options.CLEANUP_INITIAL),
            configuration.get(options.CLEANUP_MAX),
        )

    def pause_s(self, failures: int) -> float | None:
        """Return the pause after so many failures; None to leave it to a person."""
        if failures > self.attempts:
            return None
        return float(min(self.initial_s * 2 ** min(failures - 1, 60), self.maximum_s))


@dataclass
class CleanupView:
    """One task that is not done yet, as people see it."""

    application_id: str
    label: str
    failures: int = 0
    error: str = ""
    given_up: bool = False
    next_try: float | None = None
    """When it is tried again, by the event loop's clock; None while it is tried or given up."""
    used: int = 0
    """Failures since it began or a person wanted it tried again."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Effort:
    """One try of a task: ends with the first failure, unless what fails is to be left behind."""

    def __init__(self, *, leave: bool) -> None:
        self._leave = leave
        self.left: dict[str, str] = {}
        """What could not be done away with, and why."""

    async def make(self, path: str, operation: Callable[[], Awaitable[object]]) -> bool:
        """Do something about a path; False if the path is left behind instead."""
        try:
            await operation()
        except FAILURES as error:
            if not self._leave:
                raise
            self.left[path] = str(error) or "timeout"
            return False
        return True
