"""Many reads or claims at once, but not all: a takeover of many documents must not add them up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

BATCH = 32
"""Requests that are under way together."""


async def in_batches(items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return what ``work`` returns for each item, in their order."""
    left, found = list(items), []
    while left:
        batch, left = left[:BATCH], left[BATCH:]
        found += await asyncio.gather(*(work(item) for item in batch))
    return found
