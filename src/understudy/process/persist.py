"""Repeating operations that must succeed, while storage or register fail."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from understudy.core.backoff import Backoff
from understudy.errors import StorageError

R = TypeVar("R")

BACKOFF = Backoff(0.1, 5.0)

PATIENCE_S = 60.0
"""How long user code waits for a failing storage before it gets the error."""

_log = logging.getLogger(__name__)


async def persist(what: str, operation: Callable[[], Awaitable[R]]) -> R:
    """Repeat an idempotent operation until it succeeds.

    Only unknown outcomes (``OSError``, ``TimeoutError``, `StorageError`) are tried again, for ever
    and with backoff: a result that cannot be written now must be written later. If the register
    keeps failing, the leadership ends by itself. `LeadershipLost` is raised at once.
    """
    failures = 0
    while True:
        try:
            return await operation()
        except (OSError, TimeoutError, StorageError) as error:
            failures += 1
            pause_s = BACKOFF.pause_s(failures)
            _log.warning(
                "cannot %s, trying again in %.1f s: %s", what, pause_s, str(error) or "timeout"
            )
        await asyncio.sleep(pause_s)


async def once(what: str, operation: Callable[[], Awaitable[object]]) -> None:
    """Try an operation once; log a failure, as the cleanup repeats the operation."""
    try:
        await operation()
    except (OSError, TimeoutError, StorageError) as error:
        _log.warning("cannot %s, this is left to the cleanup: %s", what, str(error) or "timeout")


def once_blocking(what: str, operation: Callable[[], object]) -> bool:
    """Try a removal once; return whether it succeeded.

    User code neither waits for a retry nor fails: the end of the job removes the rest.
    """
    try:
        operation()
    except (OSError, TimeoutError, StorageError) as error:
        _log.warning("cannot %s, this is left to the cleanup: %s", what, str(error) or "timeout")
        return False
    return True


FOR_EVER = math.inf
"""The patience for an operation whose unknown outcome leaves no other choice than a retry."""


def persist_on_disk(what: str, operation: Callable[[], R], passes: Callable[[OSError], bool]) -> R:
    """Repeat an idempotent operation on a file system while its errors are transient.

    Any other error is an answer, such as an existing file, and is raised at once.
    """

    def tried() -> R | OSError:
        try:
            return operation()
        except OSError as error:
            if passes(error):
                raise
            return error

    found = persist_blocking(what, tried)
    if isinstance(found, OSError):
        raise found
    return found


def persist_blocking(what: str, operation: Callable[[], R], patience_s: float | None = None) -> R:
    """Repeat an idempotent operation, in a thread of user code, for ``patience_s``.

    An attempt must not lose the work of hours because the storage fails for a second.
    """
    patience_s = PATIENCE_S if patience_s is None else patience_s
    failures, until = 0, time.monotonic() + patience_s
    while True:
        try:
            return operation()
        except (OSError, TimeoutError, StorageError) as error:
            failures += 1
            pause_s = BACKOFF.pause_s(failures)
            if time.monotonic() + pause_s > until:
                raise
            _log.warning(
                "cannot %s, trying again in %.1f s: %s", what, pause_s, str(error) or "timeout"
            )
        time.sleep(pause_s)
