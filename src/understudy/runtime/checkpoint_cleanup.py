"""What is cleaned up of a job's checkpoints once it has a result."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from understudy.errors import DataError, NotFoundError
from understudy.ha import layout
from understudy.ha.checkpoint_store import CheckpointStore
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.registry import checkpoints_document
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
        await _sweep_writes(services, application, entry, effort)
        await effort.make(entry.checkpoints, lambda: store.delete(term))


async def _sweep_writes(
    services: HighAvailabilityServices,
    application: ApplicationDocument,
    entry: JobEntry,
    effort: Effort,
) -> None:
    """Remove what the writes of lost attempts have left beside their targets."""
    key, job_id = entry.checkpoints, entry.job_id
    document = checkpoints_document(services.register, key, application.application_id)
    with contextlib.suppress(DataError):  # What cannot be read is left, and said elsewhere.
        body = await document.read()
        for one in safe_writes.unfinished(body.completed if body else ()):
            await effort.make(
                one.location, partial(asyncio.to_thread, safe_writes.sweep, job_id, one)
            )
