"""Runs of clusters that nobody named: all their data is gone, a summary remains on this host.

The summary has the shape of a cluster with one tombstone, so that commands show the run as they
show any other run that has ended.
"""

from __future__ import annotations

from understudy.api.client import ClusterClient
from understudy.api.directory import Directory
from understudy.clock import SystemClock
from understudy.ha.format import Format
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.attention import Problems
from understudy.model import LeaderRecord, Record, RegistryBody, Tombstone, TombstoneFile


class PastRun(Record, frozen=True):
    """How a run ended."""

    cluster_id: str
    storage: str
    """The storage directory of the run."""
    tombstone: Tombstone
    file: TombstoneFile


past_runs = Format("past-run", PastRun)


class PastDirectory(Directory):
    """The contents of a cluster of which a past run is all that remains."""

    def __init__(self, services: HighAvailabilityServices, past: PastRun) -> None:
        super().__init__(services, SystemClock())
        self._past = past

    async def registry(self) -> RegistryBody:
        """Return a registry with the run's tombstone."""
        stone = self._past.tombstone
        return RegistryBody(
            cluster_id=self._past.cluster_id,
            incarnation="",
            ephemeral=True,
            tombstones={stone.run_id: stone},
        )

    async def problems(self) -> Problems:
        """Return none."""
        return {}

    async def buried(self, tombstone: Tombstone) -> TombstoneFile:
        """Return what is known of the run."""
        return self._past.file


class PastClient(ClusterClient):
    """A command's access to a past run: no leader ever answers."""

    def __init__(self, services: HighAvailabilityServices, past: PastRun) -> None:
        super().__init__(services, 0.0)
        self._directory = PastDirectory(services, past)

    async def _leader(self) -> LeaderRecord | None:
        return None

    async def _is_followed(self, leader: LeaderRecord | None) -> bool:
        return False

    async def _line(self) -> list[str] | None:
        return None
