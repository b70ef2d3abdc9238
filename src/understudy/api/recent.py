"""What is known while register or storage take long to answer: REST waits for them half a second.

A read that takes longer goes on by itself, one at a time, and what it finds is known afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

PATIENCE_S = 0.5
"""How long an answer waits for what is read for it: it is to be there within a second."""


@dataclass(frozen=True)
class Seen(Generic[T]):
    """What was read, and how long ago."""

    found: T
    age_s: float = 0.0


class Recent(Generic[T]):
    """One thing that is read again and again."""

    def __init__(
        self, read: Callable[[], Awaitable[T]], last: Callable[[], Seen[T] | None]
    ) -> None:
        """``last``: what was seen last, None where nothing was."""
        self._read = read
        self._last = last
        self._overdue: set[asyncio.Future[T]] = set()

    async def look(self) -> Seen[T]:
        """Return what is there, or else what was seen last.

        Where nothing was ever seen, it raises what the read does, or ``TimeoutError``.
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
            reading.exception()  # It was told to who waited for it, if anybody did.
