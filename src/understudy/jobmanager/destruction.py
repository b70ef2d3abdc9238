"""Removal of all data of a cluster, once no leader and no local process of the cluster lives.

A held liveness lock refuses the removal at once. A leader known only by its record refuses it if
the record is renewed within its lease or, where contenders stand in line, if the leader stays in
line for as long. Then this process leads while it removes: a JobManager that starts meanwhile
stands by and finds nothing. The registry is removed first, the lease last: after a crash in
between nothing can be executed, and the removal can be repeated.

Processes on other hosts that do not lead are invisible here; they lose the leader and end their
work by themselves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import uuid
from dataclasses import dataclass, field

from understudy.clock import Clock
from understudy.core.lease import Timing
from understudy.errors import Conflict, DataError, NotFoundError, UnderstudyError
from understudy.ha import coordination, layout
from understudy.ha.election import Election, Leadership
from understudy.ha.register import Register
from understudy.ha.registry import REGISTRY_KEY, SEGMENT_PREFIX, segment_document
from understudy.ha.result_store import ResultStore
from understudy.ha.retrieval import LEADER_KEY, decode_leader
from understudy.ha.services import HighAvailabilityServices
from understudy.ha.turns import NoProofs, open_turns
from understudy.jobmanager.retention import read_tombstone
from understudy.model import Incarnation, LeaderRecord, RegistryBody, Term
from understudy.process import code
from understudy.process.liveness_lock import LivenessLocks

PATIENCE_RETRIES = 3
"""Most retry periods beyond a lease that an election without a leader takes."""

RACES_MAX = 100
"""Most lost races for one key: beyond this number, another process writes to the cluster."""

_log = logging.getLogger(__name__)


@dataclass
class Holdings:
    """The data of a cluster."""

    keys: list[str] = field(default_factory=list)
    """Keys of the register, without the leader's record."""
    directories: list[str] = field(default_factory=list)
    """Directories of storage that belong to the cluster alone."""
    files: list[str] = field(default_factory=list)
    """Files in directories of storage that other clusters may share."""
    unfinished: list[str] = field(default_factory=list)
    """Unfinished runs."""
    ended: list[str] = field(default_factory=list)
    """Ended runs with a tombstone."""
    leader: LeaderRecord | None = None


async def look(services: HighAvailabilityServices) -> Holdings | None:
    """Return the data of a cluster, damaged or not; None where there is none."""
    register, found = services.register, Holdings()
    keys = await register.keys("")
    entry = await register.load(LEADER_KEY) if LEADER_KEY in keys else None
    if entry:
        try:
            found.leader = decode_leader(entry)
        except DataError as error:
            _log.warning("%s", error)
    found.keys = sorted((key for key in keys if key != LEADER_KEY), key=_registry_first)
    try:
        registry = await services.registry.read()
    except DataError as error:
        _log.warning("%s", error)
        registry = None
    if registry:
        found.unfinished = [str(link.run_id) for link in registry.applications.values()]
        found.ended = [str(run) for run in registry.tombstones]
    await _look_into_storage(services, registry, found)
    return found if keys or found.directories or found.files else None


async def _look_into_storage(
    services: HighAvailabilityServices, registry: RegistryBody | None, found: Holdings
) -> None:
    storage, cluster = services.storage, services.locations.cluster
    if await storage.exists(cluster):
        found.directories.append(cluster)
    ids: set[str] | None = None
    for results in (services.job_results, services.application_results):
        if results.directory not in layout.result_directories(cluster):
            # A directory that a person has chosen may hold files of other clusters.
            if ids is None:
                ids = await _result_ids(services, registry, found.keys)
            found.files += await _result_files(services, results, ids)
        elif await storage.exists(results.directory):
            found.directories.append(results.directory)


async def _result_ids(
    services: HighAvailabilityServices, registry: RegistryBody | None, keys: list[str]
) -> set[str]:
    """Return the ids of all applications and jobs that the cluster still knows."""
    ids: set[str] = set(registry.applications) if registry else set()
    for key in keys:
        if key.startswith(SEGMENT_PREFIX):
            try:
                segment = await segment_document(services.register, key).read()
            except DataError as error:
                _log.warning("%s", error)
                continue
            ids.update(segment.jobs if segment else ())
    for stone in registry.tombstones.values() if registry else ():
        ids.add(stone.application_id)
        try:
            file = await read_tombstone(services, stone)
        except (DataError, NotFoundError) as error:
            _log.warning("%s", error)
            continue
        ids.update(record.job_id for record in file.jobs)
    return ids


async def _result_files(
    services: HighAvailabilityServices, results: ResultStore, ids: set[str]
) -> list[str]:
    names = set(await services.storage.names(results.directory))
    candidates = (
        path for one in sorted(ids) for path in (results.dirty_path(one), results.clean_path(one))
    )
    return [path for path in candidates if path.rpartition("/")[2] in names]


class Destruction:
    """The removal of one cluster."""

    def __init__(
        self,
        services: HighAvailabilityServices,
        found: Holdings,
        locks: LivenessLocks | None,
        timing: Timing,
        clock: Clock,
    ) -> None:
        """``locks``: liveness locks of the cluster's processes on this host; None without them."""
        self._services = services
        self._found = found
        self._locks = locks
        self._timing = timing
        self._clock = clock
        self.removed: list[str] = []

    async def run(self) -> None:
        """Remove all data; raises `UnderstudyError` where the cluster is in use.

        Raises ``OSError`` or ``TimeoutError`` for data that cannot be removed: a second call
        removes the rest.
        """
        await self.refuse_others()
        await self.refuse_the_living()
        await self._remove_damaged_record()
        await self._lead_and_remove()
        await self._remove_directory()

    async def refuse_the_living(self) -> None:
        """Raise `UnderstudyError` where a process of the cluster lives on this host."""
        if self._locks is None:
            return
        living = await self._locks.living()
        if not living:
            return
        leader = self._found.leader
        if leader and leader.holder in living:
            raise UnderstudyError(self._refusal(leader))
        pids = ", ".join(str(pid) for pid in sorted(living.values()) if pid) or "unknown"
        raise UnderstudyError(
            f"cluster {self._services.cluster_id!r} is in use: {len(living)} of its processes "
            f"live (process ids: {pids}); end them first"
        )

    async def refuse_others(self) -> None:
        """Raise `ForeignDataError` for data of another register: its processes are unknown here."""
        services = self._services
        try:
            if await services.registry.read() is not None:
                return
        except DataError:
            return  # The damaged registry is of this register.
        cluster = services.locations.cluster
        await coordination.refuse_others(services.storage, cluster, services.coordination)

    def _refusal(self, leader: LeaderRecord) -> str:
        where = f"process {leader.pid} on {leader.host}" + (leader.rest and f", {leader.rest}")
        return (
            f"{leader.name or leader.holder} leads cluster {self._services.cluster_id!r} ({where}):"
            " end its processes first"
        )

    async def _remove_damaged_record(self) -> None:
        """Remove an unreadable leader's record: it would prevent every election."""
        register = self._services.register
        entry = await register.load(LEADER_KEY)
        if entry and self._found.leader is None:
            try:
                decode_leader(entry)
            except DataError:
                await register.swap(LEADER_KEY, None, entry.version)

    async def _lead_and_remove(self) -> None:
        leader, timing = self._found.leader, self._timing
        lease_s = max(timing.lease_s, leader.lease_s if leader else 0.0)
        patience = asyncio.timeout(lease_s + PATIENCE_RETRIES * timing.retry_s)
        failure: list[Exception] = []

        async def remove(leadership: Leadership) -> None:
            patience.reschedule(None)
            await self.refuse_the_living()
            try:
                await self._remove(leadership.term)
            except (OSError, TimeoutError) as error:  # Reported at once, not retried for ever.
                failure.append(error)

        try:
            async with patience:
                await self._election().run(remove)
        except TimeoutError:
            found = await look(self._services)
            seen = found.leader if found and found.leader else leader
            if seen is None or not seen.holder:
                raise
            raise UnderstudyError(self._refusal(seen)) from None
        if failure:
            raise failure[0]

    def _election(self) -> Election:
        holder = Incarnation(uuid.uuid4().hex)
        me = LeaderRecord(
            holder=holder,
            term=0,
            session="",
            lease_s=self._timing.lease_s,
            name=f"destroy-{holder[:8]}",
            pid=os.getpid(),
            host=socket.gethostname(),
        )
        turns = open_turns(
            self._services.latch(me),
            self._services.register,
            self._timing,
            self._clock,
            self._locks or NoProofs(),
            random.Random(),  # noqa: S311 -- jitter, not secrets
        )
        return Election(
            self._services.register, me, turns, self._clock, self._highest_term, lambda _: None
        )

    async def _highest_term(self) -> Term:
        try:
            return await self._services.registry.highest_term()
        except DataError:
            return 0

    async def _remove(self, term: Term) -> None:
        """Remove all data but the lease, and the directory that may hold the lease."""
        storage, cluster = self._services.storage, self._services.locations.cluster
        _log.info("term %d removes cluster %r", term, self._services.cluster_id)
        for key in self._found.keys:
            await _delete(self._services.register, key)
            self.removed.append(f"register: {key}")
        for path in self._found.files:
            await storage.delete(path)
            await self._removed(path)
        for path in self._found.directories:
            if path != cluster:
                await storage.delete_tree(path)
                await self._removed(path)
        # The files that name the owner of the rest are removed last.
        kept = {layout.REGISTER, layout.LOCKS, layout.coordination_path("").lstrip("/")}
        for name in await storage.names(cluster):
            if name not in kept:
                await storage.delete_tree(f"{cluster}/{name}")
        base = code.layout_base(storage.blocking, cluster)
        await storage.run(code.remove_layouts, base)

    async def _removed(self, path: str) -> None:
        storage = self._services.storage
        await storage.prune(path.rpartition("/")[0])
        self.removed.append(storage.place(path))

    async def _remove_directory(self) -> None:
        """Remove the cluster's directory, now that its lease is gone."""
        services, cluster = self._services, self._services.locations.cluster
        await self.refuse_the_living()
        if await services.register.keys(""):
            raise UnderstudyError(
                f"somebody has started to use cluster {services.cluster_id!r} again: what is there "
                "now is theirs"
            )
        if cluster in self._found.directories:
            await services.storage.delete_tree(cluster)
            self.removed.append(services.storage.place(cluster))


async def _delete(register: Register, key: str) -> None:
    for _ in range(RACES_MAX):
        entry = await register.load(key)
        if entry is None:
            return
        try:
            await register.swap(key, None, entry.version)
        except Conflict:
            continue
        return
    raise UnderstudyError(f"{key}: another process keeps writing it")


def _registry_first(key: str) -> tuple[bool, str]:
    return key != REGISTRY_KEY, key
