"""The end of a session: it is closed, so that the ensemble gives up at once what it held.

Who used it may be taken by the garbage collector at any moment and in any thread, an event loop's
included, while no server answers. So a thread of its own closes it, which is waited for only by who
closes it by name, and by the end of the process.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from typing import Protocol

CLOSE_S = 1.0
"""How long anybody may be held up by saying goodbye."""


class _Stoppable(Protocol):
    def stop(self) -> None: ...


class Farewell:
    """What is to be said to the ensemble once nobody uses a session, or the process ends."""

    def __init__(self, client: _Stoppable) -> None:
        self._client = client
        self._closing = threading.Thread(
            target=self._close, name="understudy-zookeeper-close", daemon=True
        )
        _owed.add(self)

    def begin(self) -> None:
        """Close the session soon, if that was not begun before; waits for nothing."""
        try:
            self._closing.start()
        except RuntimeError:  # Begun before; or Python 3.12 starts no thread as it ends.
            if self._closing.ident is None:
                self._close()

    def finish(self, until: float) -> None:
        """Return once the session is closed, and at that monotonic time at the latest."""
        if self._closing.ident is not None:
            self._closing.join(max(0.0, until - time.monotonic()))

    def say(self) -> None:
        """Close the session, waiting for a second at most."""
        self.begin()
        self.finish(time.monotonic() + CLOSE_S)

    def _close(self) -> None:
        with contextlib.suppress(Exception):  # The session timeout ends it, too.
            self._client.stop()
        _owed.discard(self)


_owed: set[Farewell] = set()


@atexit.register
def _say_all() -> None:
    owed = tuple(_owed)
    for farewell in owed:
        farewell.begin()
    until = time.monotonic() + CLOSE_S
    for farewell in owed:
        farewell.finish(until)
