"""Tombstones of ended applications: their files, their expiry and their sweep.

A file is written first, under a name with its writer's term; then the application's document links
it, and the burial copies the link into the registry. So a late leader neither overwrites nor
removes a file that another leader has linked. A tombstone is dropped from the registry first, its
file is deleted afterwards. The next sweep removes a file without a link (of a late writer, or of a
leader that died between two of these steps); files that are no tombstone of this cluster stay.
"""

from __future__ import annotations

import logging

from understudy.errors import CorruptDataError, DataError, NotFoundError, SubmissionError
from understudy.ha import layout
from understudy.ha.application_store import Recovered
from understudy.ha.format import Format, digest
from understudy.ha.registry import application_document
from understudy.ha.services import HighAvailabilityServices
from understudy.model import (
    ApplicationDocument,
    Pointer,
    RegistryBody,
    Term,
    Tombstone,
    TombstoneFile,
)

tombstones: Format[TombstoneFile] = Format("tombstone", TombstoneFile)

RESULT_LOST = "its result file was lost"
"""Beginning of the note on a job whose result cannot be read."""

_log = logging.getLogger(__name__)


async def read_tombstone(services: HighAvailabilityServices, tombstone: Tombstone) -> TombstoneFile:
    """Read a tombstone's file; raises `NotFoundError` or `DataError`."""
    return await _read(services, tombstone.file)


async def read_end(
    services: HighAvailabilityServices, application: ApplicationDocument
) -> TombstoneFile:
    """Read the tombstone's file of an application, buried or not; raises as `read_tombstone`."""
    pointer = await _pointer(services, application)
    if pointer is None:
        raise NotFoundError(f"run {application.run_id} has no tombstone's file yet")
    return await _read(services, pointer)


async def _pointer(
    services: HighAvailabilityServices, application: ApplicationDocument
) -> Pointer | None:
    """Return the link to the file from the application's document, or from its tombstone."""
    for _ in range(2):  # The burial may come between reading the registry and the document.
        registry = await services.registry.read()
        link = registry.applications.get(application.application_id) if registry else None
        if link is None:
            stone = registry.tombstones.get(application.run_id) if registry else None
            same = stone and stone.application_id == application.application_id
            return stone.file if stone and same else None
        document = application_document(
            services.register, link.document, application.application_id
        )
        if body := await document.read():
            return body.tombstone
    return None


async def _read(services: HighAvailabilityServices, pointer: Pointer) -> TombstoneFile:
    data = await services.storage.read(pointer.path)
    place = services.storage.place(pointer.path)
    file = tombstones.load(data, place)
    if pointer.digest not in {"", digest(data)}:
        raise CorruptDataError(f"{place}: was altered since it was stored")
    return file


async def forget_expired(
    services: HighAvailabilityServices,
    term: Term,
    registry: RegistryBody,
    ttl_s: float,
    now: float,
    kept: Tombstone | None = None,
) -> None:
    """Drop expired tombstones, then their files.

    ``kept`` is the tombstone that this leader is about to answer with: if it were dropped before
    the answer, an ended run might be taken for a new one.
    """
    old = [
        stone
        for stone in registry.tombstones.values()
        if now - stone.ended_at > ttl_s and stone != kept
    ]
    if not old:
        return
    await services.registry.forget(term, [stone.run_id for stone in old])
    for stone in old:
        _log.info("the result of run %s was kept long enough: it is dropped", stone.run_id)
        try:
            await services.storage.delete(stone.file.path)
        except (OSError, TimeoutError) as error:
            _log.warning("%s is left to the next sweep: %s", stone.file.path, error)


async def refuse_used_job_id(
    services: HighAvailabilityServices, registry: RegistryBody, job_id: str
) -> None:
    """Raise `SubmissionError` where an ended run of the cluster had a job with this id."""
    for tombstone in registry.tombstones.values():
        try:
            file = await read_tombstone(services, tombstone)
        except (DataError, NotFoundError):
            continue
        if any(job.job_id == job_id for job in file.jobs):
            raise SubmissionError(
                f"$internal.pipeline.job-id {job_id} was used by run {tombstone.run_id} of this "
                "cluster: choose another one"
            )


def tombstones_directory(services: HighAvailabilityServices) -> str:
    """Return the directory of the tombstones' files."""
    return layout.tombstone_path(services.locations.cluster, "x", 0).rpartition("/")[0]


async def sweep_tombstones(
    services: HighAvailabilityServices,
    term: Term,
    registry: RegistryBody,
    recovered: Recovered,
    names: list[str] | None = None,
) -> None:
    """Remove files of tombstones that nothing links.

    ``term`` has claimed ``registry`` and ``recovered``: no older term can link its file any more,
    however long this leader is paused. Files of later terms stay. ``names``: the files that were
    there by then; None where no application runs, so that no file is about to be linked.
    """
    directory = tombstones_directory(services)
    named = {stone.file.path for stone in registry.tombstones.values()}
    named |= {one.body.tombstone.path for one in recovered.sound if one.body.tombstone}
    unknown = {registry.applications[damaged].run_id for damaged in recovered.damaged}
    if names is None:
        names = await services.storage.names(directory)
    for name in names:
        path, written = f"{directory}/{name}", layout.tombstone_of(name)
        if written is None or path in named:
            continue
        run, by = written
        if by > term or run in unknown:
            continue
        try:
            file = tombstones.load(await services.storage.read(path), path)
        except (DataError, NotFoundError) as error:
            _log.warning("left in place, though no tombstone names it: %s", error)
            continue
        if file.result.run_id == run:
            await services.storage.delete(path)
            _log.info("removed %s, which no tombstone names", path)
    await services.storage.prune(directory)  # Of what dead writers left in it, too.
