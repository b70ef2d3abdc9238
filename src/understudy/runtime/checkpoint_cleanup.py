"""What is cleaned up of a job's checkpoints once it has a result."""

from __future__ import annotations

import asyncio
import contextlib

from understudy.errors import DataError, NotFoundError
from understudy.ha import layout
from understudy.ha.checkpoint_store import CheckpointStore
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.services import HighAvailabilityServices
from understudy.model import ApplicationDocument, JobEntry, Term
from understudy.runtime import safe_writes
from understudy.runtime.effort import Effort


async def clean_checkpoints(
    services: HighAvailabilityServices,
    plans: ExecutionPlanStore,
    application: ApplicationDocument,
    term: Term,
    entry: JobEntry,
    effort: Effort,
) -> None:
    """Delete a job's checkpoints unless they are retained, and what the register holds of them."""
    chosen = entry.intent.checkpoints if entry.intent else ""
    store = CheckpointStore(services.register, plans, application.application_id, entry.job_id)
    if entry.checkpoints and not entry.intent:  # It began with a savepoint, and never ran.
        with contextlib.suppress(DataError, NotFoundError):
            chosen = (await store.claim(term)).directory
    directory = chosen or layout.checkpoints_path(
        services.locations.cluster, application.directory, entry.job_id
    )
    retained = entry.result is not None and entry.result.checkpoint
    if not retained:
        await effort.make(directory, lambda: services.storage.delete_tree(directory))
    if entry.checkpoints:
        with contextlib.suppress(DataError, NotFoundError):
            for one in safe_writes.unfinished((await store.claim(term)).completed):
                await effort.make(
                    one.location,
                    lambda one=one: asyncio.to_thread(safe_writes.sweep, entry.job_id, one),  # type: ignore[misc]
                )
        await effort.make(entry.checkpoints, lambda: store.delete(term))
