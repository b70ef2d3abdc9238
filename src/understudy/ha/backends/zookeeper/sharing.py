"""One request for all in this process who ask for the same at the same time.

A thousand retrievals of one leader are woken by the same change. Whoever asks while a request is
under way waits for the next one, which is sent after it asked: so each sees all that was true when
it asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from kazoo.protocol.states import WatchedEvent

from understudy.ha.backends.zookeeper.session import Bell

T = TypeVar("T")

_Which = tuple[asyncio.AbstractEventLoop, str]


class Sharing(Generic[T]):
    """Requests by key; of each at most one is under way, and one more waits."""

    def __init__(self) -> None:
        self._running: dict[_Which, asyncio.Task[T]] = {}
        self._waiting: dict[_Which, asyncio.Task[T]] = {}

    async def ask(self, key: str, request: Callable[[], Awaitable[T]]) -> T:
        """Return what a request answers that is sent from now on; raises what it raises."""
        which = (asyncio.get_running_loop(), key)
        found = self._waiting.get(which)
        if found is None:
            found = asyncio.ensure_future(self._send(which, self._running.get(which), request))
            found.add_done_callback(_looked_at)
            places = self._waiting if which in self._running else self._running
            places[which] = found
        # Who has no patience any more leaves the request to the others.
        return await asyncio.shield(found)

    async def _send(
        self,
        which: _Which,
        before: asyncio.Task[T] | None,
        request: Callable[[], Awaitable[T]],
    ) -> T:
        if before:
            await asyncio.wait({before})
            self._running[which] = self._waiting.pop(which)
        try:
            return await request()
        finally:
            if which not in self._waiting:
                self._running.pop(which, None)


class Followers:
    """The bells of all who follow one key: kazoo keeps one watcher for them, and no register."""

    def __init__(self) -> None:
        self.bells: set[Bell] = set()

    def ring(self, _: WatchedEvent | None = None) -> None:
        """Wake all of them."""
        for bell in tuple(self.bells):
            bell.ring()


def _looked_at(task: asyncio.Task[T]) -> None:
    """Take in an error that nobody has waited for to the end."""
    if not task.cancelled():
        task.exception()
