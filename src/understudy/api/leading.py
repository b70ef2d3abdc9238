"""What the JobManager of this process knows while it leads, for all routes.

Whoever asks while leadership ends may meet an `AttributeError`; the endpoint hands such a request
on to the next leader.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from dataclasses import dataclass

from starlette.responses import Response

from understudy.api import answers, directory, own_headers
from understudy.api.directory import Directory
from understudy.api.recent import Recent, Seen
from understudy.api.views import ApplicationFacts, Json
from understudy.config import options
from understudy.errors import CorruptDataError, DataError, NotFoundError
from understudy.jobmanager.attention import Problems
from understudy.jobmanager.job_manager import JobManager
from understudy.model import JobId, JobRecord, RegistryBody, Tombstone, TombstoneFile

_oldest_s: ContextVar[float] = ContextVar("oldest_s", default=0.0)
"""The age of the oldest that this request was answered with, which has a task of its own."""


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
        self._registry: Recent[RegistryBody | None] = Recent(
            self._read_registry, self._last_registry
        )
        self._problems: Recent[Problems] = Recent(self._read_problems, self._last_problems)

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
        """Return an answer in the name of this term, with the age of what it was made from."""
        leadership = self.manager.leadership
        response = answers.as_json(body, leadership.term if leadership else 0, status)
        if age_s := _oldest_s.get():
            response.headers[own_headers.AGE] = f"{age_s:.3f}"
        return response

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
        """Return the registry; None also where it cannot be read, which is told elsewhere.

        While the register takes long to answer, it is the registry as it was seen last.
        """
        seen = await self._registry.look()
        _oldest_s.set(max(_oldest_s.get(), seen.age_s))
        return seen.found

    async def known(self) -> tuple[RegistryBody | None, Problems, float]:
        """Return the registry, what needs a person, and how many seconds ago both were known.

        Before the first look at the data, what needs a person is what this leader met.
        """
        registry, problems = await asyncio.gather(
            self._registry.look(), self._problems.look(), return_exceptions=True
        )
        if isinstance(registry, BaseException):
            raise registry
        if isinstance(problems, (OSError, TimeoutError)):
            dispatcher = self.manager.dispatcher
            problems = Seen(dict(dispatcher.attention) if dispatcher else {})
        if isinstance(problems, BaseException):
            raise problems
        return registry.found, problems.found, round(max(registry.age_s, problems.age_s), 3)

    async def _read_registry(self) -> RegistryBody | None:
        with contextlib.suppress(DataError):
            return await self.directory.registry()
        return None

    def _last_registry(self) -> Seen[RegistryBody | None] | None:
        seen = self.manager.around.services.registry.seen
        if seen is None:
            return None
        return Seen(seen[0], max(0.0, asyncio.get_running_loop().time() - seen[1]))

    async def _read_problems(self) -> Problems:
        dispatcher = self.manager.dispatcher
        return await dispatcher.problems() if dispatcher else {}

    def _last_problems(self) -> Seen[Problems] | None:
        dispatcher = self.manager.dispatcher
        if dispatcher is None:
            return None
        at, now = dispatcher.inspector.looked_at, self.manager.around.clock.now()
        if at is None:
            return None
        return Seen({**dispatcher.inspector.found, **dispatcher.attention}, max(0.0, now - at))

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
