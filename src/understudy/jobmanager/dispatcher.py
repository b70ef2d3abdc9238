"""Dispatcher: accepts, recovers, executes and finishes applications while its JobManager leads.

On a grant, it claims, recovers and serves; only then is the address published. Each application
lives in a task of its own (`linked_application`). An application that cannot be recovered is parked
and shown; it never stops the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from understudy.core import recovery
from understudy.core.ids import application_id
from understudy.core.recovery import AnswerRun, Bygone, Continue, SubmitRun
from understudy.errors import (
    AlreadyEndedError,
    DataError,
    DifferentRequestError,
    LeadershipLost,
    SubmissionError,
    TooLargeError,
)
from understudy.ha import coordination, layout, permits
from understudy.ha.application_store import Recovered, StoredApplication
from understudy.ha.election import Leadership
from understudy.ha.registry import APPLICATIONS_MAX, Shutdown
from understudy.jobmanager import attention
from understudy.jobmanager.application import Application
from understudy.jobmanager.attention import Inspector, Problems
from understudy.jobmanager.cleanup import Layouts
from understudy.jobmanager.leftovers import Leftovers
from understudy.jobmanager.linked_application import LinkedApplication
from understudy.jobmanager.main_queue import MainQueue
from understudy.jobmanager.redeployment import NO_CHANGES, Changes
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.jobmanager.retention import (
    forget_expired,
    refuse_used_job_id,
    sweep_tombstones,
)
from understudy.jobmanager.submission import Submission
from understudy.jobmanager.surroundings import (
    DispatcherSettings,
    RunEnd,
    Surroundings,
    TermContext,
)
from understudy.model import (
    ApplicationId,
    ApplicationRecord,
    ApplicationStatus,
    JobId,
    LeadershipSpan,
    RegistryBody,
    RegistryLink,
    RunId,
)
from understudy.process.persist import once, persist

Publish = Callable[[], Coroutine[Any, Any, None]]
"""Publishes the leader's addresses; called once everything is claimed and recovered."""

RECOVERY_S = 2.0
"""How long TaskManagers wait for slow storage of one application. What they report of attempts of
an application that is not recovered by then is asked for again once it is."""

ARTIFACTS_SWEPT_S = 600.0
"""How often uploads are looked for that nobody uses: the first time not at the grant, which has
more urgent work."""

_log = logging.getLogger(__name__)
_audit = logging.getLogger("understudy.audit")
"""As of requests over REST (`api.audit`)."""


@dataclass
class Binding:
    """The run that this process was started for."""

    wanted: RunId | None
    ephemeral: bool
    submission: Submission | None
    changes: Changes = NO_CHANGES
    """Changes that the start of this process makes to the run that was unfinished then."""
    known_at_start: frozenset[RunId] = frozenset()
    bound: RunId | None = None
    """The run that was unfinished when this process saw the registry."""
    session: bool = False
    """Without a run of its own: the cluster takes applications for as long as it is there."""
    shutdown: Shutdown = field(default_factory=Shutdown)
    """Requests to shut the cluster down, as this process has seen them."""


class Dispatcher:
    """The applications of one term."""

    def __init__(
        self,
        around: Surroundings,
        binding: Binding,
        leadership: Leadership,
        resources: ResourceManager,
    ) -> None:
        self._around = around
        self._settings = DispatcherSettings.of(around.configuration)
        self._binding = binding
        self._leadership = leadership
        self._resources = resources
        self._layouts = Layouts(around.services)
        self._queue = MainQueue(around.mains, self._settings.mains_max)
        self._group: asyncio.TaskGroup | None = None
        self._accepts = False
        """Whether applications may be submitted."""
        self._submissions: dict[ApplicationId, tuple[asyncio.Task[None], str]] = {}
        """What is being stored, with the digest of its request."""
        self._first_jobs: dict[ApplicationId, str] = {}
        """The ids of first jobs that applications of this term were submitted with."""
        self._sweeping = asyncio.Lock()
        self._end: RunEnd | None = None
        """How the own run has ended."""
        self._changed = asyncio.Event()
        self.registry: RegistryBody | None = None
        self.applications: dict[ApplicationId, LinkedApplication] = {}
        """All linked applications: executed, cleaned up, or parked."""
        self.cleanup_failures = 0
        """Failed tries of the cleanup of applications that are over."""
        self.attention: Problems = {}
        """Problems that need a person, as met by this leader."""
        self.inspector = Inspector(around.services, around.clock)

    # --- what others ask --------------------------------------------------------------------------

    def application(self, application: ApplicationId) -> Application | None:
        """Return an application if this leader executes it, or has done so."""
        linked = self.applications.get(application)
        return linked.application if linked else None

    def application_of(self, job_id: JobId) -> Application | None:
        """Return the application of a job, if this leader executes it."""
        for linked in self.applications.values():
            if linked.application and job_id in linked.application.jobs.entries:
                return linked.application
        return None

    async def problems(self) -> Problems:
        """Return the problems that need a person: met by this leader or found by inspection."""
        return {**await self.inspector.problems(), **self.attention}

    # --- leading ----------------------------------------------------------------------------------

    async def run(self, publish: Publish) -> RunEnd | None:
        """Lead until nothing is left to do; return how the run ended. Raises `LeadershipLost`.

        None: the cluster has no run, and this process was started without an application. In a
        cluster that outlives its applications, the leader leads until a request closes the cluster.
        """
        try:
            return await self._run(publish)
        except BaseExceptionGroup as group:
            raise attention.first_of(group) from group

    async def _run(self, publish: Publish) -> RunEnd | None:
        services, term = self._around.services, self._leadership.term
        if self._leadership.damage:
            self.attention["leader"] = f"{self._leadership.damage}; it was replaced"
        try:
            registry = await self._claim_registry()
        except DataError as error:
            self.attention["registry"] = f"{error}: {attention.REGISTRY_WAY_OUT}"
            return await self._wait_for_the_registry(publish)
        if self._binding.shutdown.look(registry):
            raise LeadershipLost("a request has shut the cluster down")
        leftovers = await Leftovers.listed(services)
        self.registry = registry = await self._note_grant(registry)
        recovered = await services.applications.recover(term, registry)
        if recovered.damaged:
            await self._refuse_if_deposed()
        if not registry.applications:
            await self._sweep()
        ended = await self._begin(registry, recovered)
        if ended and not self._stays:
            return ended
        if not ended and not self.applications and not self._binding.session:
            await publish()
            return None
        return await self._lead(publish, ended, leftovers.besides(registry, recovered))

    @property
    def _stays(self) -> bool:
        """Return whether the leader leads on after the end of all applications."""
        return self._binding.session or not self._settings.shutdown_on_finish

    async def _begin(self, registry: RegistryBody, recovered: Recovered) -> RunEnd | None:
        """Take in all linked applications and the own one; return how the own one has ended."""
        decision: recovery.Bootstrap | None = None
        if not self._binding.session:
            decision = recovery.bootstrap(
                registry,
                self._binding.wanted,
                self._binding.bound,
                self._binding.known_at_start,
                RunId(uuid.uuid4().hex[:12]),
            )
        await self._prune(registry, decision)
        for stored in recovered.sound:
            self._take_in(stored.body.application_id, registry, stored)
        for application, why in recovered.damaged.items():
            link = registry.applications[application]
            self.attention[application] = attention.application_needs(link, why)
            self._take_in(application, registry, None)
        match decision:
            case AnswerRun(stone):
                _log.info("run %s has ended: %s", stone.run_id, stone.status.value)
                await self._sweep(finally_=not self._is_left_behind(stone.left_behind))
                return RunEnd(stone.run_id, stone.status)
            case Bygone(run, status):
                _log.info("run %s has ended, its result is kept no longer", run)
                await self._sweep()
                return RunEnd(run, status)
            case Continue():
                _log.info("run %s is unfinished: it is continued", decision.run_id)
                self._binding.bound = decision.run_id
            case SubmitRun() if self._binding.submission:
                await self._put(self._binding.submission, decision.run_id)
                self._binding.bound = decision.run_id
        return None

    def _take_in(
        self, application: ApplicationId, registry: RegistryBody, stored: StoredApplication | None
    ) -> None:
        link = registry.applications[application]
        # Until it is recovered, reports of its attempts cannot be judged.
        self._resources.park(application)
        context = self._context()
        self.applications[application] = LinkedApplication(
            application, link, stored, context, self._alone
        )

    def _alone(self) -> bool:
        return len(self.applications) <= 1 and not self._binding.session

    def _context(self) -> TermContext:
        return TermContext(
            around=self._around,
            settings=self._settings,
            leadership=self._leadership,
            resources=self._resources,
            layouts=self._layouts,
            queue=self._queue,
            attention=self.attention,
            incarnation=self.registry.incarnation if self.registry else "",
            submission=self._binding.submission,
            changes=self._binding.changes,
            own_settings=self._binding.session,
        )

    async def _lead(
        self, publish: Publish, ended: RunEnd | None, leftovers: Leftovers
    ) -> RunEnd | None:
        """Lead until all applications have ended, or for ever; return how the own run ended."""
        recovered = list(self.applications.values())
        async with asyncio.TaskGroup() as self._group:
            self._accepts = True
            for linked in recovered:
                self._group.create_task(self._live(linked))
            background: list[asyncio.Task[None]] = []
            try:
                await self._open(recovered)
                await publish()
                background.append(asyncio.create_task(self._note_takeovers(recovered)))
                background.append(asyncio.create_task(self._sweep_locks(recovered)))
                if self._stays:
                    background.append(asyncio.create_task(self._sweep_artifacts()))
                background.append(asyncio.create_task(self._remove(leftovers, recovered)))
                if ended:
                    await self._around.report_end(ended)
                if self._stays:
                    await asyncio.Future()
                await self._all_ended()
            finally:
                self._accepts = False
                works = [*background, *(storing for storing, _ in self._submissions.values())]
                for work in works:
                    work.cancel()
                await asyncio.gather(*works, return_exceptions=True)
                for linked in recovered:
                    linked.report_takeover()
        # What remains of the cluster is its terms and its tombstones.
        await self._around.services.registry.record(self._leadership.term, lambda _: [])
        return self._end

    async def _open(self, recovered: list[LinkedApplication]) -> None:
        """Take TaskManagers in once every application can judge what they report.

        No older term can write anything by then.
        """
        await asyncio.gather(*(linked.claimed.wait() for linked in recovered))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECOVERY_S):
                await asyncio.gather(*(linked.settled.wait() for linked in recovered))
        self._resources.open()

    async def _live(self, linked: LinkedApplication) -> None:
        """Let an application live, and take note of its end."""
        tombstone = await linked.live()
        del self.applications[linked.application_id]
        self._first_jobs.pop(linked.application_id, None)
        self.cleanup_failures += linked.cleanup.failures if linked.cleanup else 0
        self._resources.leave(linked.application_id)
        await self._note_burial()
        if not self.applications:
            left_behind = self._is_left_behind(tombstone.left_behind)
            await self._sweep(finally_=not left_behind)
            await self._around.locks.sweep(frozenset({self._around.me}))
        ended = RunEnd(tombstone.run_id, tombstone.status, linked.failure)
        if tombstone.run_id == self._binding.bound:
            self._end = ended
        if self._stays:
            await self._around.report_end(ended)
        self._changed.set()

    async def _note_burial(self) -> None:
        """Keep the registry as it is now, and no more tombstones than it has."""
        services, seen = self._around.services, self._around.services.registry.seen
        if seen is None:
            return
        before, self.registry = self.registry, seen[0]
        if self._stays and before:
            lost = before.tombstones.keys() - self.registry.tombstones.keys()
            for run in lost:  # There was no room for them.
                path = before.tombstones[run].file.path
                await once(
                    "remove an old tombstone", functools.partial(services.storage.delete, path)
                )
            with contextlib.suppress(OSError, TimeoutError):  # The next end tries again.
                await self._prune(self.registry, None)

    async def _all_ended(self) -> None:
        while self.applications or self._submissions:
            self._changed.clear()
            await self._changed.wait()

    async def _note_takeovers(self, recovered: list[LinkedApplication]) -> None:
        """Report each takeover once complete, and store the longest in the history."""

        async def completed(linked: LinkedApplication) -> float | None:
            seconds = await asyncio.shield(linked.taken_over)
            linked.report_takeover()
            return seconds

        took = await asyncio.gather(*(completed(linked) for linked in recovered))
        known = [seconds for seconds in took if seconds is not None]
        if not known:
            return
        term = self._leadership.term

        def change(history: tuple[LeadershipSpan, ...]) -> list[LeadershipSpan]:
            return [
                replace(span, takeover_seconds=max(known)) if span.term == term else span
                for span in history
            ]

        self.registry = await self._around.services.registry.record(term, change)

    async def _remove(self, leftovers: Leftovers, recovered: list[LinkedApplication]) -> None:
        """Remove what nothing linked at the grant, while applications run."""
        services, term = self._around.services, self._leadership.term
        try:
            await leftovers.remove(services, term, recovered)
        except (OSError, TimeoutError, DataError) as error:
            _log.warning("the sweep is left to the next leader: %s", error)

    async def _sweep_locks(self, recovered: list[LinkedApplication]) -> None:
        """Remove the locks of dead processes that no intent names."""
        needed = {self._around.me}
        for linked in recovered:
            known = linked.needed_locks()
            if known is None:
                return
            needed |= known
        await self._around.locks.sweep(frozenset(needed))

    async def _sweep_artifacts(self) -> None:
        """Remove uploads that nobody has used for long, now and then; see `ArtifactStore.sweep`."""
        artifacts, clock = self._around.services.artifacts, self._around.clock
        while True:
            await asyncio.sleep(ARTIFACTS_SWEPT_S)
            try:
                term, unused_s = self._leadership.term, self._settings.artifact_ttl_s
                swept = await artifacts.sweep(term, unused_s, clock.wall())
            except (OSError, TimeoutError, DataError) as error:
                _log.warning("artifacts that are not used stay for now: %s", error)
            except LeadershipLost:
                return  # Whoever renews the lease learns it, too.
            else:
                for artifact in swept:
                    _log.info("removed artifact %s, which nobody has used for long", artifact)

    # --- the registry -----------------------------------------------------------------------------

    async def _claim_registry(self) -> RegistryBody:
        """Shut out older terms; raises `DataError` for a damaged, foreign or lost registry.

        A missing registry is created only where no trace shows that there was one.
        """
        services, term = self._around.services, self._leadership.term
        await attention.refuse_lost_registry(services, self._binding.bound)
        await coordination.note(services.storage, services.locations.cluster, services.coordination)
        return await services.registry.claim(term, ephemeral=self._binding.ephemeral, anew=True)

    async def _note_grant(self, registry: RegistryBody) -> RegistryBody:
        """Close the last span of the history, and open this term's."""
        leadership, around = self._leadership, self._around
        now = around.clock.wall()
        lost_at = now
        if leadership.lost_at is not None:
            lost_at = now - max(0.0, around.clock.now() - leadership.lost_at)
        span = LeadershipSpan(
            term=leadership.term, holder=around.name, granted_at=now, rest=around.rest
        )

        def change(history: tuple[LeadershipSpan, ...]) -> list[LeadershipSpan]:
            closed = [
                replace(old, lost_at=lost_at, reason=leadership.reason)
                if old.lost_at is None
                else old
                for old in history
                if old.term != leadership.term
            ]
            return [*closed, span]

        return await around.services.registry.record(leadership.term, change)

    async def _prune(self, registry: RegistryBody, decision: recovery.Bootstrap | None) -> None:
        """Drop the expired tombstones, except the one that this process is about to answer with."""
        around = self._around
        kept = decision.tombstone if isinstance(decision, AnswerRun) else None
        ttl_s, now = self._settings.tombstone_ttl_s, around.clock.wall()
        await forget_expired(around.services, self._leadership.term, registry, ttl_s, now, kept)

    async def shut_down(self) -> None:
        """Mark durably that all processes of the cluster must end, and that all data is kept.

        The mark does not end this JobManager: the caller sets `Shutdown.asked` once the request is
        answered. A write with an unknown outcome is repeated: a mark that nobody knows of would end
        the cluster at its next failover. Raises `LeadershipLost`.
        """
        registry, term = self._around.services.registry, self._leadership.term
        await persist("mark the shutdown of the cluster", lambda: registry.shut_down(term))

    # --- submitting -------------------------------------------------------------------------------

    async def submit(self, submission: Submission, run_id: RunId) -> ApplicationId:
        """Execute an application; return its id once it is durable.

        Who asks again because an answer was lost gets the same answer. Raises
        `DifferentRequestError` for an unfinished run that was submitted by another request,
        `AlreadyEndedError`, other `SubmissionError`s, `ConfigurationError`, `LeadershipLost`, or
        `TooLargeError` while there are as many applications as the registry has room for.
        """
        application = application_id(self._around.services.cluster_id, run_id)
        if self.is_submitted(run_id, submission.request):
            return application
        if not self._accepts:
            raise LeadershipLost("this leader does not take applications any more, or not yet")
        known = self._submissions.get(application)
        if known is None:
            self._refuse_one_too_many()
            storing = asyncio.create_task(self._put(submission, run_id))
            known = self._submissions[application] = (storing, submission.request)
            storing.add_done_callback(functools.partial(self._stored, application))
        storing, request = known
        _refuse_other(run_id, request, submission.request)
        try:
            await asyncio.shield(storing)  # Another client may wait for the same.
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if storing.cancelled() and not (this and this.cancelling()):
                raise LeadershipLost("this term ended before the application was stored") from None
            raise
        return application

    def is_submitted(self, run_id: RunId, request: str) -> bool:
        """Return whether an unfinished application is there that this request has submitted.

        Raises `DifferentRequestError` and `AlreadyEndedError` as `submit` does.
        """
        application = application_id(self._around.services.cluster_id, run_id)
        linked = self.applications.get(application)
        if linked is None:
            self._refuse_ended(run_id, application)
            return False
        if ended := linked.ended_as:
            raise _already_ended(run_id, application, ended)
        _refuse_other(run_id, linked.link.request, request)
        return True

    def _refuse_ended(self, run_id: RunId, application: ApplicationId) -> None:
        registry = self._around.services.registry.seen
        body = registry[0] if registry else None
        stone = body.tombstones.get(run_id) if body else None
        status = stone.status if stone else body.ended.get(run_id) if body else None
        if status:
            raise _already_ended(run_id, application, status)

    def _refuse_one_too_many(self) -> None:
        unfinished = self.applications.keys() | self._submissions.keys()
        if len(unfinished) >= APPLICATIONS_MAX:
            raise TooLargeError(
                f"the cluster has {len(unfinished):,} unfinished applications, and takes no more: "
                "submit again once some have ended"
            )

    def _stored(self, application: ApplicationId, storing: asyncio.Task[None]) -> None:
        del self._submissions[application]
        self._changed.set()
        if not storing.cancelled():
            storing.exception()  # Marks the error as seen: whoever waits gets it.

    async def _put(self, submission: Submission, run_id: RunId) -> None:
        """Store an application, and begin to execute it."""
        services = self._around.services
        if self._binding.session or submission.request:
            # Bad settings are refused before anything is stored.
            self._around.configuration.with_settings(submission.configuration)
        application = application_id(services.cluster_id, run_id)
        if submission.first_job_id:
            self._refuse_used_first_job(submission.first_job_id)
            self._first_jobs[application] = submission.first_job_id
        try:
            stored, record = await self._store(submission, run_id)
        except BaseException:
            self._first_jobs.pop(application, None)
            raise
        _log.info("run %s of %s begins", run_id, submission.name)
        if not submission.request:  # REST writes the line of a request.
            _audit.info(
                'who=uid-%d role=admin from=local do="run-application" about=%s status=202',
                *(os.getuid(), record.application_id),
            )
        link = RegistryLink(document=stored.key, run_id=run_id, request=record.request)
        identity = stored.body.application_id
        linked = LinkedApplication(identity, link, stored, self._context(), self._alone)
        self.applications[identity] = linked
        if self._group:
            self._group.create_task(self._live(linked))

    def _refuse_used_first_job(self, first: str) -> None:
        """Raise `SubmissionError` where an unfinished application has the job, or is to have it."""
        is_due = first in self._first_jobs.values() or any(
            linked.application and linked.application.record.first_job_id == first
            for linked in self.applications.values()
        )
        if is_due or self.application_of(JobId(first)):
            raise SubmissionError(
                f"$internal.pipeline.job-id {first} is used by another application: choose "
                "another one"
            )

    async def _store(
        self, submission: Submission, run_id: RunId
    ) -> tuple[StoredApplication, ApplicationRecord]:
        services, term = self._around.services, self._leadership.term
        async with self._sweeping:
            directory = services.applications.new_directory()
        if submission.first_job_id and self.registry:
            await refuse_used_job_id(services, self.registry, submission.first_job_id)
        record = await services.storage.run(
            submission.store, services, run_id, directory, self._around.clock.wall()
        )
        stored = await persist(
            "store an application", lambda: services.applications.put(term, record, directory)
        )
        return stored, record

    # --- ending -----------------------------------------------------------------------------------

    async def _sweep(self, *, finally_: bool = False) -> None:
        """Remove the documents and directories that crashes have left unlinked.

        Never while an application runs here or is stored: its data is created before it is linked.
        With ``finally_``, the sweep is retried until it succeeds: there may be no later leader. A
        leader that stays sweeps at the next end instead: applications wait for the sweep.
        """
        async with self._sweeping:
            if self._group and (self.applications or self._submissions):
                return
            try:
                if finally_ and not self._stays:
                    await persist("sweep", self._sweep_once)
                else:
                    await self._sweep_once()
            except (OSError, TimeoutError, DataError) as error:
                _log.warning("the sweep is left to the next leader: %s", error)

    def _is_left_behind(self, paths: tuple[str, ...]) -> bool:
        """Return whether a person has accepted that some files cannot be removed."""
        stones = self.registry.tombstones.values() if self.registry else ()
        return bool(paths) or any(stone.left_behind for stone in stones)

    async def _sweep_once(self) -> None:
        for key in await self._around.services.registry.sweep(self._leadership.term):
            _log.info("removed %s, which nothing links", key)
        await self._sweep_directories()

    async def _sweep_directories(self) -> None:
        """Remove the directories of applications that were never linked.

        The directories are listed before the claim: a successful claim proves that no later leader
        had begun by then, so no listed directory is a later leader's, however long this process is
        paused before it deletes. While a linked application cannot be read, its directory is
        unknown: then every directory stays.
        """
        services, term = self._around.services, self._leadership.term
        base = layout.application_directory(services.locations.cluster, "x").rpartition("/")[0]
        directories = await services.storage.names(base)
        registry = await services.registry.claim(term, ephemeral=self._binding.ephemeral)
        recovered = await services.applications.recover(term, registry)
        await sweep_tombstones(services, term, registry, recovered)
        if recovered.damaged:
            return
        linked = {stored.body.directory for stored in recovered.sound}
        for name in directories:
            if name not in linked:
                await services.storage.delete_tree(f"{base}/{name}")
                _log.info("removed %s/%s, which nothing links", base, name)
        if not linked:  # Also if an earlier try removed the last one without an answer.
            await services.storage.prune(base)
            await permits.withdraw_all(services.storage, services.locations.cluster)

    async def _refuse_if_deposed(self) -> None:
        """Raise `LeadershipLost` if a newer term exists: it may have removed the missing data."""
        await attention.refuse_if_deposed(self._around.services, self._leadership.term)

    async def _wait_for_the_registry(self, publish: Publish) -> RunEnd:
        """Lead and only show the problems until the damage is repaired; then lose leadership."""
        for subject, why in self.attention.items():
            _log.error("%s needs attention: %s", subject, why)
        await publish()
        await attention.repaired(
            functools.partial(attention.registry_is_damaged, self._around.services)
        )
        raise LeadershipLost("what was damaged can be read again: it is recovered again")


def _refuse_other(run_id: RunId, before: str, request: str) -> None:
    if before != request:
        raise DifferentRequestError(
            f"run {run_id} is unfinished, and was submitted with other content: submit with "
            "another id"
        )


def _already_ended(
    run_id: RunId, application: ApplicationId, status: ApplicationStatus
) -> AlreadyEndedError:
    message = f"run {run_id} has ended, it is {status.value}: submit with another id"
    return AlreadyEndedError(message, application, status.value)
