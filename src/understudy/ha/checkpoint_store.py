"""CompletedCheckpointStore and CheckpointIDCounter: one register document for each job.

The document is created at the job's first checkpoint, and the job's entry in the ExecutionPlanStore
links it. From then on a checkpoint is one fenced write, independent of the number of jobs and
checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from understudy.errors import DataError
from understudy.ha.documents import Document
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.register import Register
from understudy.ha.registry import CHECKPOINTS_PREFIX, checkpoints_document, part_key
from understudy.model import ApplicationId, Checkpoints, JobId, Term

_log = logging.getLogger(__name__)


class CheckpointStore:
    """The checkpoints of one job, as claimed by the newest term."""

    def __init__(
        self,
        register: Register,
        plans: ExecutionPlanStore,
        application_id: ApplicationId,
        job_id: JobId,
    ) -> None:
        self._register = register
        self._plans = plans
        self._application_id = application_id
        self.job_id = job_id
        self._document: Document[Checkpoints] | None = None
        self.body = Checkpoints(application_id=application_id, job_id=job_id)
        """The body as last claimed or written."""

    @property
    def is_claimed(self) -> bool:
        """Return whether `body` is the recorded state; true also if nothing is recorded yet."""
        return self._document is not None or not self._plans.entries[self.job_id].checkpoints

    def forget(self) -> bool:
        """Have the next write read the document again; return False if none was claimed."""
        known, self._document = self._document, None
        return known is not None

    async def claim(self, term: Term) -> Checkpoints:
        """Shut out older terms; return the recorded checkpoints.

        Raises `DataError`, `NotFoundError` or `LeadershipLost`.
        """
        key = self._plans.entries[self.job_id].checkpoints
        if key and self._document is None:
            document = checkpoints_document(self._register, key, self._application_id)
            self.body = await document.claim(term)
            self._document = document
        return self.body

    async def update(self, term: Term, change: Callable[[Checkpoints], Checkpoints]) -> Checkpoints:
        """Change the recorded checkpoints in one fenced write, or three the first time.

        Raises `LeadershipLost`; `TooLargeError`; `DataError` or `NotFoundError` if somebody
        damaged or removed the document; the register's error if the register keeps failing.
        """
        await self.claim(term)
        if self._document is not None:
            self.body = await self._document.update(term, change)
            return self.body
        body = change(self.body)
        key = part_key(CHECKPOINTS_PREFIX, self._plans.application_key)
        document = checkpoints_document(self._register, key, self._application_id)
        await document.create(term, body)
        await self._plans.update(
            term, self.job_id, lambda entry: replace(entry, checkpoints=document.key)
        )
        self._document, self.body = document, body
        return body

    async def delete(self, term: Term) -> None:
        """Delete the document of a job that has a result; absent is fine.

        No attempt resumes from it any more, so an unreadable document is deleted without a fence.
        """
        key = self._plans.entries[self.job_id].checkpoints
        if not key:
            return
        try:
            await checkpoints_document(self._register, key).delete(term)
        except DataError as error:
            if entry := await self._register.load(key):
                await self._register.swap(key, None, entry.version)
            _log.warning("removed with its job, which has ended: %s", error)
