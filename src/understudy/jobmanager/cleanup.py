"""Cleanup after jobs and applications, in the order that ``core.ending`` decides.

Each task is idempotent, labelled and retried by the cleanup strategy; open tasks, their tries and
their errors are visible. A task without tries left waits for a person: `Cleanup.retry` tries it at
once; `Cleanup.abandon` leaves failing files behind, now and until the application is buried, and
keeps the list of them. Register writes (a result is clean, the application is gone) are never
abandoned: without them the run does not end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from understudy.config import Configuration, options
from understudy.core import ending
from understudy.core.ending import CleanJob, EndApplication, EndingStep
from understudy.errors import DataError, NotFoundError
from understudy.ha import layout
from understudy.ha.application_store import StoredApplication
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.format import digest
from understudy.ha.result_store import ResultStore, application_results, read_outcome
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager import notices
from understudy.jobmanager.checkpoint_cleanup import clean_checkpoints
from understudy.jobmanager.effort import FAILURES, CleanupStrategy, CleanupView, Effort
from understudy.jobmanager.failure_history import HISTORY_MAX, FailureHistory, merged
from understudy.jobmanager.retention import RESULT_LOST, tombstones
from understudy.jobmanager.submission import configuration_of
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    ApplicationResult,
    Failure,
    JobEntry,
    JobId,
    JobRecord,
    Outcome,
    Pointer,
    Term,
    Tombstone,
    TombstoneFile,
)
from understudy.process import code

LEFT_MAX = 100
"""Most paths left behind that are listed one by one: about 10 kB in the register. Beyond this
number, their directories are listed."""

HISTORIES_CHARS_MAX = 8_000_000
"""Size of all jobs' earlier failures in a tombstone: a tombstone is read as a whole."""

PUBLISH_RESULT = "publish the application's result"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CleanupSettings:
    """The options about cleanup."""

    strategy: CleanupStrategy
    keep_results: bool = False
    """Whether whole results stay, beside the tombstone."""
    history: int = HISTORY_MAX
    """Most failures of a job that its tombstone keeps."""

    @classmethod
    def of(cls, configuration: Configuration) -> CleanupSettings:
        """Return the settings of a configuration."""
        return cls(
            CleanupStrategy.of(configuration),
            not configuration.get(options.DELETE_ON_COMMIT),
            configuration.get(options.EXCEPTION_HISTORY),
        )


class Cleanup:
    """The cleanup of one application."""

    def __init__(
        self,
        stored: StoredApplication,
        plans: ExecutionPlanStore,
        services: HighAvailabilityServices,
        term: Term,
        settings: CleanupSettings,
        layouts: Layouts | None = None,
    ) -> None:
        """``layouts``: the code of all applications here; None: of this one only."""
        self._stored = stored
        self._plans = plans
        self._services = services
        self._term = term
        self._layouts = layouts or Layouts(services)
        self._strategy = settings.strategy
        self._keep = settings.keep_results
        self._history = settings.history
        self._history_room = HISTORIES_CHARS_MAX
        self._done: frozenset[EndingStep] = frozenset()
        self._file: bytes | None = None
        self._turn = asyncio.Lock()
        self.open: dict[str, CleanupView] = {}
        """Open tasks, by job id or label."""
        self.failures = 0
        """Failed tries of all tasks."""

    # --- views and requests of people -------------------------------------------------------------

    @property
    def application_id(self) -> ApplicationId:
        """Return the id of the application that is cleaned up."""
        return self._stored.body.application_id

    @property
    def body(self) -> ApplicationDocument:
        """Return the application as it is stored."""
        return self._stored.body

    @property
    def jobs(self) -> Mapping[JobId, JobEntry]:
        """Return the application's jobs, in the order of their submission."""
        return self._plans.entries

    @property
    def failing(self) -> list[CleanupView]:
        """Return the open tasks that have failed."""
        return [view for view in self.open.values() if view.failures]

    @property
    def abandoned(self) -> bool:
        """Return whether failing files are left behind."""
        return self._stored.body.cleanup_abandoned

    @property
    def left_behind(self) -> tuple[str, ...]:
        """Return the storage paths left behind so far."""
        return self._stored.body.left_behind

    def retry(self) -> None:
        """Try all open tasks at once, given-up ones too; a running try is followed by another."""
        for view in self.open.values():
            view.used = 0
            view.woken.set()

    async def abandon(self) -> None:
        """Leave failing files behind, durably: from now on, each task has one try.

        Raises `LeadershipLost`, or an ``OSError`` of the register: then nothing was abandoned.
        """
        await self._stored.update(self._term, lambda body: replace(body, cleanup_abandoned=True))
        self.retry()

    # --- tasks ------------------------------------------------------------------------------------

    async def clean_job(self, job_id: JobId) -> None:
        """Clean up after one job with a dirty result; raises `LeadershipLost`."""
        entry = self._plans.entries[job_id]
        assert entry.result is not None, "only a job that has ended is cleaned up after"
        if entry.result.cleaned:
            return
        await self._try_until_done(
            job_id, f"job {entry.name}", functools.partial(self._clean_job, entry)
        )
        # Stored with the next write to the job's segment: a repeated cleanup does no harm.
        self._plans.note(job_id, _cleaned)

    async def finish(self) -> Tombstone:
        """Run all remaining tasks once the application's result is dirty; return its tombstone."""
        result = self._stored.body.result
        if result is not None and not result.clean:
            await self._try_until_done(PUBLISH_RESULT, PUBLISH_RESULT, self._publish_result)
        while True:
            entries = self._plans.entries
            tasks = ending.next_tasks(self._stored.body, entries.values(), self._done)
            assert tasks, "finish was called before every job had a result"
            match tasks[0]:
                case CleanJob():
                    await self._clean_jobs(
                        [task.job_id for task in tasks if isinstance(task, CleanJob)]
                    )
                case EndApplication(EndingStep.BURY):
                    return await self._bury()
                case EndApplication(kind):
                    await self._try_until_done(
                        kind.value, kind.value, functools.partial(self._do, kind)
                    )
                    self._done |= {kind}

    async def _clean_jobs(self, jobs: Iterable[JobId]) -> None:
        """Clean up after several jobs: a failing job does not delay the others."""
        works = [asyncio.ensure_future(self.clean_job(job_id)) for job_id in jobs]
        try:
            await asyncio.gather(*works)
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)

    async def _try_until_done(
        self, key: str, label: str, task: Callable[[Effort], Awaitable[object]]
    ) -> None:
        view = self.open.setdefault(key, CleanupView(self.application_id, label))
        while True:
            view.woken.clear()
            view.given_up = False
            try:
                async with self._turn:
                    effort = Effort(leave=self.abandoned)
                    await task(effort)
                    await self._note_left(label, effort)
                break
            except FAILURES as error:
                self.failures += 1
                view.failures += 1
                view.used += 1
                view.error = str(error) or "timeout"
                _log.warning("cleanup: cannot %s: %s", label, view.error)
                self._services.announce(notices.cleanup_fails(view))
            await self._wait(view)
        del self.open[key]
        view.done.set()

    async def _wait(self, view: CleanupView) -> None:
        """Wait for the next try: for the strategy's pause, or for a person."""
        pause_s = self._strategy.pause_s(view.used)
        if pause_s is None:
            view.given_up = True
            _log.error(
                "cleanup: gave up trying to %s; `understudy cleanup retry %s` tries again, "
                "`understudy cleanup abandon %s` leaves behind what fails",
                view.label,
                view.application_id,
                view.application_id,
            )
        else:
            view.next_try = asyncio.get_running_loop().time() + pause_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await view.woken.wait()  # Until a person, or the next leader, steps in.
        view.next_try = None

    async def _note_left(self, label: str, effort: Effort) -> None:
        """Store the paths that a task has left behind, before the task counts as done."""
        if not effort.left:
            return
        paths = tuple(effort.left)
        await self._stored.update(self._term, lambda body: _with_left(body, paths))
        for path, error in effort.left.items():
            _log.error("cleanup: %s: left behind %s: %s", label, path, error)

    async def _do(self, kind: EndingStep, effort: Effort) -> None:
        match kind:
            case EndingStep.WRITE_TOMBSTONE:
                await self._write_tombstone(effort)
            case EndingStep.MARK_JOBS_CLEAN:
                await self._mark_jobs_clean(effort)
            case EndingStep.CLEAN_APPLICATION:
                await self._clean_application(effort)
            case EndingStep.MARK_APPLICATION_CLEAN:
                await self._mark_application_clean(effort)

    async def _publish_result(self, effort: Effort) -> None:
        """Publish the application's result: the leader may have died or failed before."""
        body, results = self._stored.body, self._services.application_results
        result = body.result
        assert result is not None

        async def publish() -> None:
            try:
                await results.publish_dirty(body.application_id, result.source)
            except NotFoundError as error:
                # The last leader or a third party has removed the file: the application did end.
                _log.info("the application's result is not published again: %s", error)

        await effort.make(results.dirty_path(body.application_id), publish)

    async def _clean_job(self, entry: JobEntry, effort: Effort) -> None:
        storage, results = self._services.storage, self._services.job_results
        result = entry.result
        assert result is not None

        async def publish() -> None:
            try:
                await results.publish_dirty(entry.job_id, result.source)
            except NotFoundError as error:  # The job did run: only its value is lost.
                if self._stored.body.tombstone is None:  # Else an earlier try has removed the file.
                    _log.error("job %r has a result without a file: %s", entry.name, error)

        published = await effort.make(results.dirty_path(entry.job_id), publish)
        await effort.make(entry.plan.path, lambda: self._plans.remove_plan(entry))
        cluster, directory = self._services.locations.cluster, self._stored.body.directory
        staged = [
            layout.staged_path(cluster, directory, entry.job_id, attempt)
            for attempt in range(1, entry.attempt + 1)
        ]
        history = self._history_of_jobs()
        if entry.attempt > 1:  # The failure of an only attempt is in the job's result.
            path = history.collected_path(entry.job_id)
            await effort.make(path, lambda: history.collect(entry))
        for path in dict.fromkeys((*staged, result.source.path)):
            if published or path != result.source.path:  # Else this is the only copy of the value.
                await effort.make(path, functools.partial(storage.delete, path))
        await clean_checkpoints(
            self._services, self._plans, self._stored.body, self._term, entry, effort
        )

    @property
    def _keeps(self) -> bool:
        """Return whether result files stay: also if the tombstone's file could not be written."""
        written = self._stored.body.tombstone
        return self._keep or (written is not None and not written.digest)

    async def _write_tombstone(self, effort: Effort) -> None:
        """Write the tombstone's file, with the ends of the application and its jobs, then link it.

        Result files are deleted only afterwards: until then a later leader can write its own file,
        and once another leader leads, this one can no longer link its file.
        """
        path = layout.tombstone_path(
            self._services.locations.cluster, self._stored.body.run_id, self._term
        )

        async def publish() -> None:
            # Built once: an unanswered try may be carried out after the link, with the same bytes.
            self._file = self._file or await self._make_file()
            await self._services.storage.publish(path, self._file)

        pointer = Pointer(path=path, digest="", size=0)
        if await effort.make(path, publish):
            assert self._file is not None
            pointer = Pointer(path=path, digest=digest(self._file), size=len(self._file))
        await self._stored.update(self._term, lambda body: replace(body, tombstone=pointer))

    async def _make_file(self) -> bytes:
        body = self._stored.body
        assert body.result is not None
        result = await self._result(body.application_id, body.result.source)
        unreached = frozenset(result.unreached)
        jobs = [
            replace(await self._job_record(entry), reached=entry.job_id not in unreached)
            for entry in self._plans.entries.values()
        ]
        configuration = await self._configuration()
        file = TombstoneFile(result=result, jobs=tuple(jobs), configuration=configuration)
        return tombstones.dump(file, pretty=True)

    async def _result(self, application: ApplicationId, source: Pointer) -> ApplicationResult:
        """Return the application's result; without its file, the part that the register has."""
        try:
            data = await self._services.application_results.read(application, source)
        except NotFoundError as error:
            _log.error("the reason of the application's end is lost: %s", error)
            return self._poor_result()
        return application_results.load(data, "the application's result")

    def _poor_result(self) -> ApplicationResult:
        body = self._stored.body
        assert body.result is not None
        return ApplicationResult(
            application_id=body.application_id,
            application_name=body.name,
            run_id=body.run_id,
            status=body.result.status,
            start_time=body.created_at,
            end_time=body.result.end_time,
        )

    async def _configuration(self) -> dict[str, str]:
        """Return the configuration of the submission; empty where it is lost."""
        with contextlib.suppress(NotFoundError, DataError):
            return configuration_of(await self._services.applications.record(self._stored.body))
        return {}

    async def _job_record(self, entry: JobEntry) -> JobRecord:
        assert entry.result is not None
        known = JobRecord(
            job_id=entry.job_id,
            name=entry.name,
            status=entry.result.status,
            attempt=entry.result.attempt,
            start_time=entry.result.start_time,
            end_time=entry.result.end_time,
            note=entry.result.reason,
            checkpoint=entry.result.checkpoint,
            savepoint=entry.result.savepoint,
            counts=entry.result.counts,
            kind=entry.kind,
            submitted_at=entry.submitted_at,
            displaced=entry.displaced,
            timestamps=entry.timestamps,
        )
        try:
            outcome = await read_outcome(self._services.job_results, entry.job_id, entry.result)
        except (NotFoundError, DataError) as error:
            return replace(known, note=f"{RESULT_LOST}: {error}")
        return replace(
            known,
            failures=await self._failures(entry, outcome),
            status=outcome.status,
            attempt=outcome.attempt,
            start_time=outcome.start_time,
            end_time=outcome.end_time,
            value=outcome.value,
            failure=outcome.failure,
        )

    async def _failures(self, entry: JobEntry, outcome: Outcome) -> tuple[Failure, ...]:
        """Return the failures of a job's attempts; empty for most jobs."""
        earlier: list[Failure] = []
        if entry.attempt > 1 and self._history_room > 0:
            earlier = await self._history_of_jobs().collected(entry.job_id)
            self._history_room -= sum(len(one.message + one.traceback) for one in earlier)
        return tuple(merged(earlier, outcome.failure, outcome.attempt, self._history))

    def _history_of_jobs(self) -> FailureHistory:
        services, directory = self._services, self._stored.body.directory
        return FailureHistory(
            services.storage, services.locations.cluster, directory, self._history
        )

    async def _mark_jobs_clean(self, effort: Effort) -> None:
        results = self._services.job_results
        for job_id in self._plans.entries:
            await self._mark_clean(results, job_id, effort)
        await effort.make(results.directory, results.prune)
        await self._plans.update_all(self._term, _clean)

    async def _mark_clean(self, results: ResultStore, result_id: str, effort: Effort) -> None:
        path, keep = results.dirty_path(result_id), self._keeps
        await effort.make(path, lambda: results.mark_clean(result_id, keep=keep))
        if keep and not self._keep:
            effort.left[results.clean_path(result_id)] = "there is no tombstone's file to hold it"

    async def _clean_application(self, effort: Effort) -> None:
        body, services = self._stored.body, self._services
        cluster = services.locations.cluster
        await effort.make(
            layout.code_directory(cluster, "x").rpartition("/")[0],
            lambda: self._layouts.remove(body.application_id),
        )
        await effort.make(
            layout.application_directory(cluster, body.directory),
            lambda: services.applications.remove_directory(body),
        )

    async def _mark_application_clean(self, effort: Effort) -> None:
        body, results = self._stored.body, self._services.application_results
        assert body.result is not None
        clean = replace(body.result, clean=True)
        await self._mark_clean(results, body.application_id, effort)
        await effort.make(results.directory, results.prune)
        await self._stored.update(self._term, lambda body: replace(body, result=clean))

    async def _bury(self) -> Tombstone:
        """Replace the application's link by its tombstone in one write; then delete documents."""
        tombstone: Tombstone | None = None

        async def bury(_: Effort) -> None:
            nonlocal tombstone
            tombstone = await self._make_tombstone()
            await self._services.registry.bury(self._term, tombstone.application_id, tombstone)

        await self._try_until_done(EndingStep.BURY.value, EndingStep.BURY.value, bury)
        documents = "delete documents"
        await self._try_until_done(documents, documents, self._delete_documents)
        assert tombstone is not None
        return tombstone

    async def _make_tombstone(self) -> Tombstone:
        body = self._stored.body
        assert body.result is not None
        assert body.tombstone is not None, "the steps come in their order"
        return Tombstone(
            application_id=body.application_id,
            run_id=body.run_id,
            name=body.name,
            status=body.result.status,
            started_at=body.created_at,
            ended_at=body.result.end_time,
            file=body.tombstone,
            left_behind=await self._still_there(),
            jobs=self._counted(),
        )

    def _counted(self) -> dict[str, int]:
        """Return how many jobs ended in which state."""
        results = [entry.result for entry in self._plans.entries.values()]
        return dict(Counter(result.status.value for result in results if result))

    async def _still_there(self) -> tuple[str, ...]:
        """Return the paths left behind that still exist."""
        found = []
        for path in self.left_behind:
            try:
                if await self._services.storage.exists(path):
                    found.append(path)
            except (OSError, TimeoutError):
                found.append(path)
        return tuple(found)

    async def _delete_documents(self, _: Effort) -> None:
        await self._plans.delete_documents(self._term, self._stored.body.segments)
        await self._stored.delete(self._term)


def _with_left(body: ApplicationDocument, paths: tuple[str, ...]) -> ApplicationDocument:
    left = dict.fromkeys((*body.left_behind, *paths))
    if len(left) > LEFT_MAX:
        left = dict.fromkeys(path.rstrip("/").rpartition("/")[0] for path in left)
    return replace(body, left_behind=tuple(left))


def _cleaned(entry: JobEntry) -> JobEntry:
    assert entry.result is not None
    return replace(entry, result=replace(entry.result, cleaned=True))


def _clean(entry: JobEntry) -> JobEntry:
    assert entry.result is not None
    return replace(entry, result=replace(entry.result, cleaned=True, clean=True))


# --- the code layouts of this host, which applications with the same code share -------------------


class Layouts:
    """Which code the applications of this term use, so that none loses it to another's end."""

    def __init__(self, services: HighAvailabilityServices) -> None:
        self._services = services
        self._used: dict[ApplicationId, str] = {}
        self._turn = asyncio.Lock()

    async def use(self, application: ApplicationId, layout: str) -> None:
        """Keep a layout until `remove`; an empty name stands for all: it is not known yet."""
        async with self._turn:  # Not while layouts are removed: this one may be among them.
            self._used[application] = layout

    async def remove(self, application: ApplicationId) -> None:
        """Remove the layouts that no other application uses; also those of earlier deployments."""
        async with self._turn:
            others = {layout for one, layout in self._used.items() if one != application}
            if "" not in others:
                await self._services.storage.run(code.remove_layouts, self.base, frozenset(others))

    def leave(self, application: ApplicationId) -> None:
        """Count an application no more."""
        self._used.pop(application, None)

    @property
    def base(self) -> Path:
        """Return the directory of all layouts."""
        return code.layout_base(self._services.storage.blocking, self._services.locations.cluster)
