"""ArtifactStore: files that people upload once, and that applications of the cluster share.

One register document, the catalog, names the uploaded artifacts; their bytes are in storage. An
upload is acknowledged once the catalog names it. Equal content is stored once, under a path that is
never used again: a late leader can neither overwrite nor remove what a later leader has stored.

An artifact's id follows from its content and its name, so that an upload may be repeated. What an
unfinished application was submitted with (``ApplicationDocument.uploads``) stays, as does what is
`ArtifactStore.held` for a submission under way.

The catalog has a fixed key, as the registry has: removing it would remove its fence. It is created
by the first upload.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import BinaryIO

from msgspec.structs import replace

from understudy.errors import (
    ArtifactInUse,
    Conflict,
    CorruptDataError,
    DataError,
    LostDataError,
    NotFoundError,
    TooLargeError,
)
from understudy.ha import layout
from understudy.ha.documents import Document
from understudy.ha.format import digest
from understudy.ha.register import Register
from understudy.ha.registry import Registry, application_document, nonce
from understudy.ha.storage import Storage
from understudy.model import ArtifactCatalog, Term, UploadedArtifact

ARTIFACTS_KEY = "artifacts"

ARTIFACTS_MAX = 1_000
"""Most artifacts of a cluster: their catalog has 400 kB then, half of what a register takes."""

USED_S = 3_600.0
"""The time of the last use is noted at most once an hour: it decides about days."""

_DIGITS = 32
"""Hexadecimal digits of the content's digest in an id."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReceivedFile:
    """A file that has arrived completely, and was checked."""

    name: str
    digest: str
    size: int
    file: BinaryIO

    @property
    def artifact_id(self) -> str:
        """Return the id of its artifact: as in Flink, a unique part and the name."""
        return f"{self.digest.removeprefix('sha256:')[:_DIGITS]}_{self.name}"


class ArtifactStore:
    """The uploaded artifacts of one cluster."""

    def __init__(
        self, register: Register, registry: Registry, storage: Storage, cluster: str
    ) -> None:
        self._register = register
        self._registry = registry
        self._storage = storage
        self._directory = layout.artifacts_directory(cluster)
        self._claimed: tuple[Term, Document[ArtifactCatalog]] | None = None
        self._turn = asyncio.Lock()
        """Held while it is decided what stays, and while the catalog changes."""
        self._arriving: set[str] = set()
        """Paths that are being written, and that the catalog does not name yet."""
        self._held: Counter[str] = Counter()

    async def listed(self, term: Term) -> list[UploadedArtifact]:
        """Return all artifacts, the latest first. Raises `DataError` or `LeadershipLost`."""
        async with self._turn:
            document = await self._opened(term)
            catalog = await document.peek() if document else None
        found = catalog.artifacts.values() if catalog else ()
        return sorted(found, key=lambda one: (one.uploaded_at, one.artifact_id), reverse=True)

    async def add(
        self, term: Term, received: ReceivedFile, total_max: int, now: float
    ) -> UploadedArtifact:
        """Store a file, and return its artifact: on return, it is durable. Idempotent.

        ``total_max``: most bytes of all artifacts. Raises `TooLargeError` where they, or the number
        of artifacts, would exceed the limits, and `LeadershipLost`. Any other error leaves the
        outcome unknown: the upload may be repeated.
        """
        async with self._turn:
            document = await self._created(term)
            path = await self._sound_path(document, received)
            _refuse_excess(await _catalog(document), received, total_max)
            if path:
                return await self._link(term, document, received, path, now)
        path = f"{self._directory}/{nonce()}"
        self._arriving.add(path)
        try:
            await self._storage.publish_file(path, received.file)
            async with self._turn:
                _refuse_excess(await _catalog(document), received, total_max)
                known = await self._sound_path(document, received)
                artifact = await self._link(term, document, received, known or path, now)
            if known:
                await self._discard(path)
            return artifact
        except TooLargeError:
            await self._discard(path)
            raise
        finally:
            self._arriving.discard(path)

    @contextlib.asynccontextmanager
    async def held(
        self, term: Term, artifact_id: str, now: float
    ) -> AsyncIterator[UploadedArtifact]:
        """Keep an artifact during the block; raises `NotFoundError` or `LeadershipLost`.

        An application that needs it longer is stored with its id before the block ends.
        """
        async with self._turn:
            document = await self._opened(term)
            artifact = _find(await document.peek() if document else None, artifact_id)
            if document and now - artifact.used_at > USED_S:
                artifact = replace(artifact, used_at=now)
                await document.update(term, lambda body: _with(body, artifact))
            self._held[artifact_id] += 1
        try:
            yield artifact
        finally:
            self._held[artifact_id] -= 1
            self._held += Counter()  # Drops what nobody holds any more.

    async def read(self, artifact: UploadedArtifact) -> bytes:
        """Return an artifact's bytes; raises `NotFoundError` or `CorruptDataError`."""
        body = await self._storage.read(artifact.path)
        if digest(body) != artifact.digest:
            place = self._storage.place(artifact.path)
            raise CorruptDataError(f"{place}: {artifact.name} was altered since it was uploaded")
        return body

    async def remove(self, term: Term, artifact_id: str) -> None:
        """Remove an artifact, and its bytes unless another artifact shares them.

        Raises `NotFoundError`, `ArtifactInUse`, also if an application cannot be read, which may
        need it, and `LeadershipLost`.
        """
        async with self._turn:
            document = await self._opened(term)
            _find(await document.peek() if document else None, artifact_id)
            assert document is not None
            if self._held[artifact_id] > 0:
                raise ArtifactInUse(f"artifact {artifact_id} is needed by a submission just now")
            try:
                needed = await self._needed()
            except DataError as error:
                raise ArtifactInUse(
                    f"artifact {artifact_id} may be needed by an application that cannot be read: "
                    f"{error}"
                ) from error
            if application := needed.get(artifact_id):
                raise ArtifactInUse(
                    f"artifact {artifact_id} is needed by the unfinished application {application}"
                )
            await self._unlink(term, document, {artifact_id})

    async def sweep(self, term: Term, unused_s: float, now: float) -> list[str]:
        """Remove artifacts that nobody has used for this time; return their ids.

        Raises `LeadershipLost`, and `DataError` while an application cannot be read: then all stay.
        """
        async with self._turn:
            document = await self._opened(term)
            catalog = await document.peek() if document else None
            if document is None or catalog is None:
                return []
            old = {
                key
                for key, one in catalog.artifacts.items()
                if now - one.used_at > unused_s + USED_S and self._held[key] <= 0
            }
            old -= (await self._needed()).keys() if old else set()
            if old:
                await self._unlink(term, document, old)
                _log.info("removed the artifacts that were not used: %s", ", ".join(sorted(old)))
            return sorted(old)

    # --- the catalog ------------------------------------------------------------------------------

    async def _opened(self, term: Term) -> Document[ArtifactCatalog] | None:
        """Return the catalog, claimed by this term; None if nothing was ever uploaded.

        The first time in a term, bytes are removed that the catalog does not name. They are listed
        before the claim: no older leader can name a listed path afterwards, and no later leader had
        begun by then.
        """
        if self._claimed and self._claimed[0] == term:
            return self._claimed[1]
        names = await self._storage.names(self._directory)
        document = Document(self._register, ARTIFACTS_KEY, "artifacts", ArtifactCatalog)
        try:
            catalog = await document.claim(term)
        except NotFoundError:
            if not names:
                return None
            catalog = await self._create(term, document)
        self._claimed = (term, document)
        named = {one.path for one in catalog.artifacts.values()}
        for path in (f"{self._directory}/{name}" for name in names):
            if path not in named and path not in self._arriving:
                await self._discard(path)
        return document

    async def _created(self, term: Term) -> Document[ArtifactCatalog]:
        """Return the catalog, claimed by this term; create it if there is none."""
        if document := await self._opened(term):
            return document
        document = Document(self._register, ARTIFACTS_KEY, "artifacts", ArtifactCatalog)
        await self._create(term, document)
        self._claimed = (term, document)
        return document

    async def _create(self, term: Term, document: Document[ArtifactCatalog]) -> ArtifactCatalog:
        empty = ArtifactCatalog()
        try:
            await document.create(term, empty)
        except Conflict:
            return await document.claim(term)
        return empty

    async def _link(
        self,
        term: Term,
        document: Document[ArtifactCatalog],
        received: ReceivedFile,
        path: str,
        now: float,
    ) -> UploadedArtifact:
        """Name the artifact in the catalog; artifacts of the same content get the same path."""
        catalog = await _catalog(document)
        earlier = catalog.artifacts.get(received.artifact_id)
        artifact = UploadedArtifact(
            artifact_id=received.artifact_id,
            name=received.name,
            digest=received.digest,
            size=received.size,
            path=path,
            uploaded_at=earlier.uploaded_at if earlier else now,
            used_at=now,
        )
        await document.update(term, lambda body: _with(body, artifact))
        return artifact

    async def _unlink(
        self, term: Term, document: Document[ArtifactCatalog], gone: set[str]
    ) -> None:
        before = await _catalog(document)
        after = await document.update(term, lambda body: _without(body, gone))
        left = {one.path for one in after.artifacts.values()}
        for path in {one.path for one in before.artifacts.values()} - left:
            await self._discard(path)

    async def _sound_path(self, document: Document[ArtifactCatalog], received: ReceivedFile) -> str:
        """Return where this content is stored already and still is; empty if it is not."""
        for one in (await _catalog(document)).artifacts.values():
            if one.digest == received.digest:
                sizes = await self._storage.run(self._storage.blocking.sizes, self._directory)
                if sizes.get(one.path.rpartition("/")[2]) == received.size:
                    return one.path
        return ""

    async def _needed(self) -> dict[str, str]:
        """Return what unfinished applications were submitted with, each with one of them."""
        registry = await self._registry.read()
        found: dict[str, str] = {}
        for application, link in (registry.applications if registry else {}).items():
            document = application_document(self._register, link.document, application)
            body = await document.read()
            if body and body.result is None:
                found.update(dict.fromkeys(body.uploads, application))
        return found

    async def _discard(self, path: str) -> None:
        """Delete bytes that the catalog does not name; the next leader deletes what this misses."""
        try:
            await self._storage.delete(path)
            await self._storage.prune(self._directory)
        except (OSError, TimeoutError) as error:
            _log.warning("%s is left to the next leader: %s", path, error)


async def _catalog(document: Document[ArtifactCatalog]) -> ArtifactCatalog:
    catalog = await document.peek()
    if catalog is None:
        raise LostDataError(f"register entry {ARTIFACTS_KEY} is gone")
    return catalog


def _find(catalog: ArtifactCatalog | None, artifact_id: str) -> UploadedArtifact:
    found = catalog.artifacts.get(artifact_id) if catalog else None
    if found is None:
        raise NotFoundError(f"there is no artifact {artifact_id[:200]!r} here")
    return found


def _with(catalog: ArtifactCatalog, artifact: UploadedArtifact) -> ArtifactCatalog:
    others = {
        key: replace(one, path=artifact.path) if one.digest == artifact.digest else one
        for key, one in catalog.artifacts.items()
    }
    return ArtifactCatalog(artifacts={**others, artifact.artifact_id: artifact})


def _without(catalog: ArtifactCatalog, gone: set[str]) -> ArtifactCatalog:
    left = {key: one for key, one in catalog.artifacts.items() if key not in gone}
    return ArtifactCatalog(artifacts=left)


def _refuse_excess(catalog: ArtifactCatalog, received: ReceivedFile, total_max: int) -> None:
    """Raise `TooLargeError` if a file does not fit beside the artifacts that there are."""
    known = catalog.artifacts
    if received.artifact_id not in known and len(known) >= ARTIFACTS_MAX:
        raise TooLargeError(
            f"the cluster has {len(known):,} artifacts, and takes no more: delete some"
        )
    sizes = {one.digest: one.size for one in known.values()} | {received.digest: received.size}
    total = sum(sizes.values())
    if total > total_max:
        raise TooLargeError(
            f"the artifacts of the cluster would have {total:,} bytes, and {total_max:,} are the "
            "limit: delete some"
        )
