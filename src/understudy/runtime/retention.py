"""What remains of ended applications, and for how long: tombstones, each with its file.

A tombstone is dropped from the registry first; its file goes after it. A file that was left behind
by a crash between the two is removed by the next sweep; what is not a tombstone's file of this
cluster is left in place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from understudy.errors import CorruptDataError, DataError, NotFoundError
from understudy.ha import layout
from understudy.ha.format import Format, digest
from understudy.ha.services import HighAvailabilityServices
from understudy.model import RegistryBody, RunId, Term, Tombstone, TombstoneFile

tombstones: Format[TombstoneFile] = Format("tombstone", TombstoneFile)

RESULT_LOST = "its result file was lost"
"""How the note of a job begins of which that is all that can be said."""

_SUFFIX = ".json"

_log = logging.getLogger(__name__)


async def read_tombstone(services: HighAvailabilityServices, tombstone: Tombstone) -> TombstoneFile:
    """Read a tombstone's file; raises `NotFoundError` or `DataError`."""
    data = await services.storage.read(tombstone.file.path)
    place = services.storage.place(tombstone.file.path)
    file = tombstones.load(data, place)
    if tombstone.file.digest not in {"", digest(data)}:
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


def tombstones_directory(services: HighAvailabilityServices) -> str:
    """Return where the files of tombstones lie."""
    return layout.tombstone_path(services.locations.cluster, "x").rpartition("/")[0]


async def sweep_tombstones(
    services: HighAvailabilityServices, registry: RegistryBody, names: Iterable[str]
) -> None:
    """Remove files of tombstones that are no more; one of a linked application is yet to be.

    ``names`` were listed before the registry was claimed: so none is the file of a later leader's
    run, which a leader that was paused in between would take for one that nothing names.
    """
    directory = tombstones_directory(services)
    needed = {*registry.tombstones, *(link.run_id for link in registry.applications.values())}
    for name in names:
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
    await services.storage.prune(directory)  # Of what writers left in it that died, too.
