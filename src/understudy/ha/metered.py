"""What this process has asked of the register: how often, how it went, how long it took.

Numbers only: who shows them to whom is the business of ``api.metrics``. The time is the event
loop's, so a test that supplies the loop supplies the time.
"""

from __future__ import annotations

import asyncio
import enum
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TypeVar

from understudy.errors import DataError
from understudy.ha.register import Conflict, Entry, Register, status_of

T = TypeVar("T")

LATENCIES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""From a file that is cached, to the deadline of an operation."""


class Durations:
    """How many took how long: a histogram with fixed buckets."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """``bounds`` are the upper ones, inclusive, in seconds; above the last is one more."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def note(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        """Return how many there were."""
        return sum(self.counts)


class Outcome(enum.Enum):
    """How an operation of the register went; the value is what metrics show."""

    OK = "ok"
    CONFLICT = "conflict"
    DATA_ERROR = "data_error"
    UNKNOWN = "unknown"
    """The register failed, or did not answer before the deadline."""
    GIVEN_UP = "given_up"
    """Whoever asked did not wait for the answer."""


class MeteredRegister:
    """A register that counts and times what is asked of it; see `Register`."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self.operations: dict[tuple[str, Outcome], Durations] = {}
        """By verb and outcome, as far as there were any."""

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        return await self._timed("load", self._register.load(key))

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """See `Register.swap`."""
        return await self._timed("swap", self._register.swap(key, value, expected))

    async def keys(self, prefix: str) -> list[str]:
        """See `Register.keys`."""
        return await self._timed("keys", self._register.keys(prefix))

    def changes(self, key: str) -> AsyncIterator[None]:
        """See `Register.changes`: how long nothing changes says nothing of the register."""
        return self._register.changes(key)

    def status(self) -> Mapping[str, object]:
        """See `Informative.status`."""
        return status_of(self._register)

    async def _timed(self, verb: str, work: Awaitable[T]) -> T:
        loop = asyncio.get_running_loop()
        began, outcome = loop.time(), Outcome.UNKNOWN
        try:
            answer = await work
            outcome = Outcome.OK
            return answer
        except Conflict:
            outcome = Outcome.CONFLICT
            raise
        except DataError:
            outcome = Outcome.DATA_ERROR
            raise
        except asyncio.CancelledError:
            outcome = Outcome.GIVEN_UP
            raise
        finally:
            known = self.operations.setdefault((verb, outcome), Durations(LATENCIES_S))
            known.note(loop.time() - began)
