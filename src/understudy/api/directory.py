"""The contents of a cluster: from the leading JobManager, or from storage without a leader.

`Facts` has the same methods in both cases, so that REST and the commands show the same.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from understudy.api import checkpoints, ended, views
from understudy.api.checkpoints import CheckpointFacts
from understudy.api.views import ApplicationFacts, JobLive, Json
from understudy.clock import Clock
from understudy.core import job
from understudy.core.recovery import chosen_directory, lineage
from understudy.errors import DataError, NotFoundError
from understudy.ha import layout
from understudy.ha.registry import (
    application_document,
    checkpoints_document,
    segment_document,
)
from understudy.ha.result_store import application_results, read_outcome
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager import attention
from understudy.jobmanager.attention import Problems
from understudy.jobmanager.failure_history import HISTORY_MAX, FailureHistory, merged
from understudy.jobmanager.retention import RESULT_LOST, read_end, read_tombstone
from understudy.jobmanager.submission import configuration_of
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    ApplicationStatus,
    Checkpoints,
    Failure,
    JobEntry,
    JobId,
    JobStatus,
    Outcome,
    RegistryBody,
    SparkApplication,
    Tombstone,
    TombstoneFile,
)

if TYPE_CHECKING:
    from understudy.jobmanager.application import Application

T = TypeVar("T")


class Directory:
    """All applications of a cluster: the running one, stored ones, and tombstones."""

    def __init__(
        self, services: HighAvailabilityServices, clock: Clock, history: int = HISTORY_MAX
    ) -> None:
        """``history``: so many failures are told of each job."""
        self._services = services
        self._clock = clock
        self._history = history

    async def registry(self) -> RegistryBody | None:
        """Return the stored registry."""
        return await self._services.registry.read()

    async def contents(self) -> tuple[list[ApplicationFacts], list[Tombstone]]:
        """Return the readable applications of the register, and the tombstones."""
        registry = await self.registry()
        if registry is None:
            return [], []
        return await self.stored(registry), [*registry.tombstones.values()]

    def live(self, application: Application) -> ApplicationFacts:
        """Return the facts of the application that this leader executes."""
        jobs = application.jobs
        resources = jobs.context.resources
        running = resources.drivers_by_job()
        live = {
            job_id: JobLive(
                job.status_of(master.state),
                master.progress,
                master.state.adopted,
                tuple(master.failures),
                master.checkpoints.body,
                tuple(master.checkpoints.recent),
                resources.why_waiting(job_id, running.get(job_id)),
                running[job_id].spark if job_id in running else SparkApplication(),
                master.timestamps,
            )
            for job_id, master in jobs.masters.items()
        }
        return ApplicationFacts(
            body=application.stored.body,
            entries=jobs.entries,
            status=application.status,
            now=self._clock.wall(),
            live=live,
            reached=frozenset(jobs.marks.reached),
            adopted=frozenset(jobs.marks.adopted),
            skipped=frozenset(jobs.marks.skipped),
            displaced=frozenset(jobs.marks.displaced),
            failure=application.failure,
            timestamps=application.timestamps,
            record=application.record,
            waits=application.waits,
        )

    def ending(
        self, body: ApplicationDocument, entries: Mapping[JobId, JobEntry]
    ) -> ApplicationFacts:
        """Return the facts of an application that this leader only cleans up."""
        return ApplicationFacts(body, entries, body.status, self._clock.wall())

    async def stored(
        self, registry: RegistryBody, known: frozenset[ApplicationId] = frozenset()
    ) -> list[ApplicationFacts]:
        """Return the readable applications of the register, except those that are ``known``.

        `problems` names the unreadable ones.
        """
        found, register = [], self._services.register
        for application, link in registry.applications.items():
            if application in known:
                continue
            body = None
            with contextlib.suppress(DataError):
                body = await application_document(register, link.document, application).read()
            if body is None:
                continue
            entries: dict[JobId, JobEntry] = {}
            for key in body.segments:
                with contextlib.suppress(DataError):
                    segment = await segment_document(register, key, application).read()
                    entries.update(segment.jobs if segment else {})
            found.append(ApplicationFacts(body, entries, body.status, self._clock.wall()))
        return found

    async def problems(self) -> Problems:
        """Return the problems that a person must solve, without a leader."""
        return await attention.inspect(self._services)

    async def outcome(self, facts: ApplicationFacts, job_id: JobId) -> tuple[Outcome | None, str]:
        """Return a job's outcome, or the reason why its result cannot be read."""
        result = facts.entries[job_id].result
        if result is None:
            return None, ""
        try:
            return await read_outcome(self._services.job_results, job_id, result), ""
        except (NotFoundError, DataError) as error:
            recorded = await self._recorded(facts, job_id)
            return recorded, "" if recorded else str(error)

    async def _recorded(self, facts: ApplicationFacts, job_id: JobId) -> Outcome | None:
        """Return the outcome in the tombstone's file, which is written before result files go."""
        body = facts.body
        with contextlib.suppress(NotFoundError, DataError):
            file = await read_end(self._services, body)
            for record in file.jobs:
                if record.job_id == job_id and not record.note.startswith(RESULT_LOST):
                    return Outcome(
                        job_id=job_id,
                        job_name=record.name,
                        application_id=body.application_id,
                        run_id=body.run_id,
                        status=record.status,
                        attempt=record.attempt,
                        start_time=record.start_time,
                        end_time=record.end_time,
                        value=record.value,
                        failure=record.failure,
                    )
        return None

    async def failures(self, facts: ApplicationFacts, job_id: JobId) -> list[Failure]:
        """Return why attempts of a job failed, oldest first: each attempt once."""
        entry = facts.entries[job_id]
        services, directory = self._services, facts.body.directory
        history = FailureHistory(
            services.storage, services.locations.cluster, directory, self._history
        )
        found = list(facts.live[job_id].failures) if job_id in facts.live else []
        found += await history.read(entry, views.job_status(facts, job_id))
        outcome, _ = await self.outcome(facts, job_id)
        last = outcome.failure if outcome else None
        return merged(found, last, entry.attempt, self._history)

    async def checkpoints(self, facts: ApplicationFacts, job_id: JobId) -> CheckpointFacts:
        """Return the known checkpoints of a job.

        Raises `DataError` if the record cannot be read.
        """
        entry = facts.entries[job_id]
        live = facts.live.get(job_id)
        if live and live.checkpoints and live.checkpoints.counter:
            result = entry.result
            kept = (result.checkpoint, result.savepoint) if result else ("", "")
            return CheckpointFacts(job_id, live.checkpoints, live.recent_checkpoints, *kept)
        if entry.result:
            return checkpoints.ended(job_id, entry.result)
        body = None
        if entry.checkpoints:
            application = facts.body.application_id
            document = checkpoints_document(self._services.register, entry.checkpoints, application)
            body = await document.read()
        nothing = Checkpoints(application_id=facts.body.application_id, job_id=job_id)
        return CheckpointFacts(job_id, body or nothing)

    def checkpoints_of(self, facts: ApplicationFacts, job_id: JobId, chosen: str) -> str:
        """Return the place of a job's checkpoints; ``chosen`` is the place for new attempts."""
        entry = facts.entries[job_id]
        if directory := chosen_directory(chosen, entry):
            return directory
        path = layout.checkpoints_path(
            self._services.locations.cluster, facts.body.directory, lineage(entry)
        )
        return self._services.storage.place(path)

    async def application_failure(self, facts: ApplicationFacts) -> Failure | None:
        """Return the single cause of an application's failure."""
        return (await self.with_cause(facts)).failure

    async def with_cause(self, facts: ApplicationFacts) -> ApplicationFacts:
        """Return the facts with the durable cause of the application's failure, if there is one."""
        if facts.failure or not facts.body.result:
            return facts
        return replace(facts, failure=await self._end(facts))

    async def _end(self, facts: ApplicationFacts) -> Failure | None:
        """Return the failure in an application's result."""
        body, results = facts.body, self._services.application_results
        assert body.result is not None
        with contextlib.suppress(NotFoundError, DataError):
            data = await results.read(body.application_id, body.result.source)
            return application_results.load(data, "the application's result").failure
        with contextlib.suppress(NotFoundError, DataError):
            return (await read_end(self._services, facts.body)).result.failure
        return None

    async def configuration(self, found: ApplicationFacts | Tombstone) -> dict[str, str]:
        """Return the configuration of a submitted application, secrets hidden.

        Raises `NotFoundError` or `DataError` if it cannot be read.
        """
        if isinstance(found, Tombstone):
            return (await self.buried(found)).configuration
        record = found.record or await self._services.applications.record(found.body)
        return configuration_of(record)

    async def buried_detail(self, tombstone: Tombstone) -> Json:
        """Return a buried application; without its jobs if its file cannot be read."""
        try:
            return ended.buried_detail(tombstone, await self.buried(tombstone))
        except (DataError, NotFoundError) as error:
            return {**ended.buried_overview(tombstone), "jobs": [], "problem": str(error)}

    async def buried(self, tombstone: Tombstone) -> TombstoneFile:
        """Read a tombstone's file; raises `NotFoundError` or `DataError`."""
        return await read_tombstone(self._services, tombstone)

    async def files(
        self, tombstones: Iterable[Tombstone]
    ) -> AsyncIterator[tuple[Tombstone, TombstoneFile]]:
        """Yield the tombstones whose files can be read, with these files."""
        for stone in tombstones:
            try:
                file = await self.buried(stone)
            except (DataError, NotFoundError):
                continue
            yield stone, file


def find_application(
    wanted: str, facts: list[ApplicationFacts], tombstones: Iterable[Tombstone]
) -> ApplicationFacts | Tombstone:
    """Return the application with this id or run id, else the one of which it is the beginning.

    Raises `NotFoundError`, also if several match.
    """
    known: list[tuple[ApplicationFacts | Tombstone, tuple[str, str]]] = [
        (one, (one.body.application_id, one.body.run_id)) for one in facts
    ]
    known += [(stone, (stone.application_id, stone.run_id)) for stone in tombstones]
    found = _nearest(wanted, known)
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFoundError(f"there is no application {wanted!r} here")
    raise NotFoundError(f"{wanted!r} begins the ids of {len(found)} applications: give more of it")


def unreadable(
    registry: RegistryBody, facts: list[ApplicationFacts], problems: Problems
) -> list[Json]:
    """Return the applications of which only the registry is readable, in the shape of lists."""
    known = {one.body.application_id for one in facts}
    return [
        views.unreadable_overview(application, link, problems.get(application, ""))
        for application, link in registry.applications.items()
        if application not in known
    ]


def find_unreadable(wanted: str, found: list[Json]) -> Json | None:
    """Return the application among these with this id or run id, or the beginning of one."""
    matching = _nearest(wanted, [(one, (one["id"], one["run-id"])) for one in found])
    return {**matching[0], "jobs": []} if len(matching) == 1 else None


def find_job(wanted: str, facts: list[ApplicationFacts]) -> tuple[ApplicationFacts, JobId] | None:
    """Return the job with this id (or beginning of an id), and its application."""
    for one in facts:
        for job_id in one.entries:
            if job_id == wanted:
                return one, job_id
    close = [(one, job_id) for one in facts for job_id in one.entries if job_id.startswith(wanted)]
    return close[0] if len(close) == 1 and len(wanted) >= 4 else None


def overview(
    facts: list[ApplicationFacts],
    tombstones: Iterable[Tombstone],
    slots: int,
    free: int,
    taskmanagers: int,
) -> Json:
    """Return the cluster's summary (``/overview``), applications with a tombstone included."""
    stones = list(tombstones)
    jobs = Counter(views.job_status(one, job_id) for one in facts for job_id in one.entries)
    for stone in stones:
        jobs.update({JobStatus(state): count for state, count in stone.jobs.items()})
    applications = Counter([*(one.status for one in facts), *(stone.status for stone in stones)])
    return {
        "taskmanagers": taskmanagers,
        "slots-total": slots,
        "slots-available": free,
        "jobs-running": sum(n for status, n in jobs.items() if not status.is_terminal),
        "jobs-finished": jobs[JobStatus.FINISHED],
        "jobs-cancelled": jobs[JobStatus.CANCELED],
        "jobs-failed": jobs[JobStatus.FAILED],
        "applications-running": sum(not one.status.is_terminal for one in facts),
        "applications-finished": applications[ApplicationStatus.FINISHED],
        "applications-cancelled": applications[ApplicationStatus.CANCELED],
        "applications-failed": applications[ApplicationStatus.FAILED],
    }


def _nearest(wanted: str, known: Iterable[tuple[T, Iterable[str]]]) -> list[T]:
    """Return what has this id; if nothing has, what has an id that begins so."""
    known = [*known]
    if exact := [one for one, ids in known if wanted in ids]:
        return exact
    if len(wanted) < 4:
        return []
    return [one for one, ids in known if any(some.startswith(wanted) for some in ids)]
