"""Cleaning up after jobs and applications, in the order that ``core.ending`` tells.

Each task is idempotent, labelled and tried again by the cleanup strategy; what is still to do,
how often it was tried and what went wrong can be seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec.structs import replace

from understudy.config import Configuration, options
from understudy.core import ending
from understudy.core.ending import CleanJob, EndApplication, Kind
from understudy.errors import DataError, NotFoundError
from understudy.ha import layout
from understudy.ha.application_store import StoredApplication
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.format import Format, digest
from understudy.ha.result_store import application_results
from understudy.ha.services import HighAvailabilityServices
from understudy.model import (
    ApplicationResult,
    JobEntry,
    JobId,
    JobRecord,
    Pointer,
    Term,
    Tombstone,
    TombstoneFile,
)
from understudy.runtime import code
from understudy.runtime.job_master import read_outcome

_log = logging.getLogger(__name__)

tombstones: Format[TombstoneFile] = Format("tombstone", TombstoneFile)


@dataclass(frozen=True)
class CleanupStrategy:
    """How a failed task is tried again (Flink's ``cleanup-strategy``)."""

    kind: str
    attempts: int
    initial_s: float
    maximum_s: float

    @staticmethod
    def of(configuration: Configuration) -> CleanupStrategy:
        """Return the configured strategy."""
        kind = configuration.get(options.CLEANUP_TYPE)
        if kind == "fixed-delay":
            delay_s = configuration.get(options.CLEANUP_FIXED_DELAY)
            attempts = configuration.get(options.CLEANUP_FIXED_ATTEMPTS)
            return CleanupStrategy(kind, attempts, delay_s, delay_s)
        if kind == "none":
            return CleanupStrategy(kind, 0, 0.0, 0.0)
        return CleanupStrategy(
            kind,
            configuration.get(options.CLEANUP_ATTEMPTS),
            configuration.get(options.CLEANUP_INITIAL),
            configuration.get(options.CLEANUP_MAX),
        )

    def pause_s(self, failures: int) -> float | None:
        """Return the pause after so many failures; None to leave it to a person."""
        if failures > self.attempts:
            return None
        return float(min(self.initial_s * 2 ** min(failures - 1, 60), self.maximum_s))


@dataclass
class CleanupView:
    """One task that is not done yet, as people see it."""

    application_id: str
    label: str
    failures: int = 0
    error: str = ""
    given_up: bool = False


class Cleanup:
    """The cleanup of one application."""

    def __init__(
        self,
        stored: StoredApplication,
        plans: ExecutionPlanStore,
        services: HighAvailabilityServices,
        term: Term,
        strategy: CleanupStrategy,
        *,
        keep_results: bool,
    ) -> None:
        self._stored = stored
        self._plans = plans
        self._services = services
        self._term = term
        self._strategy = strategy
        self._keep = keep_results
        self._done: frozenset[Kind] = frozenset()
        self._tombstone: Pointer | None = None
        self.open: dict[str, CleanupView] = {}

    async def clean_job(self, job_id: JobId) -> None:
        """Clean up after one job, now that its result is dirty; raises `LeadershipLost`."""
        entry = self._plans.entries[job_id]
        assert entry.result is not None, "only a job that has ended is cleaned up after"
        if entry.result.cleaned:
            return
        await self._try_until_done(f"job {entry.name}", lambda: self._clean_job(entry))
        # Noted with the next write to the job's segment: repeating it would do no harm.
        self._plans.note(job_id, _cleaned)

    async def finish(self) -> Tombstone:
        """Do all that is left once the application's result is dirty; return what remains."""
        while True:
            entries = self._plans.entries
            tasks = ending.next_tasks(self._stored.body, entries.values(), self._done)
            assert tasks, "finish was called before every job had a result"
            for task in tasks:
                match task:
                    case CleanJob():
                        await self.clean_job(task.job_id)
                    case EndApplication(Kind.BURY):
                        return await self._bury()
                    case EndApplication():
                        label = task.kind.value
                        await self._try_until_done(label, functools.partial(self._do, task.kind))
                        self._done |= {task.kind}

    async def _try_until_done(self, label: str, task: Callable[[], Awaitable[object]]) -> None:
        view = self.open.setdefault(label, CleanupView(self._stored.body.application_id, label))
        while True:
            try:
                await task()
                break
            except (OSError, TimeoutError, DataError) as error:
                view.failures += 1
                view.error = str(error) or "timeout"
                pause_s = self._strategy.pause_s(view.failures)
                _log.warning("cleanup: cannot %s: %s", label, view.error)
                if pause_s is None:
                    view.given_up = True
                    await asyncio.Event().wait()  # Until a person, or the next leader, steps in.
                assert pause_s is not None
                await asyncio.sleep(pause_s)
        del self.open[label]

    async def _do(self, kind: Kind) -> None:
        match kind:
            case Kind.WRITE_TOMBSTONE:
                self._tombstone = await self._write_tombstone()
            case Kind.MARK_JOBS_CLEAN:
                await self._mark_jobs_clean()
            case Kind.CLEAN_APPLICATION:
                await self._clean_application()
            case Kind.MARK_APPLICATION_CLEAN:
                await self._mark_application_clean()

    async def _clean_job(self, entry: JobEntry) -> None:
        storage = self._services.storage
        assert entry.result is not None
        with contextlib.suppress(NotFoundError):  # Then only its value is out of reach.
            await self._services.job_results.publish_dirty(entry.job_id, entry.result.source)
        await self._plans.remove_plan(entry)
        cluster = self._services.locations.cluster
        for attempt in range(1, entry.attempt + 1):
            directory = self._stored.body.directory
            await storage.delete(layout.staged_path(cluster, directory, entry.job_id, attempt))
        await storage.delete(entry.result.source.path)

    async def _write_tombstone(self) -> Pointer:
        """Write the file that says how the application and its jobs ended.

        One that an earlier leader wrote is kept: it was made when all result files were there.
        """
        body = self._stored.body
        assert body.result is not None
        if existing := await self._existing_tombstone():
            return existing
        data = await self._services.application_results.read(
            body.application_id, body.result.source
        )
        result = application_results.load(data, "the application's result")
        jobs = [await self._job_record(entry) for entry in self._plans.entries.values()]
        return await self._publish_tombstone(TombstoneFile(result=result, jobs=tuple(jobs)))

    async def _publish_tombstone(self, file: TombstoneFile) -> Pointer:
        data = tombstones.dump(file, pretty=True)
        path = layout.tombstone_path(self._services.locations.cluster, file.result.run_id)
        await self._services.storage.publish(path, data)
        return Pointer(path=path, digest=digest(data), size=len(data))

    async def _job_record(self, entry: JobEntry) -> JobRecord:
        assert entry.result is not None
        note = entry.result.reason
        try:
            outcome = await read_outcome(self._services.job_results, entry.job_id, entry.result)
        except (NotFoundError, DataError) as error:
            return JobRecord(
                job_id=entry.job_id,
                name=entry.name,
                status=entry.result.status,
                attempt=entry.result.attempt,
                start_time=entry.result.start_time,
                end_time=entry.result.end_time,
                note=f"its result file was lost: {error}",
            )
        return JobRecord(
            job_id=entry.job_id,
            name=entry.name,
            status=outcome.status,
            attempt=outcome.attempt,
            start_time=outcome.start_time,
            end_time=outcome.end_time,
            value=outcome.value,
            failure=outcome.failure,
            note=note,
        )

    async def _mark_jobs_clean(self) -> None:
        for job_id in self._plans.entries:
            await self._services.job_results.mark_clean(job_id, keep=self._keep)
        await self._services.job_results.prune()
        await self._plans.update_all(self._term, _clean)

    async def _clean_application(self) -> None:
        body = self._stored.body
        cluster = self._services.locations.cluster
        base = code.layout_base(self._services.storage.blocking, cluster)
        await self._services.storage.run(code.remove_layouts, base)
        await self._services.applications.remove_directory(body)

    async def _mark_application_clean(self) -> None:
        body = self._stored.body
        assert body.result is not None
        clean = replace(body.result, clean=True)
        await self._services.application_results.mark_clean(body.application_id, keep=self._keep)
        await self._services.application_results.prune()
        await self._stored.update(self._term, lambda body: replace(body, result=clean))

    async def _bury(self) -> Tombstone:
        """Unlink the application, leaving its tombstone in the same write; then its documents."""
        body = self._stored.body
        assert body.result is not None
        file = self._tombstone or await self._find_tombstone()
        tombstone = Tombstone(
            application_id=body.application_id,
            run_id=body.run_id,
            name=body.name,
            status=body.result.status,
            started_at=body.created_at,
            ended_at=body.result.end_time,
            file=file,
        )
        label = Kind.BURY.value
        registry = self._services.registry
        await self._try_until_done(
            label, lambda: registry.bury(self._term, body.application_id, tombstone)
        )
        await self._try_until_done("delete documents", self._delete_documents)
        return tombstone

    async def _delete_documents(self) -> None:
        await self._plans.delete_documents(self._term, self._stored.body.segments)
        await self._stored.delete(self._term)

    async def _find_tombstone(self) -> Pointer:
        """Return the file that an earlier leader wrote, or a poorer one if it was removed."""
        existing = await self._existing_tombstone()
        return existing or await self._publish_tombstone(self._poor_tombstone())

    async def _existing_tombstone(self) -> Pointer | None:
        body = self._stored.body
        path = layout.tombstone_path(self._services.locations.cluster, body.run_id)
        try:
            data = await self._services.storage.read(path)
            file = tombstones.load(data, path)
        except NotFoundError:
            return None
        except DataError as error:
            _log.warning("the tombstone's file is written again: %s", error)
            return None
        if file.result.application_id != body.application_id:
            return None
        return Pointer(path=path, digest=digest(data), size=len(data))

    def _poor_tombstone(self) -> TombstoneFile:
        body = self._stored.body
        assert body.result is not None
        result = ApplicationResult(
            application_id=body.application_id,
            application_name=body.name,
            run_id=body.run_id,
            status=body.result.status,
            start_time=body.created_at,
            end_time=body.result.end_time,
        )
        jobs = tuple(
            JobRecord(
                job_id=entry.job_id,
                name=entry.name,
                status=entry.result.status,
                attempt=entry.result.attempt,
                start_time=entry.result.start_time,
                end_time=entry.result.end_time,
            )
            for entry in self._plans.entries.values()
            if entry.result
        )
        return TombstoneFile(result=result, jobs=jobs)


async def read_tombstone(services: HighAvailabilityServices, tombstone: Tombstone) -> TombstoneFile:
    """Read a tombstone's file; raises `NotFoundError` or `DataError`."""
    data = await services.storage.read(tombstone.file.path)
    return tombstones.load(data, tombstone.file.path)


def _cleaned(entry: JobEntry) -> JobEntry:
    assert entry.result is not None
    return replace(entry, result=replace(entry.result, cleaned=True))


def _clean(entry: JobEntry) -> JobEntry:
    assert entry.result is not None
    return replace(entry, result=replace(entry.result, cleaned=True, clean=True))
