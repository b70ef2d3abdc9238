"""Dispatcher: accepts, recovers, executes and finishes applications while its JobManager leads.

On a grant, it claims, recovers and serves; only then is the address published. Data from which an
application cannot be recovered is reported and stays in place; it never stops the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.config import Configuration, options
from understudy.config.configuration import learn_secrets
from understudy.core import recovery
from understudy.core.recovery import AnswerRun, Bygone, Continue, SubmitRun
from understudy.core.restart import Strategy
from understudy.errors import (
    DataError,
    LeadershipLost,
    NotFoundError,
)
from understudy.ha import coordination, layout
from understudy.ha.application_store import Recovered, StoredApplication
from understudy.ha.election import Leadership
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager import attention, redeployment
from understudy.jobmanager.application import Application, ApplicationSettings
from understudy.jobmanager.attention import Inspector, Problems
from understudy.jobmanager.checkpoint_coordinator import CheckpointSettings
from understudy.jobmanager.cleanup import Cleanup, CleanupSettings
from understudy.jobmanager.job_master import JobMasterContext
from understudy.jobmanager.main_process import MainProcesses
from understudy.jobmanager.redeployment import NO_CHANGES, Changes
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.jobmanager.retention import (
    forget_expired,
    refuse_used_job_id,
    sweep_tombstones,
)
from understudy.jobmanager.submission import Submission
from understudy.model import (
    ApplicationId,
    ApplicationRecord,
    ApplicationStatus,
    Incarnation,
    LeadershipSpan,
    RegistryBody,
    RegistryLink,
    RunId,
    Tombstone,
)
from understudy.process import code
from understudy.process.liveness_lock import Locks
from understudy.process.persist import persist
from understudy.process.reporter import Reporter

Publish = Callable[[], Coroutine[Any, Any, None]]
"""Publishes the leader's addresses; called once everything is claimed and recovered."""

_log = logging.getLogger(__name__)


@dataclass
class Binding:
    """The run that this process serves."""

    wanted: RunId | None
    ephemeral: bool
    submission: Submission | None
    changes: Changes = NO_CHANGES
    """Changes that the start of this process makes to the run that was unfinished then."""
    known_at_start: frozenset[RunId] = frozenset()
    bound: RunId | None = None
    """The run that was unfinished when this process saw the registry."""


@dataclass(frozen=True)
class RunEnd:
    """How the run ended."""

    run_id: RunId
    status: ApplicationStatus


async def _ignore(ended: RunEnd) -> None:
    """Ignore the end of the run."""


@dataclass(frozen=True)
class DispatcherSettings:
    """The options of a Dispatcher, and of the applications that it executes."""

    strategy: Strategy
    checkpoints: CheckpointSettings
    cleanup: CleanupSettings
    shutdown_on_finish: bool
    tombstone_ttl_s: float
    redacted_keys: tuple[str, ...]
    result_size_max: int
    no_retry: tuple[str, ...]
    terminate_on_job_failure: bool | None
    unreached_grace_s: float

    @classmethod
    def of(cls, configuration: Configuration) -> DispatcherSettings:
        """Return the settings of a configuration."""
        return cls(
            Strategy.of(configuration),
            CheckpointSettings.of(configuration),
            CleanupSettings.of(configuration),
            configuration.get(options.SHUTDOWN_ON_FINISH),
            configuration.get(options.TOMBSTONE_TTL),
            configuration.get(options.REDACTED_KEYS),
            configuration.get(options.RESULT_MAX_SIZE),
            configuration.get(options.NO_RETRY),
            configuration.find(options.TERMINATE_ON_JOB_FAILURE),
            configuration.get(options.UNREACHED_GRACE),
        )


@dataclass(frozen=True)
class Surroundings:
    """The dependencies of a Dispatcher; the same for every term of a process."""

    me: Incarnation
    name: str
    rest: str
    configuration: Configuration
    services: HighAvailabilityServices
    mains: MainProcesses
    locks: Locks
    reporter: Reporter
    clock: Clock
    chance: random.Random
    report_end: Callable[[RunEnd], Awaitable[None]] = _ignore
    """Called with the end of the run by a leader that continues to lead."""


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
        self.registry: RegistryBody | None = None
        self.application: Application | None = None
        self.cleanup: Cleanup | None = None
        self.attention: Problems = {}
        """Problems that need a person, as met by this leader."""
        self.inspector = Inspector(around.services, around.clock)

    async def run(self, publish: Publish) -> RunEnd | None:
        """Lead until nothing is left to do; return how the run ended. Raises `LeadershipLost`.

        None: the cluster has no run, and this process was started without an application. In a
        cluster that outlives its application, the leader leads until a request closes the cluster.
        """
        ended = await self._run(publish)
        if ended is None or self._settings.shutdown_on_finish:
            return ended
        self.application = self.cleanup = None
        if not self._leadership.addresses[0]:
            await publish()
        await self._around.report_end(ended)
        return await asyncio.Future()

    async def _run(self, publish: Publish) -> RunEnd | None:
        services, term = self._around.services, self._leadership.term
        if self._leadership.damage:
            self.attention["leader"] = f"{self._leadership.damage}; it was replaced"
        try:
            registry = await self._claim_registry()
        except DataError as error:
            self.attention["registry"] = f"{error}: {attention.REGISTRY_WAY_OUT}"
            damaged = functools.partial(attention.registry_is_damaged, services)
            return await self._wait_for_a_person(publish, damaged)
        self.registry = registry = await self._note_grant(registry)
        recovered = await services.applications.recover(term, registry)
        if recovered.damaged:
            await self._refuse_if_deposed()
        for application, why in recovered.damaged.items():
            link = registry.applications[application]
            self.attention[application] = attention.application_needs(link, why)
        await self._sweep()
        decision = recovery.bootstrap(
            registry,
            self._binding.wanted,
            self._binding.bound,
            self._binding.known_at_start,
            RunId(uuid.uuid4().hex[:12]),
        )
        await self._prune(registry, decision)
        match decision:
            case AnswerRun():
                return await self._answer(decision.tombstone)
            case Bygone():
                _log.info("run %s has ended, its result is kept no longer", decision.run_id)
                await self._sweep()
                return RunEnd(decision.run_id, decision.status)
            case Continue():
                _log.info("run %s is unfinished: it is continued", decision.run_id)
                stored = _find(recovered, decision)
            case SubmitRun():
                stored = await self._submit(decision.run_id)
        if isinstance(decision, Continue):
            self._binding.bound = decision.run_id
            if stored is None:
                return await self._wait_for_application(publish, decision.application_id)
        if stored is None:
            await publish()
            return None
        self._binding.bound = stored.body.run_id
        return await self._attend(stored, publish)

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

    async def _prune(self, registry: RegistryBody, decision: recovery.Bootstrap) -> None:
        """Drop the expired tombstones, except the one that this process is about to answer with."""
        around = self._around
        kept = decision.tombstone if isinstance(decision, AnswerRun) else None
        ttl_s, now = self._settings.tombstone_ttl_s, around.clock.wall()
        await forget_expired(around.services, self._leadership.term, registry, ttl_s, now, kept)

    # --- submitting -------------------------------------------------------------------------------

    async def _submit(self, run_id: RunId) -> StoredApplication | None:
        """Store the application that this process was started with."""
        submission = self._binding.submission
        if submission is None:
            return None
        services, term = self._around.services, self._leadership.term
        directory = services.applications.new_directory()
        if submission.first_job_id and self.registry:
            await refuse_used_job_id(services, self.registry, submission.first_job_id)
        record = await services.storage.run(
            submission.store, services, run_id, directory, self._around.clock.wall()
        )
        stored = await services.applications.put(term, record, directory)
        _log.info("run %s of %s begins", run_id, submission.name)
        return stored

    # --- executing --------------------------------------------------------------------------------

    async def _attend(self, stored: StoredApplication, publish: Publish) -> RunEnd:
        """Execute an application unless it has ended, and clean up after it."""
        around, body = self._around, stored.body
        plans = around.services.plans(stored)
        try:
            await self._change(stored, plans)
            self.cleanup = self._cleanup(stored, plans)
            if body.result is None:
                await self._execute(stored, plans, self.cleanup, publish)
            else:
                await publish()
            self._resources.leave(body.application_id)
            tombstone = await self.cleanup.finish()
        except (DataError, NotFoundError, BaseExceptionGroup) as error:
            damage = attention.damage_in(error)
            if damage is None:
                raise
            await self._refuse_if_deposed()
            link = RegistryLink(document=stored.key, run_id=body.run_id)
            self.attention[body.application_id] = attention.application_needs(link, str(damage))
            self.application = None
            return await self._wait_for_application(publish, body.application_id)
        await self._sweep(finally_=not self._is_left_behind(tombstone))
        await self._around.locks.sweep(frozenset({self._around.me}))
        if self._settings.shutdown_on_finish:
            # What remains of the cluster is its terms and its tombstones.
            await around.services.registry.record(self._leadership.term, lambda _: [])
        return RunEnd(tombstone.run_id, tombstone.status)

    async def _change(self, stored: StoredApplication, plans: ExecutionPlanStore) -> None:
        """Claim the jobs, and apply the changes that a person made by restarting the run."""
        around, term, changes = self._around, self._leadership.term, self._binding.changes
        submission, now = self._binding.submission, around.clock.wall()
        # The application first: its deployment number marks outdated jobs.
        deployed = await redeployment.deploy(
            around.services, stored, submission, changes, term, now
        )
        await plans.claim(term)
        if stored.body.result is not None:
            return
        if changes.cancel == stored.body.run_id:
            await persist(
                "note that the application is to be cancelled",
                lambda: stored.update(term, lambda body: replace(body, cancel_requested=True)),
            )
        await redeployment.discard(around.services, plans, changes, term, around.reporter)
        if deployed:
            redeployment.report_deployment(stored, plans, changes, around.reporter)

    async def _execute(
        self,
        stored: StoredApplication,
        plans: ExecutionPlanStore,
        cleanup: Cleanup,
        publish: Publish,
    ) -> None:
        around = self._around
        record = await around.services.applications.record(stored.body)
        learn_secrets(record.profile.conf, self._settings.redacted_keys)
        application = Application(
            stored,
            self._context(stored, record, plans),
            await self._application_settings(stored, record),
            around.services,
            around.mains,
            self._leadership.lost_at,
        )
        self.application = application
        published = asyncio.Event()

        async def publish_and_note() -> None:
            await publish()
            published.set()

        background = [
            asyncio.create_task(self._clean_ended_jobs(application, cleanup)),
            asyncio.create_task(self._note_takeover(application, published)),
            asyncio.create_task(around.locks.sweep(self._needed_locks(plans))),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(publish_and_note())
                group.create_task(application.run())
            application.jobs.report_takeover()
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    def _needed_locks(self, plans: ExecutionPlanStore) -> frozenset[Incarnation]:
        """Return the processes whose locks may have to prove a death: this one, and of intents."""
        intents = (entry.intent for entry in plans.entries.values() if not entry.result)
        return frozenset({self._around.me, *(intent.taskmanager for intent in intents if intent)})

    async def _clean_ended_jobs(self, application: Application, cleanup: Cleanup) -> None:
        """Clean up after each job as soon as its result is durable."""
        async with asyncio.TaskGroup() as group:  # A failing job does not delay the others.
            for job_id, entry in list(application.jobs.entries.items()):
                if entry.result and not entry.result.cleaned:
                    group.create_task(cleanup.clean_job(job_id))
            while True:
                group.create_task(cleanup.clean_job(await application.jobs.ended.get()))

    async def _note_takeover(self, application: Application, published: asyncio.Event) -> None:
        """Report the takeover, once complete, and store its seconds in the history."""
        report = await application.jobs.taken_over
        await published.wait()
        application.jobs.report_takeover()
        term = self._leadership.term

        def change(history: tuple[LeadershipSpan, ...]) -> list[LeadershipSpan]:
            return [
                replace(span, takeover_seconds=report.seconds) if span.term == term else span
                for span in history
            ]

        self.registry = await self._around.services.registry.record(term, change)

    def _context(
        self, stored: StoredApplication, record: ApplicationRecord, plans: ExecutionPlanStore
    ) -> JobMasterContext:
        around, settings = self._around, self._settings
        return JobMasterContext(
            term=self._leadership.term,
            application_id=stored.body.application_id,
            run_id=stored.body.run_id,
            cluster=around.services.locations.cluster,
            directory=stored.body.directory,
            deployment=stored.body.deployment,
            result_size_max=settings.result_size_max,
            strategy=settings.strategy,
            plans=plans,
            results=around.services.job_results,
            storage=around.services.storage,
            resources=self._resources,
            clock=around.clock,
            chance=around.chance,
            register=around.services.register,
            checkpoints=settings.checkpoints,
            record=record,
            reporter=around.reporter,
            incarnation=self.registry.incarnation if self.registry else "",
            attention=self.attention,
            history=settings.cleanup.history,
            no_retry=settings.no_retry,
        )

    async def _application_settings(
        self, stored: StoredApplication, record: ApplicationRecord
    ) -> ApplicationSettings:
        around, settings = self._around, self._settings
        directory = await around.services.storage.run(
            code.lay_out,
            around.services.storage.blocking,
            around.services.locations.cluster,
            stored.body.directory,
            record.artifacts,
        )
        return ApplicationSettings(
            strategy=settings.strategy,
            policy=settings.terminate_on_job_failure,
            unreached_grace_s=settings.unreached_grace_s,
            code_root=str(directory),
            python_path=code.python_path(str(directory), record.artifacts),
            redacted_keys=settings.redacted_keys,
        )

    def _cleanup(self, stored: StoredApplication, plans: ExecutionPlanStore) -> Cleanup:
        services, term = self._around.services, self._leadership.term
        return Cleanup(stored, plans, services, term, self._settings.cleanup)

    # --- ending -----------------------------------------------------------------------------------

    async def _sweep(self, *, finally_: bool = False) -> None:
        """Remove the documents and directories that crashes have left unlinked.

        Never while an application runs here: its data is created before it is linked. With
        ``finally_``, the sweep is retried until it succeeds: there may be no later leader.
        """
        try:
            if finally_:
                await persist("sweep", self._sweep_once)
            else:
                await self._sweep_once()
        except (OSError, TimeoutError, DataError) as error:
            _log.warning("the sweep is left to the next leader: %s", error)

    def _is_left_behind(self, tombstone: Tombstone) -> bool:
        """Return whether a person has accepted that some files cannot be removed."""
        stones = self.registry.tombstones.values() if self.registry else ()
        return any(stone.left_behind for stone in (tombstone, *stones))

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

    async def _answer(self, tombstone: Tombstone) -> RunEnd:
        _log.info("run %s has ended: %s", tombstone.run_id, tombstone.status.value)
        await self._sweep(finally_=not self._is_left_behind(tombstone))
        return RunEnd(tombstone.run_id, tombstone.status)

    async def problems(self) -> Problems:
        """Return the problems that need a person: met by this leader or found by inspection."""
        return {**await self.inspector.problems(), **self.attention}

    async def _refuse_if_deposed(self) -> None:
        """Raise `LeadershipLost` if a newer term exists: it may have removed the missing data."""
        registry, term = self._around.services.registry, self._leadership.term
        with contextlib.suppress(DataError):
            highest = await persist("look which term is the newest", registry.highest_term)
            if highest > term:
                raise LeadershipLost(f"term {highest} is newer than {term}")

    async def _wait_for_application(self, publish: Publish, application: ApplicationId) -> RunEnd:
        damaged = functools.partial(attention.is_damaged, self._around.services, application)
        return await self._wait_for_a_person(publish, damaged)

    async def _wait_for_a_person(
        self, publish: Publish, damaged: Callable[[], Awaitable[bool]]
    ) -> RunEnd:
        """Lead and only show the problems until the damage is repaired; then lose leadership."""
        for subject, why in self.attention.items():
            _log.error("%s needs attention: %s", subject, why)
        await publish()
        await attention.repaired(damaged)
        raise LeadershipLost("what was damaged can be read again: it is recovered again")


def _find(recovered: Recovered, decision: Continue) -> StoredApplication | None:
    for stored in recovered.sound:
        if stored.body.application_id == decision.application_id:
            return stored
    return None
