"""ExecutionPlanStore: the jobs of a running application.

A job's entry holds the assignment (name, occurrence) → id, the plan's location, the intent of the
latest attempt and, once the job has ended, the commit of the result. FLIP-560 defers recovery until
the re-executed ``main`` reaches the job, so the store starts no job by itself.

Jobs are in *segments* of `SEGMENT_JOBS_MAX`, one register document each, filled in the order of
submission. So no write grows with the number of jobs, and no document exceeds a backend's limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from understudy.errors import NotFoundError
from understudy.ha import layout
from understudy.ha.application_store import StoredApplication
from understudy.ha.documents import Document
from understudy.ha.format import digest
from understudy.ha.register import Register
from understudy.ha.registry import SEGMENT_PREFIX, part_key, segment_document
from understudy.ha.storage import Storage
from understudy.model import JobEntry, JobId, Pointer, Segment, Term

SEGMENT_JOBS_MAX = 200
"""About 0.3 MB per document with the longest names: a third of the smallest backend's limit."""


class ExecutionPlanStore:
    """The jobs of one application, as claimed by the newest term."""

    def __init__(
        self, register: Register, storage: Storage, cluster: str, application: StoredApplication
    ) -> None:
        self._register = register
        self._storage = storage
        self._cluster = cluster
        self._application = application
        self._segments: list[Document[Segment]] = []
        self._home: dict[JobId, Document[Segment]] = {}
        self._notes: dict[str, list[tuple[JobId, Callable[[JobEntry], JobEntry]]]] = {}
        self._adding = asyncio.Lock()
        self.entries: dict[JobId, JobEntry] = {}

    @property
    def application_key(self) -> str:
        """Return the register key of the application's document."""
        return self._application.key

    async def claim(self, term: Term) -> dict[JobId, JobEntry]:
        """Shut out older terms from every segment; return all jobs in order of submission.

        Raises `DataError` if a segment cannot be read. Then no job of the application may run, as
        a job in that segment may have finished.
        """
        for key in self._application.body.segments:
            document = segment_document(self._register, key, self._application.body.application_id)
            body = await document.claim(term)
            self._segments.append(document)
            for job_id, entry in body.jobs.items():
                self._home[job_id] = document
                self.entries[job_id] = entry
        return self.entries

    async def add(self, term: Term, entry: JobEntry) -> None:
        """Store a job; on return its submission is acknowledged."""
        async with self._adding:
            document = await self._open_segment(term)
            await self._write(term, document, lambda jobs: {**jobs, entry.job_id: entry})
            self._home[entry.job_id] = document

    async def update(
        self, term: Term, job_id: JobId, change: Callable[[JobEntry], JobEntry]
    ) -> JobEntry:
        """Change one job's entry in one fenced write."""
        await self._write(
            term, self._home[job_id], lambda jobs: {**jobs, job_id: change(jobs[job_id])}
        )
        return self.entries[job_id]

    def note(self, job_id: JobId, change: Callable[[JobEntry], JobEntry]) -> None:
        """Change a job's entry with the next write to its segment, without a write of its own.

        The change must be idempotent: a write with an unknown outcome may apply it twice.
        """
        self._notes.setdefault(self._home[job_id].key, []).append((job_id, change))
        self.entries[job_id] = change(self.entries[job_id])

    async def update_all(self, term: Term, change: Callable[[JobEntry], JobEntry]) -> None:
        """Change every job's entry, with one fenced write per segment."""
        for document in self._segments:
            await self._write(
                term,
                document,
                lambda jobs: {job_id: change(entry) for job_id, entry in jobs.items()},
            )

    async def _write(
        self,
        term: Term,
        document: Document[Segment],
        change: Callable[[dict[JobId, JobEntry]], dict[JobId, JobEntry]],
    ) -> None:
        notes = self._notes.pop(document.key, [])

        def apply(body: Segment) -> Segment:
            jobs = dict(body.jobs)
            for job_id, note in notes:
                jobs[job_id] = note(jobs[job_id])
            return replace(body, jobs=change(jobs))

        try:
            body = await document.update(term, apply)
        except BaseException:
            self._notes[document.key] = [*notes, *self._notes.get(document.key, ())]
            raise
        self.entries.update(body.jobs)
        # Changes noted during the write are not part of it.
        for job_id, note in self._notes.get(document.key, ()):
            self.entries[job_id] = note(self.entries[job_id])

    async def put_plan(self, directory: str, job_id: JobId, plan: bytes) -> Pointer:
        """Write a plan's bytes; the plan counts once a job's entry points to it."""
        name = digest(plan)
        path = layout.plan_path(self._cluster, directory, job_id, name)
        await self._storage.publish(path, plan)
        return Pointer(path=path, digest=name, size=len(plan))

    async def remove_plan(self, entry: JobEntry) -> None:
        """Delete a plan's bytes; absent is fine."""
        await self._storage.delete(entry.plan.path)

    async def delete_documents(self, term: Term, keys: tuple[str, ...]) -> None:
        """Delete the segments of an application; the registry must not link it any more."""
        for key in keys:
            await segment_document(self._register, key).delete(term)

    async def _open_segment(self, term: Term) -> Document[Segment]:
        if self._segments:
            last = self._segments[-1]
            body = await last.peek()
            if body is None:
                raise NotFoundError(f"{last.key}: the document was deleted by somebody else")
            if len(body.jobs) < SEGMENT_JOBS_MAX:
                return last
        document = segment_document(self._register, part_key(SEGMENT_PREFIX, self._application.key))
        body = Segment(application_id=self._application.body.application_id)
        await document.create(term, body)
        await self._application.update(
            term, lambda body: replace(body, segments=(*body.segments, document.key))
        )
        self._segments.append(document)
        return document
