"""HighAvailabilityServices: the stores of one cluster, wired over one register and one storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from understudy.ha.application_store import ApplicationStore, StoredApplication
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.register import Entry, Register
from understudy.ha.registry import Registry
from understudy.ha.result_store import ResultStore
from understudy.ha.storage import Storage

REGISTER_DEADLINE_S = 5.0
"""How long one register operation may take before its outcome counts as unknown: half of the
default renew deadline, so that a leader can try twice."""


class BoundedRegister:
    """A register each of whose operations has a deadline; past it, the outcome is unknown."""

    def __init__(self, register: Register, deadline_s: float = REGISTER_DEADLINE_S) -> None:
        self._register = register
        self._deadline_s = deadline_s

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        async with asyncio.timeout(self._deadline_s):
            return await self._register.load(key)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """See `Register.swap`."""
        async with asyncio.timeout(self._deadline_s):
            return await self._register.swap(key, value, expected)

    async def keys(self, prefix: str) -> list[str]:
        """See `Register.keys`."""
        async with asyncio.timeout(self._deadline_s):
            return await self._register.keys(prefix)

    def changes(self, prefix: str) -> AsyncIterator[None]:
        """See `Register.changes`: waiting for a change has no deadline."""
        return self._register.changes(prefix)


@dataclass(frozen=True)
class Locations:
    """Where a cluster keeps what."""

    cluster: str
    """The cluster's directory in storage, made from its id."""
    job_results: str
    application_results: str


class HighAvailabilityServices:
    """All that must survive a JobManager, for one cluster id."""

    def __init__(
        self, register: Register, storage: Storage, cluster_id: str, locations: Locations
    ) -> None:
        self.register = BoundedRegister(register)
        self.storage = storage
        self.cluster_id = cluster_id
        self.locations = locations
        self.registry = Registry(self.register, cluster_id)
        self.applications = ApplicationStore(
            self.register, self.registry, storage, locations.cluster
        )
        self.job_results = ResultStore(storage, locations.job_results)
        self.application_results = ResultStore(storage, locations.application_results)

    def plans(self, application: StoredApplication) -> ExecutionPlanStore:
        """Open the jobs of one application."""
        return ExecutionPlanStore(self.register, self.storage, self.locations.cluster, application)
