"""HighAvailabilityServices: the stores of one cluster, over one register and one storage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from understudy.ha.application_store import ApplicationStore, StoredApplication
from understudy.ha.artifact_store import ArtifactStore
from understudy.ha.coordination import Coordination
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.metered import MeteredRegister
from understudy.ha.register import (
    Announcing,
    Entry,
    HasLatch,
    Latch,
    Notice,
    Pushed,
    Register,
    status_of,
)
from understudy.ha.registry import Registry
from understudy.ha.result_store import ResultStore
from understudy.ha.storage import Storage
from understudy.model import LeaderRecord

REGISTER_DEADLINE_S = 5.0
"""After so long the outcome of a register operation counts as unknown: half of the default renew
deadline, so that a leader can try twice."""


class BoundedRegister:
    """A register with a deadline for each operation of another one; then the outcome is unknown."""

    def __init__(self, register: Register, deadline_s: float = REGISTER_DEADLINE_S) -> None:
        self._register = register
        self._deadline_s = deadline_s

    async def load(self, key: str) -> Entry | None:
        """Load from the other register, or raise ``TimeoutError``."""
        async with asyncio.timeout(self._deadline_s):
            return await self._register.load(key)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Swap in the other register, or raise ``TimeoutError``."""
        async with asyncio.timeout(self._deadline_s):
            return await self._register.swap(key, value, expected)

    async def keys(self, prefix: str) -> list[str]:
        """List the other register's keys, or raise ``TimeoutError``."""
        async with asyncio.timeout(self._deadline_s):
            return await self._register.keys(prefix)

    def changes(self, key: str) -> AsyncIterator[Pushed | None]:
        """Follow a key; waiting for a change has no deadline."""
        return self._register.changes(key)

    def status(self) -> Mapping[str, object]:
        """Return the other register's status."""
        return status_of(self._register)


@dataclass(frozen=True)
class Locations:
    """The directories of a cluster in storage."""

    cluster: str
    """The cluster's own directory, made from its id."""
    job_results: str
    application_results: str


class HighAvailabilityServices:
    """All state of one cluster that must survive a JobManager."""

    def __init__(
        self,
        register: Register,
        storage: Storage,
        cluster_id: str,
        locations: Locations,
        deadline_s: float = REGISTER_DEADLINE_S,
        coordination: Coordination | None = None,
    ) -> None:
        """``deadline_s``: after so long the outcome of a register operation counts as unknown.

        ``coordination``: the register's identity in storage; None if it needs none.
        """
        self.coordination = coordination
        self.backend = register
        self.register = MeteredRegister(BoundedRegister(register, deadline_s))
        self.storage = storage
        self.cluster_id = cluster_id
        self.locations = locations
        self.registry = Registry(self.register, cluster_id)
        self.applications = ApplicationStore(
            self.register, self.registry, storage, locations.cluster
        )
        self.artifacts = ArtifactStore(self.register, self.registry, storage, locations.cluster)
        self.job_results = ResultStore(storage, locations.job_results)
        self.application_results = ResultStore(storage, locations.application_results)

    def latch(self, me: LeaderRecord) -> Latch | None:
        """Open the line of contenders for one of them; None if the backend keeps none."""
        if not isinstance(self.backend, HasLatch):
            return None
        note = {"name": me.name, "host": me.host, "pid": me.pid, "rest": me.rest}
        return self.backend.latch(me.holder, json.dumps(note).encode())

    async def line(self) -> list[str] | None:
        """Return the contenders in line; None if the backend keeps no line."""
        return await self.backend.line() if isinstance(self.backend, HasLatch) else None

    def announce(self, notice: Notice) -> None:
        """Show people what has happened, if the backend can; never waits, never raises."""
        if isinstance(self.backend, Announcing):
            self.backend.announce(notice)

    def plans(self, application: StoredApplication) -> ExecutionPlanStore:
        """Open the jobs of one application."""
        return ExecutionPlanStore(self.register, self.storage, self.locations.cluster, application)
