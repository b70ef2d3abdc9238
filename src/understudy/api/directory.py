"""What there is to show of a cluster: from the leading JobManager, or from storage without one.

`Facts` answers the same questions in both cases, so that REST and the commands show the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from understudy.api import failures, views
from understudy.api.failures import Told
from understudy.api.views import ApplicationFacts, JobLive, Json
from understudy.clock import Clock
from understudy.core import job
from understudy.errors import DataError, NotFoundError
from understudy.ha.registry import application_document, segment_document
from understudy.ha.result_store import application_results, outcomes
from understudy.ha.services import HighAvailabilityServices
from understudy.model import (
    ApplicationStatus,
    Failure,
    JobEntry,
    JobId,
    JobStatus,
    Outcome,
    RegistryBody,
    Tombstone,
    TombstoneFile,
)
from understudy.runtime.application import Application
from understudy.runtime.job_master import read_outcome
from understudy.runtime.retention import read_tombstone
from understudy.runtime.submission import configuration_of


class Directory:
    """All applications of a cluster: the running one, stored ones, and tombstones."""

    def __init__(self, services: HighAvailabilityServices, clock: Clock) -> None:
        self._services = services
        self._clock = clock

    async def registry(self) -> RegistryBody | None:
        """Return the registry as it is stored."""
        return await self._services.registry.read()

    def live(self, application: Application) -> ApplicationFacts:
        """Return what the leader knows of the application it executes."""
        jobs = application.jobs
        live = {
            job_id: JobLive(
                job.status_of(master.state),
                master.progress,
                master.state.adopted,
                tuple(master.failures),
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
            failures=tuple(application.failures),
            record=application.record,
        )

    async def stored(self, registry: RegistryBody) -> list[ApplicationFacts]:
        """Return the applications that the register holds, as far as they can be read."""
        found = []
        for link in registry.applications.values():
            body = await application_document(self._services.register, link.document).read()
            if body is None:
                continue
            entries: dict[JobId, JobEntry] = {}
            for key in body.segments:
                segment = await segment_document(self._services.register, key).read()
                entries.update(segment.jobs if segment else {})
            found.append(ApplicationFacts(body, entries, body.status, self._clock.wall()))
        return found

    async def outcome(self, facts: ApplicationFacts, job_id: JobId) -> tuple[Outcome | None, str]:
        """Return how a job ended, or why its result cannot be read."""
        result = facts.entries[job_id].result
        if result is None:
            return None, ""
        try:
            return await read_outcome(self._services.job_results, job_id, result), ""
        except (NotFoundError, DataError) as error:
            return None, str(error)

    async def failures(self, facts: ApplicationFacts, job_id: JobId) -> list[Failure]:
        """Return why attempts of a job failed: what was staged, and what the leader saw."""
        found: list[Failure] = list(facts.live[job_id].failures) if job_id in facts.live else []
        entry = facts.entries[job_id]
        for attempt in range(1, entry.attempt + 1):
            path = f"{self._services.locations.cluster}/applications/{facts.body.directory}"
            try:
                data = await self._services.storage.read(f"{path}/staged/{job_id}-{attempt}.json")
                outcome = outcomes.load(data, job_id)
            except (NotFoundError, DataError):
                continue
            if outcome.failure:
                found.append(outcome.failure)
        outcome_, _ = await self.outcome(facts, job_id)
        if outcome_ and outcome_.failure and outcome_.failure not in found:
            found.append(outcome_.failure)
        return sorted(found, key=lambda failure: failure.time)

    async def application_failures(self, facts: ApplicationFacts, maximum: int) -> list[Told]:
        """Return why an application and its jobs failed, in no order.

        Of more jobs with failures than ``maximum``, those that ended last are looked at.
        """
        found = [Told(failure) for failure in facts.failures]
        if facts.body.result:
            found += await self._end(facts)
        failed = sorted(
            (job_id for job_id in facts.entries if failures.has_failed(facts, job_id)),
            key=lambda job_id: failures.ended_at(facts, job_id),
        )
        for job_id in failed[-maximum:] if maximum else []:
            found += [Told(failure, job_id) for failure in await self.failures(facts, job_id)]
        return found

    async def _end(self, facts: ApplicationFacts) -> list[Told]:
        """Return why an application ended badly."""
        body, results = facts.body, self._services.application_results
        assert body.result is not None
        with contextlib.suppress(NotFoundError, DataError):
            data = await results.read(body.application_id, body.result.source)
            failure = application_results.load(data, "the application's result").failure
            return [Told(failure)] if failure else []
        return []

    async def configuration(self, found: ApplicationFacts | Tombstone) -> dict[str, str]:
        """Return what an application was submitted with, secrets hidden.

        Raises `NotFoundError` or `DataError` where it cannot be read.
        """
        if isinstance(found, Tombstone):
            return (await self.buried(found)).configuration
        record = found.record or await self._services.applications.record(found.body)
        return configuration_of(record)

    async def buried(self, tombstone: Tombstone) -> TombstoneFile:
        """Read a tombstone's file; raises `NotFoundError` or `DataError`."""
        return await read_tombstone(self._services, tombstone)


def find_application(
    wanted: str, facts: list[ApplicationFacts], tombstones: Mapping[Any, Tombstone]
) -> ApplicationFacts | Tombstone:
    """Return the application with this id or run id (or the beginning of one).

    Raises `NotFoundError`, also where several begin like that.
    """
    found: list[ApplicationFacts | Tombstone] = [
        one for one in facts if _matches(wanted, one.body.application_id, one.body.run_id)
    ]
    found += [
        stone
        for stone in tombstones.values()
        if _matches(wanted, stone.application_id, stone.run_id)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFoundError(f"there is no application {wanted!r} here")
    raise NotFoundError(f"{wanted!r} begins the ids of {len(found)} applications: give more of it")


def find_job(wanted: str, facts: list[ApplicationFacts]) -> tuple[ApplicationFacts, JobId] | None:
    """Return the job with this id (or the beginning of one), and its application."""
    for one in facts:
        for job_id in one.entries:
            if job_id == wanted:
                return one, job_id
    close = [(one, job_id) for one in facts for job_id in one.entries if job_id.startswith(wanted)]
    return close[0] if len(close) == 1 and len(wanted) >= 4 else None


def overview(facts: list[ApplicationFacts], slots: int, free: int, taskmanagers: int) -> Json:
    """Return the cluster at a glance (``/overview``)."""
    statuses = [views.job_status(one, job_id) for one in facts for job_id in one.entries]
    return {
        "taskmanagers": taskmanagers,
        "slots-total": slots,
        "slots-available": free,
        "jobs-running": sum(not status.is_terminal for status in statuses),
        "jobs-finished": statuses.count(JobStatus.FINISHED),
        "jobs-cancelled": statuses.count(JobStatus.CANCELED),
        "jobs-failed": statuses.count(JobStatus.FAILED),
        "applications-running": sum(not one.status.is_terminal for one in facts),
        "applications-finished": _count(facts, ApplicationStatus.FINISHED),
        "applications-cancelled": _count(facts, ApplicationStatus.CANCELED),
        "applications-failed": _count(facts, ApplicationStatus.FAILED),
    }


def _count(facts: list[ApplicationFacts], status: ApplicationStatus) -> int:
    return sum(one.status is status for one in facts)


def _matches(wanted: str, *ids: str) -> bool:
    return any(wanted == one or (len(wanted) >= 4 and one.startswith(wanted)) for one in ids)
