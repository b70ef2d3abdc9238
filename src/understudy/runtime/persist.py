"""Doing what must be done, however often storage or register fail in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from understudy.errors import StorageError

R = TypeVar("R")

BACKOFF_S = 0.1
BACKOFF_MAX_S = 5.0

_log = logging.getLogger(__name__)


async def persist(what: str, operation: Callable[[], Awaitable[R]]) -> R:
    """Repeat an idempotent operation until it succeeds.

    Only unknown outcomes (``OSError``, ``TimeoutError``, `StorageError`) are tried again, for
    ever and with backoff: a result that cannot be written now must be written later, and the
    leadership ends by itself if the register goes on failing. `LeadershipLost` passes.
    """
    pause_s = BACKOFF_S
    while True:
        try:
            return await operation()
        except (OSError, TimeoutError, StorageError) as error:
            _log.warning("cannot %s, trying again in %.1f s: %s", what, pause_s, error or "timeout")
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, BACKOFF_MAX_S)
