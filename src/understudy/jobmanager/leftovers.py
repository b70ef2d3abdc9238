"""What crashes have left, as a new leader finds it: removed while that leader serves.

Everything is listed at the grant, before a write of the new term that proves that there is no later
one, and compared with what the new term has claimed. What was listed and not linked then is never
linked again: older terms are shut out, and this term stores under new names. So the removal may
take its time, while applications run and others are submitted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from understudy.errors import DataError
from understudy.ha import layout
from understudy.ha.application_store import Recovered
from understudy.ha.registry import Listed
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.linked_application import LinkedApplication
from understudy.jobmanager.retention import sweep_tombstones, tombstones_directory
from understudy.model import RegistryBody, Term

_log = logging.getLogger(__name__)


NONE = Listed((), (), ())


@dataclass(frozen=True)
class Leftovers:
    """Documents, directories and tombstones' files of a cluster."""

    documents: Listed = NONE
    directories: tuple[str, ...] = ()
    """Names of directories of applications."""
    tombstones: tuple[str, ...] = ()
    """Names of files."""
    registry: RegistryBody | None = None
    recovered: Recovered = field(default_factory=Recovered)

    @classmethod
    async def listed(cls, services: HighAvailabilityServices) -> Leftovers:
        """Return all that there is; nothing where it cannot be listed now."""
        storage = services.storage
        base = layout.application_directory(services.locations.cluster, "x").rpartition("/")[0]
        try:
            documents, directories, tombstones = await asyncio.gather(
                services.registry.listed(),
                storage.names(base),
                storage.names(tombstones_directory(services)),
            )
        except (OSError, TimeoutError, DataError) as error:
            _log.warning("the sweep is left to the next leader: %s", error)
            return cls()
        return cls(documents, tuple(directories), tuple(tombstones))

    def besides(self, registry: RegistryBody, recovered: Recovered) -> Leftovers:
        """Return what nothing links, by what the new term has claimed.

        While an application is damaged, its segments and its directory are unknown: all of them
        stay, and so do all checkpoints.
        """
        bodies = [stored.body for stored in recovered.sound]
        applications = {link.document for link in registry.applications.values()}
        segments = {key for body in bodies for key in body.segments}
        directories = {body.directory for body in bodies}
        found = self.documents
        documents = Listed(
            tuple(key for key in found.applications if key not in applications),
            tuple(key for key in found.segments if key not in segments),
            found.checkpoints,
        )
        names = tuple(name for name in self.directories if name not in directories)
        if recovered.damaged:
            documents, names = Listed(documents.applications, (), ()), ()
        return replace(
            self, documents=documents, directories=names, registry=registry, recovered=recovered
        )

    async def remove(
        self,
        services: HighAvailabilityServices,
        term: Term,
        applications: Sequence[LinkedApplication],
    ) -> None:
        """Remove it; ``applications``: all that were linked at the grant, claimed or parked.

        Raises ``OSError``, ``TimeoutError``, `DataError` or `LeadershipLost`.
        """
        registry, documents = services.registry, self.documents
        swept = await registry.delete_unlinked(term, documents.applications, ())
        swept += await registry.delete_unlinked(term, documents.segments, ())
        linked = [one.checkpoints() for one in applications]
        if None not in linked:
            known = frozenset[str]().union(*(keys for keys in linked if keys))
            swept += await registry.delete_unlinked(term, documents.checkpoints, known)
        for key in swept:
            _log.info("removed %s, which nothing links", key)
        if self.registry:
            names = list(self.tombstones)
            await sweep_tombstones(services, term, self.registry, self.recovered, names)
        base = layout.application_directory(services.locations.cluster, "x").rpartition("/")[0]
        for name in self.directories:
            await services.storage.delete_tree(f"{base}/{name}")
            _log.info("removed %s/%s, which nothing links", base, name)
