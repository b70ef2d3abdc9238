"""One request for all concurrent callers in this process that ask for the same key.

The same change may wake a thousand retrievals of one leader. A caller that comes while a request is
under way waits for the next request, which is sent later than the call. So each caller sees all
that was true when it called.
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
    """Requests by key; for each key at most one is under way and one more waits."""

    def __init__(self) -> None:
        self._running: dict[_Which, asyncio.Task[T]] = {}
        self._waiting: dict[_Which, asyncio.Task[T]] = {}

    async def ask(self, key: str, request: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of a request that is sent after this call; raises its errors."""
        which = (asyncio.get_running_loop(), key)
        found = self._waiting.get(which)
        if found is None:
            found = asyncio.ensure_future(self._send(which, self._running.get(which), request))
            found.add_done_callback(_looked_at)
            places = self._waiting if which in self._running else self._running
            places[which] = found
        # A cancelled caller does not cancel the shared request.
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
    """The bells of all followers of a key: kazoo holds one watcher, and no register."""

    def __init__(self) -> None:
        self.bells: set[Bell] = set()

    def ring(self, _: WatchedEvent | None = None) -> None:
        """Wake all followers."""
        for bell in tuple(self.bells):
            bell.ring()


def _looked_at(task: asyncio.Task[T]) -> None:
    """Retrieve an error that no caller awaited, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
