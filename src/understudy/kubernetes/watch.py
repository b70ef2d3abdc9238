"""A watch of objects: list, then watch, for ever; followers of one object share a watch.

What other clients get wrong is done here: a version that is too old (410) leads to a new list, and
so do watches that close early again and again, as some servers do in place of 410; a watch that is
alive and silent is dropped after the time in which the server must have sent a bookmark. After each
list all followers are woken, so that no change is missed between two watches.

By default only metadata is asked for: an object of a mebibyte is not sent to all who want to know
of a change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from understudy.kubernetes import pauses
from understudy.kubernetes.client import SILENCE_S, Client, Json
from understudy.kubernetes.kinds import Resource
from understudy.kubernetes.refusals import Outdated

EARLY_S = 5.0
"""A watch that ends sooner, without an event, has closed early; servers end one after minutes."""

EARLY_MAX = 2
"""After so many early closes in a row the version is not trusted: list again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Change:
    """An object after a change: its metadata, or the whole."""

    found: Json
    is_gone: bool


@dataclass(frozen=True)
class ListedObjects:
    """All objects, as a list has them that was asked for at ``asked_s`` of the event loop."""

    found: Sequence[Json]
    asked_s: float


@dataclass(frozen=True)
class Unseen:
    """No server can be asked at present."""

    error: OSError


News = ListedObjects | Change | Unseen


class ChangeBell:
    """Wakes one follower; has the object that came with the last change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._news: Change | None = None
        self._error: BaseException | None = None

    def ring(self, news: Change | None) -> None:
        """Wake the follower; None: something may have changed."""
        self._news = news
        self._event.set()

    def fail(self, error: BaseException) -> None:
        """Have the follower raise an error."""
        self._error = error
        self._event.set()

    async def rung(self) -> Change | None:
        """Return what the last change was, once there was one."""
        await self._event.wait()
        self._event.clear()
        if self._error:
            raise self._error
        return self._news


class Watch:
    """A watch of what a query selects, for one reader or for followers that it wakes."""

    def __init__(
        self,
        client: Client,
        kind: Resource,
        query: Mapping[str, str],
        silence_s: float = SILENCE_S,
        *,
        metadata_only: bool = True,
    ) -> None:
        """``silence_s``: a watch that is silent for longer is dead."""
        self._client = client
        self._silence_s = silence_s
        self._kind = kind
        self._query = query
        self._metadata_only = metadata_only
        self._bells: set[ChangeBell] = set()
        self._task: asyncio.Task[None] | None = None
        self._version = ""
        """Where the next watch begins; empty: list first."""
        self.lists = 0
        self.events = 0

    @contextlib.contextmanager
    def following(self) -> Iterator[ChangeBell]:
        """Yield a bell that rings at each change, and whenever one may have been missed.

        The watch runs while there is a follower.
        """
        bell = ChangeBell()
        self._bells.add(bell)
        if self._task is None:
            self._task = asyncio.ensure_future(self.run(self._ring_all))
            self._task.add_done_callback(self._ended)
        try:
            yield bell
        finally:
            self._bells.discard(bell)
            if not self._bells:
                self._task.cancel()
                self._task = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Have the followers raise what has ended the watch."""
        if not task.cancelled() and (error := task.exception()):
            for bell in self._bells:
                bell.fail(error)

    async def run(self, notify: Callable[[News], None]) -> NoReturn:
        """Notify of each list, each change, and each failure; list first."""
        self._version = ""
        failures, early, reported = 0, 0, ""
        loop = asyncio.get_running_loop()
        while True:
            began, before = loop.time(), self.events
            try:
                if not self._version:
                    await self._list(notify)
                await self._watch(notify)
            except Outdated:
                self._version = ""
                failures += 1  # A list of a server that lags behind may be too old again.
            except OSError as error:
                self._version = ""
                failures += 1
                if reported != str(error):
                    reported = str(error)
                    _log.warning("%s are not watched: %s", self._kind.plural, reported)
                notify(Unseen(error))
            else:
                is_early = loop.time() - began < EARLY_S
                early = early + 1 if is_early and self.events == before else 0
                if early >= EARLY_MAX:
                    self._version = ""
                failures = early
            if self.events != before:
                failures, reported = min(failures, 1), ""
            await asyncio.sleep(pauses.pause_s(pauses.WATCH, failures))

    async def _list(self, notify: Callable[[News], None]) -> None:
        asked_s = asyncio.get_running_loop().time()
        found, version = await self._client.list(
            self._kind, self._query, metadata_only=self._metadata_only
        )
        self.lists += 1
        self._version = version
        notify(ListedObjects(found, asked_s))

    async def _watch(self, notify: Callable[[News], None]) -> None:
        async for kind, found in self._changes():
            metadata: Json = found.get("metadata") or {}
            self._version = str(metadata.get("resourceVersion") or self._version)
            if kind != "BOOKMARK":
                self.events += 1
                notify(Change(found, is_gone=kind == "DELETED"))

    def _changes(self) -> AsyncIterator[tuple[str, Json]]:
        return self._client.watch(
            self._kind,
            self._query,
            self._version,
            self._silence_s,
            metadata_only=self._metadata_only,
        )

    def _ring_all(self, news: News) -> None:
        for bell in self._bells:
            bell.ring(news if isinstance(news, Change) else None)
