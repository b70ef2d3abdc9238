"""What the JobManager of this process knows while it leads, for all routes.

Whoever asks while leadership ends may meet an `AttributeError`; the endpoint hands such a request
on to the next leader.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from starlette.responses import Response

from understudy.api import answers, directory
from understudy.api.directory import Directory
from understudy.api.views import ApplicationFacts, Json
from understudy.config import options
from understudy.errors import CorruptDataError, DataError, NotFoundError
from understudy.model import JobId, JobRecord, RegistryBody, Tombstone, TombstoneFile
from understudy.runtime.job_manager import JobManager


@dataclass(frozen=True)
class LinkedJob:
    """A job of an application that is not buried yet."""

    facts: ApplicationFacts
    job_id: JobId


@dataclass(frozen=True)
class BuriedJob:
    """A job of an application of which only the tombstone remains."""

    tombstone: Tombstone
    file: TombstoneFile
    record: JobRecord


class Leading:
    """One JobManager, and all that its cluster knows of applications."""

    def __init__(self, manager: JobManager) -> None:
        self.manager = manager
        self.directory = Directory(manager.around.services, manager.around.clock)

    @property
    def serves(self) -> bool:
        """Say whether this JobManager leads, and has published its address."""
        manager = self.manager
        return bool(
            manager.dispatcher
            and manager.resources
            and manager.leadership
            and manager.leadership.addresses[0]
        )

    def register(self) -> Json:
        """Return what this JobManager's backend tells of itself, whoever leads."""
        around = self.manager.around
        return {
            **around.services.register.status(),
            "type": around.configuration.get(options.HA_TYPE),
        }

    def json(self, body: object, status: int = 200) -> Response:
        """Return an answer in the name of this term."""
        leadership = self.manager.leadership
        return answers.as_json(body, leadership.term if leadership else 0, status)

    async def facts(self) -> tuple[list[ApplicationFacts], dict[str, Tombstone]]:
        """Return all applications: those that are linked, and tombstones by run id."""
        dispatcher = self.manager.dispatcher
        registry = await self.registry()
        buried = registry.tombstones if registry else {}
        tombstones = {str(run): stone for run, stone in buried.items()}
        if dispatcher and dispatcher.application:
            live = self.directory.live(dispatcher.application)
            if live.body.run_id in tombstones:
                return [], tombstones
            return [live], tombstones
        return (await self.directory.stored(registry) if registry else []), tombstones

    async def registry(self) -> RegistryBody | None:
        """Return the registry; None also where it cannot be read, which is told elsewhere."""
        with contextlib.suppress(DataError):
            return await self.directory.registry()
        return None

    async def unreadable(self) -> list[Json]:
        """Return the applications of which nothing but their link can be read."""
        dispatcher, registry = self.manager.dispatcher, await self.registry()
        if dispatcher is None or dispatcher.application or registry is None:
            return []
        facts = await self.directory.stored(registry)
        return directory.unreadable(registry, facts, await dispatcher.problems())

    async def application(self, wanted: str) -> ApplicationFacts | Tombstone:
        """Return the application with this id; raises `NotFoundError`."""
        facts, tombstones = await self.facts()
        try:
            return directory.find_application(wanted, facts, tombstones)
        except NotFoundError:
            await self._say_what_is_damaged()
            raise

    async def _say_what_is_damaged(self) -> None:
        """Raise `DataError` where nobody can tell what there is, for the registry is damaged."""
        dispatcher = self.manager.dispatcher
        if dispatcher and (why := dispatcher.attention.get("registry")):
            raise CorruptDataError(why)

    async def job(self, wanted: str) -> LinkedJob | BuriedJob:
        """Return the job with this id; raises `NotFoundError`."""
        facts, tombstones = await self.facts()
        if found := directory.find_job(wanted, facts):
            return LinkedJob(*found)
        for stone in reversed(tombstones.values()):
            with contextlib.suppress(NotFoundError, DataError):
                file = await self.directory.buried(stone)
                for record in file.jobs:
                    if record.job_id == wanted:
                        return BuriedJob(stone, file, record)
        await self._say_what_is_damaged()
        raise NotFoundError(f"Job {wanted} not found")
