"""Documents stamped with a term: check the leader and write in one transaction.

FLIP-144 asks that "get, check the leader, update" be one transaction. Every document here carries
the highest term that has written it, and is replaced by compare-and-swap. A leader's first write,
the claim, raises the stamp. From then on an older leader can only fail: its version is stale and it
reads again, or it reads the newer stamp and must stop. No clock is involved, and the backend needs
no notion of a leader.

A document promises: no write of a lower term is accepted after one of a higher term, an
acknowledged write is never lost, and an update with an unknown outcome is settled by reading.
There are no promises across documents.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from understudy.core.backoff import Backoff
from understudy.errors import (
    CorruptDataError,
    LeadershipLost,
    LostDataError,
    NotFoundError,
    TooLargeError,
)
from understudy.ha.format import Format
from understudy.ha.register import VALUE_BYTES_MAX, Conflict, Entry, Register

T = TypeVar("T")

UNKNOWN_RETRIES_MAX = 5
"""A register that fails this often in a row within one update is down: then the lease decides."""

UNKNOWN_BACKOFF = Backoff(0.1)
"""The pauses after failed answers: five tries take about 1.5 s."""


class Stamped(msgspec.Struct, frozen=True):
    """A document's value in the register: its last writer, and the body."""

    term: int
    write_id: str
    """Unique to each write, so that a read recognises a write with a lost answer."""
    body: msgspec.Raw
    revision: int = 0
    """Number of this write within its term, from 1; 0 where an older version has written."""


Moment = tuple[int, int]
"""A state of a document: its term and its revision. Later states are greater."""


@dataclass(frozen=True, slots=True)
class _Known(Generic[T]):
    """A document as this process last saw it."""

    version: str
    moment: Moment
    write_id: str
    body: T

    @property
    def term(self) -> int:
        return self.moment[0]


class Document(Generic[T]):
    """One register entry that only the newest term may write.

    The document keeps the last seen version: the leader is the only writer, so its update needs
    one ``swap`` and no ``load``. Updates of one document run one after the other.
    """

    def __init__(
        self,
        register: Register,
        key: str,
        kind: str,
        body_type: type[T],
        check: Callable[[T], None] | None = None,
    ) -> None:
        """``check`` raises `DataError` for a body that does not belong to this key."""
        self.key = key
        self._check = check
        self._register = register
        self._format: Format[Stamped] = Format(kind, Stamped)
        self._type = body_type
        self._known: _Known[T] | None = None
        self._highest: Moment = (0, 0)
        """The latest state that this process has seen here; a later read must not show less."""
        self._seen: tuple[T, float] | None = None
        self._turn = asyncio.Lock()

    @property
    def highest(self) -> int:
        """Return the highest term that this process has seen here."""
        return self._highest[0]

    @property
    def seen(self) -> tuple[T, float] | None:
        """Return the body as last seen or written by this process, and when (the loop's time).

        The body is kept while the register fails, and while the outcome of a write is unknown.
        """
        return self._seen

    async def read(self) -> T | None:
        """Return the body without a claim, so any process may call this; None if absent."""
        known = await self._load()
        return known.body if known else None

    async def peek(self) -> T | None:
        """Return the body as last seen or written by this process, reading only if never seen."""
        known = self._known or await self._load()
        return known.body if known else None

    async def read_stamped(self) -> tuple[T | None, int]:
        """Return the body and the highest term that has written it; 0 if absent."""
        known = await self._load()
        return (known.body, known.term) if known else (None, 0)

    async def stamp(self) -> int:
        """Return the highest term that has written the document; 0 if absent."""
        _, stamp = await self.read_stamped()
        return stamp

    async def create(self, term: int, body: T) -> None:
        """Write a document under a new key; the document counts once the registry links it.

        Raises `Conflict` if the key holds a document, `DataError` if that cannot be read.
        """
        async with self._turn:
            if not await self._write(term, body, None):
                raise Conflict(f"{self.key}: exists already")

    async def claim(self, term: int, *, anew: bool = False) -> T:
        """Shut out every older term, and return the body that they left.

        Raises `LeadershipLost` after a newer term's write, `NotFoundError` if absent. ``anew``:
        raises `LeadershipLost` also after a write of the same term, as another process holds it.
        """
        async with self._turn:
            self._known = None
            known = await self._load()
            if known and known.term == term and not anew:
                return known.body
        return await self.update(term, lambda body: body, anew=anew)

    async def update(self, term: int, change: Callable[[T], T], *, anew: bool = False) -> T:
        """Replace the body by ``change(body)``, which may be called again after a lost race.

        Raises `LeadershipLost`, `NotFoundError` or `TooLargeError`; the register's ``OSError`` or
        ``TimeoutError`` only if the register keeps failing: then the outcome is unknown.
        """
        async with self._turn:
            while True:
                known = self._known or await self._load()
                if known is None:
                    raise NotFoundError(f"{self.key}: the document does not exist")
                if known.term == term and anew:
                    raise LeadershipLost(f"{self.key}: term {term} was somebody else's")
                if known.term > term:
                    raise LeadershipLost(f"{self.key}: term {known.term} is newer than {term}")
                if await self._write(term, change(known.body), known):
                    assert self._known is not None
                    return self._known.body

    async def delete(self, term: int) -> None:
        """Remove the document; the registry must not link it any more. Absent is fine."""
        async with self._turn:
            while (known := self._known or await self._load()) is not None:
                if known.term > term:
                    raise LeadershipLost(f"{self.key}: term {known.term} is newer than {term}")
                self._known = None
                try:
                    await self._register.swap(self.key, None, known.version)
                except Conflict:
                    continue
                return

    async def _load(self) -> _Known[T] | None:
        began, least = _now(), self._highest
        entry = await self._register.load(self.key)
        known = self._decode(entry) if entry else None
        if known and known.moment < least:
            raise LostDataError(
                f"register entry {self.key} is of {_in_words(known.moment)}, though it was of "
                f"{_in_words(least)}: an older copy lies in its place, without what has "
                "happened since (to go on from it all the same, end all processes of the cluster "
                "first)"
            )
        if self._highest > (known.moment if known else least):
            return known  # A write or another read has overtaken this read: later state is known.
        self._highest = known.moment if known else least
        self._known = known
        if known and (self._seen is None or self._seen[1] <= began):
            self._seen = (known.body, began)
        return known

    async def _write(self, term: int, body: T, over: _Known[T] | None) -> bool:
        """Replace the version last seen; return False if another writer was faster."""
        write_id = uuid.uuid4().hex[:16]
        raw = msgspec.Raw(msgspec.json.encode(body))
        moment = (term, over.moment[1] + 1 if over and over.term == term else 1)
        data = self._format.dump(Stamped(term, write_id, raw, revision=moment[1]))
        if len(data) > VALUE_BYTES_MAX:
            raise TooLargeError(
                f"{self.key}: {len(data)} bytes would pass the register's limit of "
                f"{VALUE_BYTES_MAX}; nothing was written"
            )
        for attempt in range(1, UNKNOWN_RETRIES_MAX + 1):
            try:
                version = await self._register.swap(self.key, data, over.version if over else None)
            except Conflict:
                # It may be our own write: an earlier one whose answer was lost, or this one, where
                # something on the way has sent it twice.
                known = await self._load()
                return known is not None and known.write_id == write_id
            except (OSError, TimeoutError):
                if attempt == UNKNOWN_RETRIES_MAX:
                    self._known = None
                    raise
                await asyncio.sleep(UNKNOWN_BACKOFF.pause_s(attempt))
            else:
                self._known = _Known(version, moment, write_id, body)
                self._highest = moment
                self._seen = (body, _now())
                return True
        raise AssertionError("unreachable: the loop returns or raises")

    def _decode(self, entry: Entry) -> _Known[T]:
        source = f"register entry {self.key}" + (entry.place and f" ({entry.place})")
        stamped = self._format.load(entry.value, source)
        try:
            body = msgspec.json.decode(stamped.body, type=self._type)
        except msgspec.DecodeError as error:
            raise CorruptDataError(f"{source}: {error}") from error
        if self._check:
            self._check(body)
        return _Known(entry.version, (stamped.term, stamped.revision), stamped.write_id, body)


def _in_words(moment: Moment) -> str:
    return f"term {moment[0]}, write {moment[1]}"


def _now() -> float:
    return asyncio.get_running_loop().time()
