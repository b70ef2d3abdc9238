"""The facts of this process's JobManager while it leads, for all routes.

A request is answered under one term: the endpoint takes the term once (`Leading.answering`), and
every route reads that snapshot (`Leading.term`), though leadership may end meanwhile.

Where register or storage is slow, a route waits half a second and then shows the last known value
(`Recent`). The read continues in the background, one at a time, and its value is used later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.responses import Response

from understudy.api import answers, directory, own_headers
from understudy.api.directory import Directory
from understudy.api.savepoint_places import SavepointPlaces
from understudy.api.views import ApplicationFacts, Json
from understudy.config import Configuration, options
from understudy.config.brought import BroughtSettings
from understudy.config.security import Hosts
from understudy.errors import CorruptDataError, DataError, NotFoundError, UnreadableApplication
from understudy.jobmanager.attention import Problems
from understudy.jobmanager.checkpoint_coordinator import CheckpointSettings
from understudy.jobmanager.job_manager import JobManager, LeadingTerm
from understudy.jobmanager.linked_application import LinkedApplication
from understudy.model import JobId, JobRecord, RegistryBody, Tombstone, TombstoneFile
from understudy.process.reporter import LogFiles

_oldest_s: ContextVar[float] = ContextVar("oldest_s", default=0.0)
"""Age of the oldest data in the current answer; each request has its own task."""

_term: ContextVar[LeadingTerm] = ContextVar("term")
"""The term that this request is answered under."""

T = TypeVar("T")

PATIENCE_S = 0.5
"""Longest wait of an answer for its data, so that the answer takes less than a second."""


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


@dataclass(frozen=True)
class ArtifactSettings:
    """The options of uploads."""

    are_taken: bool
    size_max: int
    total_max: int
    unused_s: float
    directory: str | None
    """Where a file is received; None: the system's temporary directory."""

    @classmethod
    def of(cls, configuration: Configuration) -> ArtifactSettings:
        """Return the settings of a configuration."""
        return cls(
            configuration.stays and configuration.get(options.UPLOADS),
            configuration.get(options.ARTIFACT_MAX),
            configuration.get(options.ARTIFACTS_TOTAL_MAX),
            configuration.get(options.ARTIFACT_TTL),
            configuration.find(options.TMP_DIRS),
        )


@dataclass(frozen=True)
class RestSettings:
    """The options of the routes."""

    backend: str
    is_standalone: bool
    history: int
    """Most failures of a job that are shown."""
    reports_metrics: bool
    hosts: Hosts
    checkpoints: CheckpointSettings
    savepoint_directory: str
    savepoint_places: SavepointPlaces
    log_files: LogFiles
    artifacts: ArtifactSettings
    brought: BroughtSettings
    shown: Mapping[str, str]
    """All settings of the JobManager, secrets hidden."""

    @classmethod
    def of(cls, configuration: Configuration) -> RestSettings:
        """Return the settings of a configuration."""
        return cls(
            configuration.get(options.HA_TYPE),
            configuration.is_standalone,
            configuration.get(options.EXCEPTION_HISTORY),
            options.PROMETHEUS in configuration.get(options.REPORTERS),
            Hosts.of(
                configuration,
                configuration.get(options.REST_ADDRESS),
                configuration.get(options.REST_BIND_ADDRESS),
            ),
            CheckpointSettings.of(configuration),
            configuration.find(options.SAVEPOINT_DIR) or "",
            SavepointPlaces.of(configuration),
            LogFiles.of(configuration),
            ArtifactSettings.of(configuration),
            BroughtSettings(configuration),
            configuration.redacted(),
        )


@dataclass(frozen=True)
class Seen(Generic[T]):
    """A value, and how long ago it was read."""

    found: T
    age_s: float = 0.0


class Recent(Generic[T]):
    """A value that is read again and again."""

    def __init__(
        self, read: Callable[[], Awaitable[T]], last: Callable[[], Seen[T] | None]
    ) -> None:
        """``last``: the value seen last, None without one."""
        self._read = read
        self._last = last
        self._overdue: set[asyncio.Future[T]] = set()

    async def look(self) -> Seen[T]:
        """Return the current value, or the one seen last if the read is slow or fails.

        Without an earlier value, raises the error of the read, or ``TimeoutError``.
        """
        if not self._overdue:
            reading = asyncio.ensure_future(self._read())
            try:
                await asyncio.wait({reading}, timeout=PATIENCE_S)
            finally:
                if not reading.done():
                    self._overdue.add(reading)
                    reading.add_done_callback(self._ended)
            if reading.done():
                try:
                    return Seen(reading.result())
                except (OSError, TimeoutError):
                    if self._last() is None:
                        raise
        seen = self._last()
        if seen is None:
            raise TimeoutError(f"nothing was read within {PATIENCE_S:g} s")
        return seen

    def _ended(self, reading: asyncio.Future[T]) -> None:
        self._overdue.discard(reading)
        if not reading.cancelled():
            reading.exception()  # Marks the error as seen: a caller that waited has got it.


class Leading:
    """One JobManager, and all applications of its cluster."""

    def __init__(self, manager: JobManager) -> None:
        self.manager = manager
        around = manager.around
        self.settings = RestSettings.of(around.configuration)
        self.directory = Directory(around.services, around.clock, self.settings.history)
        self._registry: Recent[RegistryBody | None] = Recent(
            self._read_registry, self._last_registry
        )
        self._problems: Recent[Problems] = Recent(self._read_problems, self._last_problems)

    @contextlib.contextmanager
    def answering(self, term: LeadingTerm) -> Iterator[None]:
        """Answer one request under this term."""
        token = _term.set(term)
        try:
            yield
        finally:
            _term.reset(token)

    @property
    def term(self) -> LeadingTerm:
        """Return the term that the present request is answered under."""
        return _term.get()

    def register(self) -> Json:
        """Return the status of this JobManager's backend, also while it does not lead."""
        around = self.manager.around
        return {
            **around.services.register.status(),
            "type": self.settings.backend,
        }

    def json(self, body: object, status: int = 200) -> Response:
        """Return an answer of this term, with the age of its data."""
        response = answers.as_json(body, self.term.number, status)
        if age_s := _oldest_s.get():
            response.headers[own_headers.AGE] = f"{age_s:.3f}"
        return response

    async def facts(self) -> tuple[list[ApplicationFacts], dict[str, Tombstone]]:
        """Return all applications: those linked in the registry, and tombstones by run id."""
        registry = await self.registry()
        buried = registry.tombstones if registry else {}
        tombstones = {str(run): stone for run, stone in buried.items()}
        linked = self.term.dispatcher.applications
        known = {name: facts for name, one in linked.items() if (facts := self._known(one))}
        if registry:
            stored = await self.directory.stored(registry, frozenset(known))
            known |= {one.body.application_id: one for one in stored}
        return [one for one in known.values() if one.body.run_id not in tombstones], tombstones

    def _known(self, linked: LinkedApplication) -> ApplicationFacts | None:
        """Return an application as this leader knows it; None if it does not, or is parked."""
        if linked.application:
            return self.directory.live(linked.application)
        if cleanup := linked.cleanup:
            return self.directory.ending(cleanup.body, cleanup.jobs)
        return None

    async def registry(self) -> RegistryBody | None:
        """Return the registry; None if it cannot be read, which is reported elsewhere.

        While the register is slow, the result is the registry as last seen.
        """
        seen = await self._registry.look()
        _oldest_s.set(max(_oldest_s.get(), seen.age_s))
        return seen.found

    async def known(self) -> tuple[RegistryBody | None, Problems, float]:
        """Return the registry, the problems that a person must solve, and their age in seconds.

        Before the first look at the data, the problems are those that this leader met.
        """
        registry, problems = await asyncio.gather(
            self._registry.look(), self._problems.look(), return_exceptions=True
        )
        if isinstance(registry, BaseException):
            raise registry
        if isinstance(problems, (OSError, TimeoutError)):
            problems = Seen(dict(self.term.dispatcher.attention))
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
        term = self.manager.term
        return await term.dispatcher.problems() if term else {}

    def _last_problems(self) -> Seen[Problems] | None:
        if self.manager.term is None:
            return None
        dispatcher = self.manager.term.dispatcher
        at, now = dispatcher.inspector.looked_at, self.manager.around.clock.now()
        if at is None:
            return None
        return Seen({**dispatcher.inspector.found, **dispatcher.attention}, max(0.0, now - at))

    async def unreadable(self) -> list[Json]:
        """Return the applications of which only the link can be read."""
        dispatcher, registry = self.term.dispatcher, await self.registry()
        linked = dispatcher.applications
        known = {name for name, one in linked.items() if one.application or one.cleanup}
        if registry is None or registry.applications.keys() <= known:
            return []
        facts, _ = await self.facts()
        return directory.unreadable(registry, facts, await dispatcher.problems())

    async def find_unreadable(self, wanted: str) -> Json | None:
        """Return the one of `unreadable` with this id, in the shape of details."""
        return directory.find_unreadable(wanted, await self.unreadable())

    async def application(self, wanted: str) -> ApplicationFacts | Tombstone:
        """Return the application with this id.

        Raises `NotFoundError`, and `UnreadableApplication` where only the link can be read.
        """
        facts, tombstones = await self.facts()
        try:
            return directory.find_application(wanted, facts, tombstones.values())
        except NotFoundError:
            await self._raise_damage()
            if one := await self.find_unreadable(wanted):
                raise UnreadableApplication(
                    f"application {one['id']} cannot be read, and continues once it is repaired: "
                    f"{one['problem']}"
                ) from None
            raise

    async def configuration(self, found: ApplicationFacts | Tombstone) -> dict[str, str]:
        """Return the settings that an application is executed with, secrets hidden.

        One that was submitted to a running cluster has its own above those of the cluster. Raises
        `NotFoundError` or `DataError` if they cannot be read.
        """
        own = await self.directory.configuration(found)
        return {**self.settings.shown, **own} if self.settings.artifacts.are_taken else own

    async def _raise_damage(self) -> None:
        """Raise `DataError` if the registry is damaged, so that its applications are unknown."""
        if why := self.term.dispatcher.attention.get("registry"):
            raise CorruptDataError(why)

    async def job(self, wanted: str) -> LinkedJob | BuriedJob:
        """Return the job with this id; raises `NotFoundError`."""
        facts, tombstones = await self.facts()
        if found := directory.find_job(wanted, facts):
            return LinkedJob(*found)
        async for stone, file in self.directory.files(reversed(tombstones.values())):
            for record in file.jobs:
                if record.job_id == wanted:
                    return BuriedJob(stone, file, record)
        await self._raise_damage()
        raise NotFoundError(f"Job {wanted} not found")
