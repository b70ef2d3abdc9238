"""The registry: the one document that lists the valid documents.

A document is created first; it is valid and acknowledged once the registry links it. It is unlinked
first and deleted after. A leader claims the registry at once, and every other document before the
first read. So a deposed leader cannot add a document that the new leader has not seen. `sweep`
removes unlinked documents: leftovers of crashes between the two steps.

The registry lives as long as the cluster's id may be used. It holds the highest term, the
tombstones of ended applications, and the runs that ended before those.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from understudy.errors import (
    Conflict,
    DataError,
    ForeignDataError,
    LostDataError,
    NotFoundError,
)
from understudy.ha.documents import Document
from understudy.ha.register import Register
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    Checkpoints,
    LeadershipSpan,
    RegistryBody,
    RegistryLink,
    RunId,
    Segment,
    Term,
    Tombstone,
)

REGISTRY_KEY = "registry"
APPLICATION_PREFIX = "application-"
SEGMENT_PREFIX = "jobs-"
CHECKPOINTS_PREFIX = "checkpoints-"

HISTORY_MAX = 50
"""Terms kept in the history for people; about 10 kB."""

TOMBSTONES_BYTES_MAX = 700_000
"""About 2,000 tombstones. The registry stays well below the register's limit, so that grants, links
and the end of the next run can always be written."""

LISTED_BYTES_MAX = 820_000
"""Links and tombstones together: with more than 500 unfinished applications tombstones give way."""

ENDED_BYTES_MAX = 150_000
"""About 5,000 ended runs without a tombstone. A run's id can be executed again only after so many
later runs have ended and lost their tombstones."""

APPLICATIONS_MAX = 2_000
"""Unfinished applications that a leader takes: their links have 480 kB at most. With many more, the
registry might reach the register's limit: nobody could lead then, and no application could end."""

_log = logging.getLogger(__name__)


def part_key(prefix: str, application: str) -> str:
    """Return a new key for a document of an application; ``application``: its document's key.

    The key has the application's nonce, so that a backend may keep all of one application together.
    """
    return f"{prefix}{application.removeprefix(APPLICATION_PREFIX)}-{nonce()}"


def nonce() -> str:
    """Return a unique part for a new key."""
    return uuid.uuid4().hex[:16]


@dataclass(frozen=True)
class Listed:
    """The keys of all documents beside the registry, at one moment."""

    applications: tuple[str, ...]
    segments: tuple[str, ...]
    checkpoints: tuple[str, ...]


class Registry:
    """The registry document of one cluster."""

    def __init__(self, register: Register, cluster_id: str) -> None:
        self._register = register
        self._cluster_id = cluster_id
        self._document = Document(register, REGISTRY_KEY, "registry", RegistryBody)

    async def read(self) -> RegistryBody | None:
        """Return the registry without a claim; None before the first leader.

        Raises `DataError` if the registry is damaged, of another cluster, gone, or older than this
        process has seen it.
        """
        return self._checked(await self._document.read())

    @property
    def seen(self) -> tuple[RegistryBody, float] | None:
        """Return the registry as last seen or written by this process, and when; may be old."""
        return self._document.seen

    async def highest_term(self) -> Term:
        """Return the highest term that has written the registry; 0 before the first.

        Raises as `read` does.
        """
        body, stamp = await self._document.read_stamped()
        self._checked(body)
        return stamp

    async def claim(self, term: Term, *, ephemeral: bool, anew: bool = False) -> RegistryBody:
        """Shut out older terms, and create the registry for the first term of a cluster.

        Raises `DataError` for a foreign or damaged registry before anything is overwritten.
        ``anew``: the claim of a new grant. A term has one holder: the second claim raises
        `LeadershipLost`.
        """
        body = await self.read()
        if body is None:
            body = RegistryBody(
                cluster_id=self._cluster_id, incarnation=uuid.uuid4().hex, ephemeral=ephemeral
            )
            try:
                await self._document.create(term, body)
            except Conflict:
                body = self._checked(await self._document.claim(term, anew=anew))
        else:
            body = self._checked(await self._document.claim(term, anew=anew))
        assert body is not None
        return body

    async def link(
        self, term: Term, application: ApplicationId, link: RegistryLink
    ) -> RegistryBody:
        """Link an application's document."""

        def change(body: RegistryBody) -> RegistryBody:
            body = replace(body, applications={**body.applications, application: link})
            kept = _with_room(body)
            return body if len(kept) == len(body.tombstones) else _keep(body, kept)

        return await self._document.update(term, change)

    async def bury(
        self, term: Term, application: ApplicationId, tombstone: Tombstone | None
    ) -> RegistryBody:
        """Unlink an application's document and add its tombstone in the same write."""

        def change(body: RegistryBody) -> RegistryBody:
            left = {key: link for key, link in body.applications.items() if key != application}
            body = replace(body, applications=left)
            if tombstone is None:
                return body
            stones = {**body.tombstones, tombstone.run_id: tombstone}
            body = replace(body, tombstones=stones)
            return _keep(body, _with_room(body))

        return await self._document.update(term, change)

    async def forget(self, term: Term, runs: Iterable[RunId]) -> RegistryBody:
        """Drop expired tombstones; only the status of their runs is kept."""
        gone = set(runs)

        def change(body: RegistryBody) -> RegistryBody:
            kept = {run: stone for run, stone in body.tombstones.items() if run not in gone}
            return _keep(body, kept)

        return await self._document.update(term, change)

    async def record(
        self, term: Term, change: Callable[[tuple[LeadershipSpan, ...]], list[LeadershipSpan]]
    ) -> RegistryBody:
        """Change the history of grants and losses; the oldest spans are dropped."""

        def apply(body: RegistryBody) -> RegistryBody:
            return replace(body, history=tuple(change(body.history)[-HISTORY_MAX:]))

        return await self._document.update(term, apply)

    async def shut_down(self, term: Term) -> RegistryBody:
        """Mark that all processes of the cluster must end, and that all data is kept."""
        mark = uuid.uuid4().hex
        return await self._document.update(term, lambda body: replace(body, shutdown=mark))

    async def remove(self, term: Term) -> None:
        """Delete the registry; only if the cluster's id will not be used again."""
        await self._document.delete(term)

    async def listed(self) -> Listed:
        """Return the keys of all documents that there are now, linked or not."""
        return Listed(
            tuple(await self._register.keys(APPLICATION_PREFIX)),
            tuple(await self._register.keys(SEGMENT_PREFIX)),
            tuple(await self._register.keys(CHECKPOINTS_PREFIX)),
        )

    async def sweep(self, term: Term) -> list[str]:
        """Delete unlinked documents; return their keys.

        Damaged documents stay. While a linked application is unreadable, all segments stay, as
        some may be its own. While a segment is unreadable, all checkpoints stay.
        """
        body = await self._document.claim(term)
        listed = await self.listed()
        applications = {link.document for link in body.applications.values()}
        swept = await self.delete_unlinked(term, listed.applications, applications)
        try:
            found = await in_batches(
                sorted(applications), lambda key: application_document(self._register, key).read()
            )
        except DataError:
            return swept
        if None in found:
            return swept
        segments = {key for application in found if application for key in application.segments}
        swept += await self.delete_unlinked(term, listed.segments, segments)
        try:
            # A claim, not a read: an older term must not link checkpoints after their removal.
            jobs = await in_batches(
                sorted(segments), lambda key: segment_document(self._register, key).claim(term)
            )
        except (DataError, NotFoundError):
            return swept
        checkpoints = {entry.checkpoints for segment in jobs for entry in segment.jobs.values()}
        return swept + await self.delete_unlinked(term, listed.checkpoints, checkpoints)

    async def delete_unlinked(
        self, term: Term, listed: Iterable[str], linked: Collection[str]
    ) -> list[str]:
        """Delete those of the listed documents that nothing links; return their keys.

        Damaged documents stay.
        """
        swept = []
        for key in listed:
            if key in linked:
                continue
            try:
                await _open(self._register, key).delete(term)
            except DataError as error:
                _log.warning("left in place, though nothing links it: %s", error)
            else:
                swept.append(key)
        return swept

    def _checked(self, body: RegistryBody | None) -> RegistryBody | None:
        if body is None:
            if self._document.highest:
                raise LostDataError(
                    f"register entry {REGISTRY_KEY} is gone, though it was of term "
                    f"{self._document.highest}"
                )
            return None
        if body.cluster_id != self._cluster_id:
            raise ForeignDataError(
                f"the registry here belongs to cluster {body.cluster_id!r}, not to "
                f"{self._cluster_id!r}: check high-availability.cluster-id and storageDir"
            )
        return body


def _keep(body: RegistryBody, kept: dict[RunId, Tombstone]) -> RegistryBody:
    """Keep these tombstones; of the others keep the status, as far as `ENDED_BYTES_MAX` allows."""
    gone = [stone for run, stone in body.tombstones.items() if run not in kept]
    ended = {run: status for run, status in body.ended.items() if run not in kept}
    for stone in sorted(gone, key=lambda stone: stone.ended_at):
        ended[stone.run_id] = stone.status
    room = ENDED_BYTES_MAX - len(msgspec.json.encode(ended))
    for run in list(ended):
        if room >= 0:
            break
        room += len(msgspec.json.encode({run: ended.pop(run)})) - 1
    return replace(body, tombstones=kept, ended=ended)


def _with_room(body: RegistryBody) -> dict[RunId, Tombstone]:
    """Return the newest tombstones that fit; retention removes the files of the others."""
    room = LISTED_BYTES_MAX - len(msgspec.json.encode(body.applications))
    room = min(room, TOMBSTONES_BYTES_MAX)
    if len(msgspec.json.encode(body.tombstones)) <= room:
        return body.tombstones
    kept: dict[RunId, Tombstone] = {}
    for stone in sorted(body.tombstones.values(), key=lambda one: one.ended_at, reverse=True):
        room -= len(msgspec.json.encode({stone.run_id: stone}))
        if room < 0 and kept:
            break
        kept[stone.run_id] = stone
    return dict(reversed(kept.items()))


def application_document(
    register: Register, key: str, application: ApplicationId | None = None
) -> Document[ApplicationDocument]:
    """Open an application's document; raise if it belongs to another one than ``application``."""

    def check(body: ApplicationDocument) -> None:
        _refuse_foreign(key, body.application_id, application)

    return Document(register, key, "application", ApplicationDocument, check)


def segment_document(
    register: Register, key: str, application: ApplicationId | None = None
) -> Document[Segment]:
    """Open a segment of an application's jobs; raises as `application_document` does."""

    def check(body: Segment) -> None:
        _refuse_foreign(key, body.application_id, application)

    return Document(register, key, "jobs", Segment, check)


def checkpoints_document(
    register: Register, key: str, application: ApplicationId | None = None
) -> Document[Checkpoints]:
    """Open the document of a job's checkpoints; raises as `application_document` does."""

    def check(body: Checkpoints) -> None:
        _refuse_foreign(key, body.application_id, application)

    return Document(register, key, "checkpoints", Checkpoints, check)


def _refuse_foreign(key: str, found: ApplicationId, expected: ApplicationId | None) -> None:
    if expected and found != expected:
        raise ForeignDataError(
            f"register entry {key}: belongs to application {found}, not to {expected}"
        )


def _open(
    register: Register, key: str
) -> Document[ApplicationDocument] | Document[Segment] | Document[Checkpoints]:
    if key.startswith(APPLICATION_PREFIX):
        return application_document(register, key)
    if key.startswith(CHECKPOINTS_PREFIX):
        return checkpoints_document(register, key)
    return segment_document(register, key)


T = TypeVar("T")
R = TypeVar("R")

BATCH = 32
"""Requests that are under way together: a takeover reads many documents, but not all at once."""


async def in_batches(items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return what ``work`` returns for each item, in their order."""
    left, found = list(items), []
    while left:
        batch, left = left[:BATCH], left[BATCH:]
        found += await asyncio.gather(*(work(item) for item in batch))
    return found


# --- the shutdown of a cluster by a request -------------------------------------------------------


class Shutdown:
    """What one process knows of requests to shut its cluster down: a mark in the registry.

    The mark is durable before the request is answered, so the death of a leader in the middle
    changes nothing: a JobManager looks at the registry when it is granted a term, a TaskManager
    when it loses or changes its leader, and each of them ends by itself. A process that finds a
    mark at its start ignores this mark: the cluster was started again.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        """Set once this process must end, and keep all data."""
        self._at_start: str | None = None
        """The mark at the first look; None before it."""

    def look(self, registry: RegistryBody | None) -> bool:
        """Compare the registry with the first look; return whether this process must end.

        Where the register did not answer at the start, a later look is the first one. The process
        then outlives a mark that was written in between, and a repeated request ends it.
        """
        found = registry.shutdown if registry else ""
        if self._at_start is None:
            self._at_start = found
        elif found not in {"", self._at_start}:
            self.asked.set()
        return self.asked.is_set()
