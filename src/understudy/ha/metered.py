"""Counts and durations of this process's register operations, by outcome.

Numbers only: ``api.metrics`` shows them. The time is the event loop's, so a test that supplies the
loop supplies the time.
"""

from __future__ import annotations

import asyncio
import enum
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TypeVar

from understudy.errors import DataError
from understudy.ha.register import Conflict, Entry, Pushed, Register, status_of

T = TypeVar("T")

LATENCIES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Bucket limits, from a cached file to the deadline of an operation."""


class Durations:
    """A histogram of durations with fixed buckets."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """``bounds``: inclusive upper limits of the buckets in seconds; one more bucket follows."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def note(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        """Return the number of durations."""
        return sum(self.counts)


class OperationOutcome(enum.Enum):
    """The outcome of a register operation; metrics show the value."""

    OK = "ok"
    CONFLICT = "conflict"
    DATA_ERROR = "data_error"
    UNKNOWN = "unknown"
    """The register failed, or did not answer before the deadline."""
    GIVEN_UP = "given_up"
    """The caller was cancelled before the answer."""


class MeteredRegister:
    """A register that counts and times the operations of another one."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self.operations: dict[tuple[str, OperationOutcome], Durations] = {}
        """Durations by verb and outcome."""

    async def load(self, key: str) -> Entry | None:
        """Load from the other register, timed."""
        return await self._timed("load", self._register.load(key))

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Swap in the other register, timed."""
        return await self._timed("swap", self._register.swap(key, value, expected))

    async def keys(self, prefix: str) -> list[str]:
        """List the other register's keys, timed."""
        return await self._timed("keys", self._register.keys(prefix))

    def changes(self, key: str) -> AsyncIterator[Pushed | None]:
        """Follow a key, untimed: the time without a change says nothing about the register."""
        return self._register.changes(key)

    def status(self) -> Mapping[str, object]:
        """Return the other register's status."""
        return status_of(self._register)

    async def _timed(self, verb: str, work: Awaitable[T]) -> T:
        loop = asyncio.get_running_loop()
        began, outcome = loop.time(), OperationOutcome.UNKNOWN
        try:
            answer = await work
            outcome = OperationOutcome.OK
            return answer
        except Conflict:
            outcome = OperationOutcome.CONFLICT
            raise
        except DataError:
            outcome = OperationOutcome.DATA_ERROR
            raise
        except asyncio.CancelledError:
            outcome = OperationOutcome.GIVEN_UP
            raise
        finally:
            known = self.operations.setdefault((verb, outcome), Durations(LATENCIES_S))
            known.note(loop.time() - began)
