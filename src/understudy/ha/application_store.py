"""ApplicationStore: how to execute an application again (FLIP-560), and its progress.

The record (entry point, arguments, configuration, artifact digests) is in storage. The register's
document points to the record and holds what changes: status, executions of ``main``, the segments
with the jobs, the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from understudy.errors import CorruptDataError, DataError, ForeignDataError, NotFoundError
from understudy.ha import layout
from understudy.ha.documents import Document
from understudy.ha.format import Format, digest
from understudy.ha.register import Register
from understudy.ha.registry import (
    APPLICATION_PREFIX,
    Registry,
    application_document,
    in_batches,
    nonce,
)
from understudy.ha.storage import Storage
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    ApplicationRecord,
    ApplicationStatus,
    Pointer,
    RegistryBody,
    RegistryLink,
    Restarts,
    Term,
)

_format: Format[ApplicationRecord] = Format("application", ApplicationRecord)


class StoredApplication:
    """An application that is unfinished or not cleaned up, claimed by this process's term."""

    def __init__(self, document: Document[ApplicationDocument], body: ApplicationDocument) -> None:
        self._document = document
        self.key = document.key
        self.body = body

    async def update(
        self, term: Term, change: Callable[[ApplicationDocument], ApplicationDocument]
    ) -> ApplicationDocument:
        """Change the document; raises as `Document.update` does."""
        self.body = await self._document.update(term, change)
        return self.body

    async def delete(self, term: Term) -> None:
        """Delete the document; the registry must not link it any more."""
        await self._document.delete(term)


@dataclass
class Recovered:
    """What a new leader recovered: sound applications, and damaged ones with the reason."""

    sound: list[StoredApplication] = field(default_factory=list)
    damaged: dict[ApplicationId, str] = field(default_factory=dict)


class ApplicationStore:
    """The applications of one cluster."""

    def __init__(
        self, register: Register, registry: Registry, storage: Storage, cluster: str
    ) -> None:
        self._register = register
        self._registry = registry
        self._storage = storage
        self._cluster = cluster

    def new_directory(self) -> str:
        """Return the directory name of a new application, for its artifacts before `put`."""
        return nonce()

    async def put(self, term: Term, record: ApplicationRecord, directory: str) -> StoredApplication:
        """Store and link an application; on return it is acknowledged and will be executed."""
        data = _format.dump(record, pretty=True)
        path = f"{layout.application_directory(self._cluster, directory)}/application.json"
        await self._storage.publish(path, data)
        body = ApplicationDocument(
            application_id=record.application_id,
            run_id=record.run_id,
            name=record.name,
            directory=directory,
            record=Pointer(path=path, digest=digest(data), size=len(data)),
            status=ApplicationStatus.CREATED,
            created_at=record.submitted_at,
            uploads=record.uploads,
        )
        document = application_document(self._register, f"{APPLICATION_PREFIX}{nonce()}")
        await document.create(term, body)
        link = RegistryLink(document=document.key, run_id=record.run_id, request=record.request)
        await self._registry.link(term, record.application_id, link)
        return StoredApplication(document, body)

    async def redeploy(
        self, stored: StoredApplication, term: Term, record: ApplicationRecord
    ) -> None:
        """Replace the application's code in one fenced write; idempotent.

        The record's file is named by its digest: a deposed leader may still write a record.
        """
        data = _format.dump(record, pretty=True)
        name, over = digest(data), stored.body.record
        base = layout.application_directory(self._cluster, stored.body.directory)
        path = f"{base}/application-{name[-16:]}.json"
        await self._storage.publish(path, data)

        def change(body: ApplicationDocument) -> ApplicationDocument:
            if body.record != over:
                return body
            return replace(
                body,
                name=record.name,
                record=Pointer(path=path, digest=name, size=len(data)),
                deployment=body.deployment + 1,
                restarts=Restarts(),
                uploads=record.uploads,
            )

        await stored.update(term, change)

    async def recover(self, term: Term, registry: RegistryBody) -> Recovered:
        """Claim every linked application; report damaged ones and leave them in place."""
        recovered = Recovered()
        links = registry.applications.items()
        found = await in_batches(links, lambda link: self._claimed(term, *link))
        for application, one in zip(registry.applications, found, strict=True):
            if isinstance(one, StoredApplication):
                recovered.sound.append(one)
            else:
                recovered.damaged[application] = str(one)
        return recovered

    async def _claimed(
        self, term: Term, application: ApplicationId, link: RegistryLink
    ) -> StoredApplication | DataError | NotFoundError:
        try:
            return await self.claim(term, application, link)
        except (DataError, NotFoundError) as error:
            return error

    async def claim(
        self, term: Term, application: ApplicationId, link: RegistryLink
    ) -> StoredApplication:
        """Claim one linked application; raises `DataError` or `NotFoundError`."""
        document = application_document(self._register, link.document, application)
        return StoredApplication(document, await document.claim(term))

    async def record(self, body: ApplicationDocument) -> ApplicationRecord:
        """Read an application's record; raises `DataError` or `NotFoundError`."""
        data = await self._storage.read(body.record.path)
        record = _format.load(data, f"{self._storage.url}/{body.record.path}")
        if record.application_id != body.application_id:
            raise ForeignDataError(
                f"{body.record.path}: belongs to application {record.application_id}, "
                f"not to {body.application_id}"
            )
        if digest(data) != body.record.digest:
            raise CorruptDataError(
                f"{self._storage.place(body.record.path)}: was altered since it was stored"
            )
        return record

    async def remove_directory(self, body: ApplicationDocument) -> None:
        """Delete all files of the application in storage; absent is fine."""
        path = layout.application_directory(self._cluster, body.directory)
        await self._storage.delete_tree(path)
        await self._storage.prune(path.rpartition("/")[0])
