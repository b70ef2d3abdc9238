"""Problems that need a person: damaged, foreign, newer or lost data, each with a way out.

Inspection changes nothing. A leader may clean up the data during an inspection: only a problem
that two inspections in a row find is reported.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from understudy.clock import Clock
from understudy.errors import (
    DataError,
    ForeignDataError,
    LeadershipLost,
    LostDataError,
    NotFoundError,
)
from understudy.ha import coordination
from understudy.ha.blobs import BlobStore
from understudy.ha.format import digest
from understudy.ha.registry import (
    application_document,
    checkpoints_document,
    segment_document,
)
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.retention import read_tombstone
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    ApplicationRecord,
    JobEntry,
    RegistryBody,
    RegistryLink,
    RunId,
    Term,
)
from understudy.process.persist import persist

Problems = dict[str, str]
"""Problem texts by application, run or job id, ``registry``, ``leader`` or ``storage``."""

AMISS = (DataError, NotFoundError)

REPAIR_LOOK_S = 2.0
"""Pause between two checks whether a person has repaired damaged data."""

LOOK_S = 5.0
"""How long the result of one inspection is reused."""

LOOK_SHARE = 20
"""Inspections take at most one part in this many of the time."""

WAIT = "nothing of it is run or removed; put a sound copy in its place, and it continues by itself"

REGISTRY_WAY_OUT = (
    "nothing is run or removed; put its latest copy back and the cluster continues by itself, or "
    "remove all that is left of the cluster with `understudy destroy`"
)


@dataclass
class Inspector:
    """Inspects all data of a cluster on request, at a limited rate."""

    services: HighAvailabilityServices
    clock: Clock
    looked_at: float | None = None
    """Time of the last inspection, by the clock; None before the first."""
    found: Problems = field(default_factory=dict)
    """Problems found by the last inspection."""
    _again_at: float | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def problems(self) -> Problems:
        """Return the problems of now, or of a few seconds ago."""
        async with self._turn:
            began = self.clock.now()
            if self._again_at is None or began >= self._again_at:
                self.found = await inspect(self.services)
                self.looked_at = self.clock.now()
                took_s = self.clock.now() - began
                self._again_at = self.clock.now() + max(LOOK_S, LOOK_SHARE * took_s)
            return self.found


async def inspect(services: HighAvailabilityServices) -> Problems:
    """Return the problems in the register and in storage."""
    first = await _look(services)
    if not first:
        return {}
    second = await _look(services)
    return {subject: why for subject, why in second.items() if subject in first}


async def _look(services: HighAvailabilityServices) -> Problems:
    found: Problems = {}
    try:
        registry = await services.registry.read()
        if registry is None:
            await _refuse_others(services)
            if trace := await _trace_of_a_registry(services):
                found["registry"] = f"{trace}: {REGISTRY_WAY_OUT}"
            return found
        for application, link in registry.applications.items():
            found |= await _application(services, application, link)
        found |= await _tombstones(services, registry)
    except ForeignDataError as error:
        found["registry"] = str(error)
    except DataError as error:
        found["registry"] = f"{error}: {REGISTRY_WAY_OUT}"
    except (OSError, TimeoutError) as error:
        found["storage"] = f"does not answer: {str(error) or 'in time'}"
    return found


async def refuse_lost_registry(services: HighAvailabilityServices, bound: RunId | None) -> None:
    """Raise `LostDataError` where the registry is missing but once existed.

    Raises `ForeignDataError` where another register has it. ``bound`` is the run that this process
    has seen in the registry.
    """
    if await services.registry.read() is not None:
        return
    await _refuse_others(services)
    trace = await _trace_of_a_registry(services)
    if not trace and bound:
        trace = f"register entry registry is gone, and run {bound} with it"
    if trace:
        raise LostDataError(trace)


async def _refuse_others(services: HighAvailabilityServices) -> None:
    cluster = services.locations.cluster
    await coordination.refuse_others(services.storage, cluster, services.coordination)


async def _trace_of_a_registry(services: HighAvailabilityServices) -> str:
    """Return the evidence that a missing registry once existed; empty for a new cluster.

    The registry is written before all other data, and an orderly removal leaves no data behind.
    """
    cluster = services.locations.cluster
    keys = [*await services.register.keys("application-"), *await services.register.keys("jobs-")]
    if keys:
        return f"register entry registry is gone, though {keys[0]} is there"
    for directory in ("applications", "tombstones"):
        if names := await services.storage.names(f"{cluster}/{directory}"):
            place = services.storage.place(f"{cluster}/{directory}/{names[0]}")
            return f"register entry registry is gone, though {place} is there"
    return ""


def damage_in(error: BaseException) -> Exception | None:
    """Return the first damage in an error or group; None if the group holds any other error."""
    leaves = [error]
    while groups := [one for one in leaves if isinstance(one, BaseExceptionGroup)]:
        leaves.remove(groups[0])
        leaves += groups[0].exceptions
    damage = [one for one in leaves if isinstance(one, AMISS)]
    return damage[0] if len(damage) == len(leaves) else None


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group: a lost leadership comes first, it explains the others."""
    if isinstance(error, BaseExceptionGroup):
        error = error.subgroup(LeadershipLost) or error
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def repaired(damaged: Callable[[], Awaitable[bool]]) -> None:
    """Return once the damage is repaired."""
    while True:
        await asyncio.sleep(REPAIR_LOOK_S)
        with contextlib.suppress(DataError, OSError, TimeoutError):
            if not await damaged():
                return


async def refuse_if_deposed(services: HighAvailabilityServices, term: Term) -> None:
    """Raise `LeadershipLost` if a newer term exists: it may have removed the missing data."""
    with contextlib.suppress(DataError):
        highest = await persist("look which term is the newest", services.registry.highest_term)
        if highest > term:
            raise LeadershipLost(f"term {highest} is newer than {term}")


async def registry_is_damaged(services: HighAvailabilityServices) -> bool:
    """Return whether the registry is missing; raises `DataError` if unreadable."""
    return await services.registry.read() is None


async def is_damaged(services: HighAvailabilityServices, application: ApplicationId) -> bool:
    """Return whether damaged data keeps a linked application from being executed."""
    registry = await services.registry.read()
    link = registry.applications.get(application) if registry else None
    if link is None:
        return False
    try:
        await _vital(services, application, link)
    except AMISS:
        return True
    return False


async def _vital(
    services: HighAvailabilityServices, application: ApplicationId, link: RegistryLink
) -> tuple[ApplicationDocument, list[JobEntry]]:
    """Read all data that executing an application needs; raises `DataError`, `NotFoundError`."""
    body = await application_document(services.register, link.document, application).read()
    if body is None:
        raise NotFoundError(f"register entry {link.document} is gone")
    entries: list[JobEntry] = []
    for key in body.segments:
        segment = await segment_document(services.register, key, application).read()
        if segment is None:
            raise NotFoundError(f"register entry {key} is gone")
        entries += segment.jobs.values()
    if body.result is None:
        record = await services.applications.record(body)
        await services.storage.run(_read_blobs, services, body, record)
    return body, entries


def _read_blobs(
    services: HighAvailabilityServices, body: ApplicationDocument, record: ApplicationRecord
) -> None:
    blobs = BlobStore(services.storage.blocking, services.locations.cluster, body.directory)
    for artifact in record.artifacts:
        blobs.get(artifact)


async def _application(
    services: HighAvailabilityServices, application: ApplicationId, link: RegistryLink
) -> Problems:
    try:
        body, entries = await _vital(services, application, link)
    except AMISS as error:
        return {application: application_needs(link, str(error))}
    return {
        **(await _results(services, entries)),
        **(await _plans(services, entries) if body.result is None else {}),
        **(await _checkpoints(services, application, entries)),
    }


def application_needs(link: RegistryLink, why: str) -> str:
    """Return the problem text for an application that cannot be executed."""
    return f"run {link.run_id} waits: {why}: {WAIT}"


def application_fails(link: RegistryLink, why: str) -> str:
    """Return the problem text for an application that fails for no known reason."""
    return f"run {link.run_id} waits: {why}"


async def _results(services: HighAvailabilityServices, entries: list[JobEntry]) -> Problems:
    ended = [(one, one.result) for one in entries if one.result and not one.result.clean]
    wanted = [(entry.job_id, result.source) for entry, result in ended]
    found = await services.job_results.read_all(wanted)
    return {
        entry.job_id: (
            f"job {entry.name!r} is {result.status.value} and is not run again, but "
            f"{services.storage.place(result.source.path)}, what it returned, is gone or altered: "
            "put a sound copy in its place"
        )
        for (entry, result), data in zip(ended, found, strict=True)
        if data is None
    }


async def _plans(services: HighAvailabilityServices, entries: list[JobEntry]) -> Problems:
    found: Problems = {}
    for entry in entries:
        if entry.result:
            continue
        try:
            data = await services.storage.read(entry.plan.path)
            why = "" if digest(data) == entry.plan.digest else "was altered"
        except AMISS as error:
            why = str(error)
        if why:
            place = services.storage.place(entry.plan.path)
            found[entry.job_id] = f"the plan of job {entry.name!r}, {place}: {why}"
    return found


async def _checkpoints(
    services: HighAvailabilityServices, application: ApplicationId, entries: list[JobEntry]
) -> Problems:
    """Inspect the checkpoints of unfinished jobs; ended jobs need none."""
    found: Problems = {}
    for entry in entries:
        if entry.result or not entry.checkpoints:
            continue
        key, why = entry.checkpoints, ""
        try:
            if await checkpoints_document(services.register, key, application).read() is None:
                why = f"register entry {key} is gone"
        except DataError as error:
            why = str(error)
        if why:
            found[entry.job_id] = checkpoints_need(entry.name, why)
    return found


def checkpoints_need(name: str, why: str) -> str:
    """Return the problem text for a job whose checkpoints cannot be read."""
    return (
        f"job {name!r}: what is recorded of its checkpoints cannot be read: {why}: "
        "put its latest copy back, and it continues by itself; or cancel the job"
    )


def no_room(name: str, why: str) -> str:
    """Return the problem text for a job with more checkpoint names than can be recorded."""
    return (
        f"job {name!r}: its newest checkpoints are refused: {why}. Each name that it gives to "
        "ctx.checkpoint, ctx.table or ctx.write is kept until it ends: let it use fewer, or divide "
        "its work into several jobs"
    )


async def _tombstones(services: HighAvailabilityServices, registry: RegistryBody) -> Problems:
    found: Problems = {}
    for stone in registry.tombstones.values():
        if not stone.file.digest:
            continue  # A person has accepted that the file could not be written.
        try:
            await read_tombstone(services, stone)
        except AMISS as error:
            found[stone.run_id] = (
                f"run {stone.run_id} is {stone.status.value} and is not run again, but what is "
                f"known of its jobs cannot be read: {error}: put a sound copy in its place"
            )
    return found
