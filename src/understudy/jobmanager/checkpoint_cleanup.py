"""Cleanup of a job's checkpoints, and of its unfinished writes, once the job has a result."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Iterable
from pathlib import Path

from understudy.core.checkpoints import is_under_way, note_of
from understudy.core.recovery import lineage
from understudy.errors import ConfigurationError, DataError, NotFoundError, StorageError
from understudy.ha import layout
from understudy.ha.checkpoint_store import CheckpointStore
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.registry import checkpoints_document
from understudy.ha.services import HighAvailabilityServices
from understudy.ha.storage import Storage, storage_of
from understudy.jobmanager import retained
from understudy.jobmanager.effort import Effort
from understudy.model import ApplicationDocument, Checkpoint, CheckpointKind, JobEntry, Term
from understudy.process import publishing
from understudy.process.publishing import Area

OURS = ("tables", "state")
"""Parts of a job's directory where every needed file is named by a checkpoint."""

_log = logging.getLogger(__name__)


async def clean_checkpoints(
    services: HighAvailabilityServices,
    plans: ExecutionPlanStore,
    application: ApplicationDocument,
    term: Term,
    entry: JobEntry,
    effort: Effort,
) -> None:
    """Delete a job's checkpoints unless they are retained, and their register document."""
    chosen = entry.intent.checkpoints if entry.intent else ""
    store = CheckpointStore(services.register, plans, application.application_id, entry.job_id)
    if entry.checkpoints and not entry.intent:  # The job began with a savepoint, and never ran.
        with contextlib.suppress(DataError, NotFoundError):
            chosen = (await store.claim(term)).directory
    directory = chosen or layout.checkpoints_path(
        services.locations.cluster, application.directory, lineage(entry)
    )
    kept = entry.result.checkpoint if entry.result else ""
    if not kept and (chosen or entry.checkpoints):  # Other files go with the application.
        await effort.make(directory, functools.partial(_delete, services.storage, directory))
    elif kept and kept != directory:
        await effort.make(directory, functools.partial(_tidy, services.storage, directory, kept))
    if entry.checkpoints:
        await _sweep_writes(services, application, entry, effort)
        await effort.make(entry.checkpoints, lambda: store.delete(term))


async def remove_checkpoints(storage: Storage, entry: JobEntry) -> None:
    """Delete an ended job's checkpoints in a directory that a person chose, unless retained."""
    if entry.result and not entry.result.checkpoint and entry.intent and entry.intent.checkpoints:
        await _delete(storage, entry.intent.checkpoints)


async def _delete(storage: Storage, directory: str) -> None:
    try:
        holder, path = storage_of(storage.blocking, directory)
    except ConfigurationError as error:  # Another host may have the storage's library.
        raise StorageError(str(error)) from error
    await storage.run(holder.delete_tree, path)


async def _tidy(storage: Storage, directory: str, kept: str) -> None:
    """Delete half-written files of attempts, and files that no retained checkpoint names."""
    try:
        holder, path = storage_of(storage.blocking, kept)
        body = retained.files.load(await storage.run(holder.read, path), kept).checkpoints
    except (ConfigurationError, NotFoundError, DataError) as error:
        _log.warning("all that lies in %s is kept: %s", directory, error)
        return
    needed = {one.location for one in body.completed}
    for part in OURS:
        holder, path = storage_of(storage.blocking, f"{directory}/{part}")
        for name in await storage.run(holder.names, path):
            if f"{directory}/{part}/{name}" not in needed:
                delete = holder.delete_tree if part == "tables" else holder.delete
                await storage.run(delete, f"{path}/{name}")


async def _sweep_writes(
    services: HighAvailabilityServices,
    application: ApplicationDocument,
    entry: JobEntry,
    effort: Effort,
) -> None:
    """Remove the files that writes of lost attempts have left beside their targets."""
    key, job_id = entry.checkpoints, entry.job_id
    document = checkpoints_document(services.register, key, application.application_id)
    with contextlib.suppress(DataError):  # Unreadable data stays, and is reported elsewhere.
        body = await document.read()
        for one in unfinished(body.completed if body else ()):
            await effort.make(
                one.location, functools.partial(asyncio.to_thread, sweep, job_id, one)
            )


def unfinished(taken: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return the writes that may have left an area: the latest of each name, if unpublished."""
    latest = {one.name: one for one in taken if one.kind is CheckpointKind.WRITE}
    return [one for one in latest.values() if is_under_way(one)]


def sweep(job_id: str, checkpoint: Checkpoint) -> None:
    """Remove the areas of a write that its ended job did not complete.

    Where the write had reached its target, data that others added meanwhile is carried over first.
    On a file system that this machine does not see, nothing is removed.
    """
    location, target = Path(checkpoint.location), Path(note_of(checkpoint).target)
    if publishing.is_area_of(location, job_id):
        for path in publishing.areas_like(location):
            Area(path, target).remove()
