"""A cleanup task: its retry strategy, one try of it, and the view of it for people."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from understudy.config import Configuration, options
from understudy.core.backoff import Backoff
from understudy.errors import DataError, StorageError

FAILURES = (OSError, TimeoutError, DataError, StorageError)
"""Errors after which a task is tried again."""


@dataclass(frozen=True)
class CleanupStrategy:
    """When a failed task is tried again (Flink's ``cleanup-strategy``)."""

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
        """Return the pause after this many failures; None: the task waits for a person."""
        if failures > self.attempts:
            return None
        return Backoff(self.initial_s, self.maximum_s).pause_s(failures)


@dataclass
class CleanupView:
    """One open task, as people see it."""

    application_id: str
    label: str
    failures: int = 0
    error: str = ""
    given_up: bool = False
    next_try: float | None = None
    """Time of the next try, by the event loop's clock; None during a try or once given up."""
    used: int = 0
    """Failures since the start or since a person's last retry."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Effort:
    """One try of a task: ends with the first failure, unless failing paths are left behind."""

    def __init__(self, *, leave: bool) -> None:
        self._leave = leave
        self.left: dict[str, str] = {}
        """Paths that could not be removed, each with the error."""

    async def make(self, path: str, operation: Callable[[], Awaitable[object]]) -> bool:
        """Run an operation on a path; False if it failed and the path is left behind."""
        try:
            await operation()
        except FAILURES as error:
            if not self._leave:
                raise
            self.left[path] = str(error) or "timeout"
            return False
        return True
