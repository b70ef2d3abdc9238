"""What remains of ended applications, and for how long: tombstones, each with its file.

A tombstone is dropped from the registry first; its file goes after it. A file that was left behind
by a crash between the two is removed by the next sweep; what is not a tombstone's file of this
cluster is left in place.
"""

from __future__ import annotations

import logging

from understudy.errors import DataError, NotFoundError
from understudy.ha import layout
from understudy.ha.format import Format
from understudy.ha.services import HighAvailabilityServices
from understudy.model import RegistryBody, RunId, Term, Tombstone, TombstoneFile

tombstones: Format[TombstoneFile] = Format("tombstone", TombstoneFile)

_SUFFIX = ".json"

_log = logging.getLogger(__name__)


async def read_tombstone(services: HighAvailabilityServices, tombstone: Tombstone) -> TombstoneFile:
    """Read a tombstone's file; raises `NotFoundError` or `DataError`."""
    data = await services.storage.read(tombstone.file.path)
    return tombstones.load(data, tombstone.file.path)


async def forget_expired(
    services: HighAvailabilityServices,
    term: Term,
    registry: RegistryBody,
    ttl_s: float,
    now: float,
    kept: Tombstone | None = None,
) -> None:
    """Drop the tombstones whose time is over, and their files after them.

    ``kept`` is the one that this leader is about to answer with: were it dropped before it was
    told, a run that has ended might be taken for a new one.
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


async def sweep_tombstones(services: HighAvailabilityServices, registry: RegistryBody) -> None:
    """Remove files of tombstones that are no more; one of a linked application is yet to be."""
    cluster = services.locations.cluster
    directory = layout.tombstone_path(cluster, "x").rpartition("/")[0]
    needed = {*registry.tombstones, *(link.run_id for link in registry.applications.values())}
    for name in await services.storage.names(directory):
        run = RunId(name.removesuffix(_SUFFIX))
        if not name.endswith(_SUFFIX) or run in needed:
            continue
        path = f"{directory}/{name}"
        try:
            file = tombstones.load(await services.storage.read(path), path)
        except (DataError, NotFoundError) as error:
            _log.warning("left in place, though no tombstone names it: %s", error)
            continue
        if file.result.run_id == run:
            await services.storage.delete(path)
            _log.info("removed %s, which no tombstone names", path)
