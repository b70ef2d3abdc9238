"""The last known values for times when register or storage is slow: REST waits half a second.

A read that takes longer continues in the background, one at a time, and its value is used later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

PATIENCE_S = 0.5
"""Longest wait of an answer for its data, so that the answer takes less than a second."""


@dataclass(frozen=True)
class Seen(Generic[T]):
    """A value, and how long ago it was read."""

    found: T
    age_s: float = 0.0


class Recent(Generic[T]):
    """A value that is read again and again."""

    def __init__(
        self, read: Callable[[], Awaitable[T]], last: Callable[[], Seen[T] | None]
    ) -> None:
        """``last``: the value seen last, None without one."""
        self._read = read
        self._last = last
        self._overdue: set[asyncio.Future[T]] = set()

    async def look(self) -> Seen[T]:
        """Return the current value, or the one seen last if the read is slow or fails.

        Without an earlier value, raises the error of the read, or ``TimeoutError``.
        """
        if not self._overdue:
            reading = asyncio.ensure_future(self._read())
            try:
                await asyncio.wait({reading}, timeout=PATIENCE_S)
            finally:
                if not reading.done():
                    self._overdue.add(reading)
                    reading.add_done_callback(self._ended)
            if reading.done():
                try:
                    return Seen(reading.result())
                except (OSError, TimeoutError):
                    if self._last() is None:
                        raise
        seen = self._last()
        if seen is None:
            raise TimeoutError(f"nothing was read within {PATIENCE_S:g} s")
        return seen

    def _ended(self, reading: asyncio.Future[T]) -> None:
        self._overdue.discard(reading)
        if not reading.cancelled():
            reading.exception()  # Marks the error as seen: a caller that waited has got it.
