"""CompletedCheckpointStore and CheckpointIDCounter: one register document for each job.

The document is created at the job's first checkpoint, and linked by the job's entry in the
ExecutionPlanStore. From then on a checkpoint is one fenced write, whatever number of jobs or
checkpoints there are.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from understudy.ha.documents import Document
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.register import Register
from understudy.ha.registry import CHECKPOINTS_PREFIX, checkpoints_document, nonce
from understudy.model import ApplicationId, Checkpoints, JobId, Term


class CheckpointStore:
    """The checkpoints of one job, as the newest term has claimed them."""

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
        self._job_id = job_id
        self._document: Document[Checkpoints] | None = None
        self.body = Checkpoints(application_id=application_id, job_id=job_id)
        """As last claimed or written."""

    @property
    def is_claimed(self) -> bool:
        """Say whether `body` is what is recorded; nothing may have been recorded yet."""
        return self._document is not None or not self._plans.entries[self._job_id].checkpoints

    def forget(self) -> bool:
        """Read the document anew before the next write; False where there is none."""
        known, self._document = self._document, None
        return known is not None

    async def claim(self, term: Term) -> Checkpoints:
        """Shut out older terms; return what is recorded.

        Raises `DataError`, `NotFoundError` or `LeadershipLost`.
        """
        key = self._plans.entries[self._job_id].checkpoints
        if key and self._document is None:
            document = checkpoints_document(self._register, key, self._application_id)
            self.body = await document.claim(term)
            self._document = document
        return self.body

    async def update(self, term: Term, change: Callable[[Checkpoints], Checkpoints]) -> Checkpoints:
        """Change what is recorded, in one fenced write; in three the first time.

        Raises `LeadershipLost`, `TooLargeError`, `DataError` or `NotFoundError` where somebody has
        spoilt or removed it meanwhile, or what a register that goes on failing raises.
        """
        await self.claim(term)
        if self._document is not None:
            self.body = await self._document.update(term, change)
            return self.body
        body = change(self.body)
        document = checkpoints_document(
            self._register, f"{CHECKPOINTS_PREFIX}{nonce()}", self._application_id
        )
        await document.create(term, body)
        await self._plans.update(
            term, self._job_id, lambda entry: replace(entry, checkpoints=document.key)
        )
        self._document, self.body = document, body
        return body

    async def delete(self, term: Term) -> None:
        """Delete the document once the job has a result: nobody goes on from it. Absent is fine."""
        key = self._plans.entries[self._job_id].checkpoints
        if key:
            document = self._document or checkpoints_document(self._register, key)
            await document.delete(term)
