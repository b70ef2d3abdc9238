"""Closing a session, so that the ensemble removes its ephemeral nodes at once.

The garbage collector may free a session at any moment and in any thread, even in an event loop's
thread while no server answers. So a separate thread closes the session. Only an explicit close and
the end of the process wait for that thread.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from typing import Protocol

CLOSE_S = 1.0
"""The longest wait for a session to close."""


class _Stoppable(Protocol):
    def stop(self) -> None: ...


class Farewell:
    """Closes a session once nobody uses it, or when the process ends."""

    def __init__(self, client: _Stoppable) -> None:
        self._client = client
        self._closing = threading.Thread(
            target=self._close, name="understudy-zookeeper-close", daemon=True
        )
        _owed.add(self)

    def begin(self) -> None:
        """Begin to close the session, unless that has begun; does not wait."""
        try:
            self._closing.start()
        except RuntimeError:  # Already begun; or Python 3.12 starts no thread while it exits.
            if self._closing.ident is None:
                self._close()

    def finish(self, until: float) -> None:
        """Return once the session is closed, at monotonic time ``until`` at the latest."""
        if self._closing.ident is not None:
            self._closing.join(max(0.0, until - time.monotonic()))

    def send(self) -> None:
        """Close the session; wait for `CLOSE_S` at most."""
        self.begin()
        self.finish(time.monotonic() + CLOSE_S)

    def _close(self) -> None:
        with contextlib.suppress(Exception):  # Otherwise the session timeout ends the session.
            self._client.stop()
        _owed.discard(self)


_owed: set[Farewell] = set()


@atexit.register
def _send_all() -> None:
    owed = tuple(_owed)
    for farewell in owed:
        farewell.begin()
    until = time.monotonic() + CLOSE_S
    for farewell in owed:
        farewell.finish(until)
