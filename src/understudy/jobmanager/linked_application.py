"""One application that the registry links, in one term: executed, cleaned up; or parked.

An application is parked where damaged data keeps it from being executed, or where it fails again
and again beside others. It is named and shown with the reason; its attempts run on. It continues
in the same term once it can. The other applications and the leader do not notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from understudy.config import options
from understudy.config.configuration import learn_secrets
from understudy.core.backoff import Backoff
from understudy.errors import LeadershipLost
from understudy.ha.application_store import StoredApplication
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.jobmanager import attention, notices, redeployment
from understudy.jobmanager.application import Application, ApplicationSettings
from understudy.jobmanager.cleanup import Cleanup
from understudy.jobmanager.job_master import JobMasterContext
from understudy.jobmanager.surroundings import TermContext
from understudy.model import (
    ApplicationId,
    ApplicationRecord,
    ApplicationStatus,
    Failure,
    Incarnation,
    JobId,
    RegistryLink,
    RunId,
    Tombstone,
)
from understudy.process import code
from understudy.process.environments import Ground, LaidOut
from understudy.process.persist import persist

AGAIN = Backoff(1.0, 300.0)
"""The pauses before an application is tried again that has failed for no known reason."""

_log = logging.getLogger(__name__)


class LinkedApplication:
    """The life of one application in one term."""

    def __init__(
        self,
        application_id: ApplicationId,
        link: RegistryLink,
        stored: StoredApplication | None,
        context: TermContext,
        alone: Callable[[], bool],
    ) -> None:
        """``stored``: as it was claimed; None where it is damaged.

        ``alone`` returns whether there is no other application here. An application that is alone
        ends the term with an error for which there is no reason: another JobManager may do better.
        """
        self.application_id = application_id
        self.link = link
        self.application: Application | None = None
        """The application, from the moment it is executed by this leader."""
        self.cleanup: Cleanup | None = None
        self.claimed = asyncio.Event()
        """Set once no older term can write its documents, or it is parked."""
        self.settled = asyncio.Event()
        """Set once what TaskManagers report of its attempts can be judged, or need not be."""
        self.executed = asyncio.Event()
        """Set while `application` is there."""
        self.over = asyncio.Event()
        """Set once it has ended and is cleaned up, and where this term ends before that."""
        self.tombstone: Tombstone | None = None
        """What is left of it; None before that."""
        self.failure: Failure | None = None
        """Why it failed."""
        self._stored = stored
        self._context = context
        self._alone = alone
        self._plans: ExecutionPlanStore | None = None
        self.taken_over: asyncio.Future[float | None] = asyncio.Future()
        """How many seconds its takeover took; None if it was parked or has ended before."""

    @property
    def run_id(self) -> RunId:
        """Return its run."""
        return RunId(self.link.run_id)

    @property
    def ended_as(self) -> ApplicationStatus | None:
        """Return the state in which it has ended; None while it has not, or is parked."""
        result = self._stored.body.result if self._stored else None
        return result.status if result else None

    @property
    def jobs(self) -> Iterable[JobId]:
        """Return its jobs, in the order of their submission, as far as they are known."""
        return self._plans.entries if self._plans else ()

    @property
    def parked(self) -> str:
        """Return why it is parked; empty if it is not."""
        return self._context.attention.get(self.application_id, "")

    def needed_locks(self) -> frozenset[Incarnation] | None:
        """Return the processes whose locks may have to prove a death; None while unknown."""
        if self._plans is None or self.parked:
            return None
        intents = (entry.intent for entry in self._plans.entries.values() if not entry.result)
        return frozenset(intent.taskmanager for intent in intents if intent)

    def checkpoints(self) -> frozenset[str] | None:
        """Return the keys of its jobs' checkpoints; None while unknown."""
        if self._plans is None or self.parked:
            return None
        return frozenset(entry.checkpoints for entry in self._plans.entries.values())

    # --- its life ---------------------------------------------------------------------------------

    async def live(self) -> Tombstone:
        """Bring it to its end; return its tombstone. Raises `LeadershipLost`."""
        failures = 0
        try:
            while True:
                try:
                    self.tombstone = await self._attend()
                    return self.tombstone
                except Exception as error:
                    failures += 1
                    damaged = await self._park(error)
                if damaged:
                    await attention.repaired(self._is_damaged)
                else:
                    await asyncio.sleep(AGAIN.pause_s(failures))
                _log.info("run %s is recovered again", self.run_id)
        finally:
            self._no_takeover()
            self.over.set()

    def _no_takeover(self) -> None:
        if not self.taken_over.done():
            self.taken_over.set_result(None)

    async def _park(self, error: Exception) -> bool:
        """Park it; return whether for damage. Raises the error where the term has to end."""
        context = self._context
        first = attention.first_of(error)
        damage = attention.damage_in(error)
        if isinstance(first, LeadershipLost) or (damage is None and self._alone()):
            raise error
        await attention.refuse_if_deposed(context.around.services, context.term)
        self.application = self.cleanup = self._stored = self._plans = None
        self.executed.clear()
        why = str(damage) if damage else f"{type(first).__name__}: {first}; it is tried again"
        needs = attention.application_needs if damage else attention.application_fails
        context.attention[self.application_id] = needs(self.link, why)
        context.resources.park(self.application_id)
        self.claimed.set()
        self.settled.set()
        self._no_takeover()
        text = context.attention[self.application_id]
        unknown = None if damage else error
        _log.error("%s needs attention: %s", self.application_id, text, exc_info=unknown)
        context.around.services.announce(notices.parked(text))
        return damage is not None

    async def _is_damaged(self) -> bool:
        return await attention.is_damaged(self._context.around.services, self.application_id)

    async def _attend(self) -> Tombstone:
        """Execute it unless it has ended, and clean up after it."""
        context, services = self._context, self._context.around.services
        await context.layouts.use(self.application_id, "")
        stored = self._stored
        if stored is None:
            stored = await services.applications.claim(context.term, self.application_id, self.link)
            self._stored = stored
        plans = services.plans(stored)
        await self._change(stored, plans)
        self._plans = plans
        self.claimed.set()
        context.attention.pop(self.application_id, None)
        self.cleanup = Cleanup(
            stored, plans, services, context.term, context.settings.cleanup, context.layouts
        )
        if stored.body.result is None:
            await self._execute(stored, plans, self.cleanup)
        self.settled.set()
        context.resources.leave(self.application_id)
        tombstone = await self.cleanup.finish()
        context.layouts.leave(self.application_id)
        for job_id in plans.entries:
            context.attention.pop(job_id, None)
        return tombstone

    async def _change(self, stored: StoredApplication, plans: ExecutionPlanStore) -> None:
        """Claim the jobs, and apply the changes that a person made by restarting the run."""
        around, term, changes = self._context.around, self._context.term, self._context.changes
        submission, now = self._context.submission, around.clock.wall()
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

    # --- executing --------------------------------------------------------------------------------

    async def _execute(
        self, stored: StoredApplication, plans: ExecutionPlanStore, cleanup: Cleanup
    ) -> None:
        context, around = self._context, self._context.around
        record = await around.services.applications.record(stored.body)
        await context.layouts.use(self.application_id, code.code_digest(record.artifacts))
        learn_secrets(record.profile.conf, context.settings.redacted_keys)
        application = Application(
            stored,
            self._job_context(stored, record, plans),
            self._settings(stored, record),
            around.services,
            context.queue,
            context.leadership.lost_at,
        )
        self.application = application
        self.executed.set()
        background = [
            asyncio.create_task(_clean_ended_jobs(application, cleanup)),
            asyncio.create_task(self._note_takeover(application)),
            asyncio.create_task(self._note_served(application)),
        ]
        try:
            await application.run()
            self.failure = application.failure
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await around.interpreters.leave(self.application_id)

    async def _note_served(self, application: Application) -> None:
        await application.served.wait()
        self.settled.set()

    async def _note_takeover(self, application: Application) -> None:
        report = await asyncio.shield(application.jobs.taken_over)
        if not self.taken_over.done():
            self.taken_over.set_result(report.seconds)

    def report_takeover(self) -> None:
        """Report the takeover once, after its end and after the event that names the leader."""
        if self.application:
            self.application.jobs.report_takeover()

    def _job_context(
        self, stored: StoredApplication, record: ApplicationRecord, plans: ExecutionPlanStore
    ) -> JobMasterContext:
        context, around = self._context, self._context.around
        settings = context.settings_of(record)
        return JobMasterContext(
            term=context.term,
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
            resources=context.resources,
            clock=around.clock,
            chance=around.chance,
            register=around.services.register,
            checkpoints=settings.checkpoints,
            record=record,
            reporter=around.reporter,
            incarnation=context.incarnation,
            attention=context.attention,
            # An application may allow itself less than the cluster does, and no more.
            jobs_max=min(settings.jobs_max, context.settings.jobs_max),
            history=settings.cleanup.history,
            no_retry=settings.no_retry,
            priority=_priority(record),
            ended_runs=context.ended_runs,
        )

    def _settings(
        self, stored: StoredApplication, record: ApplicationRecord
    ) -> ApplicationSettings:
        around, settings = self._context.around, self._context.settings_of(record)
        services = around.services

        async def lay_out() -> Ground:
            directory = await services.storage.run(
                code.lay_out,
                services.storage.blocking,
                services.locations.cluster,
                stored.body.directory,
                record.artifacts,
            )
            laid_out = LaidOut(str(directory), record.artifacts, record.profile.conf)
            python = await around.interpreters.python_for(self.application_id, laid_out)
            return Ground(str(directory), python)

        return ApplicationSettings(
            strategy=settings.strategy,
            policy=settings.terminate_on_job_failure,
            unreached_grace_s=settings.unreached_grace_s,
            redacted_keys=settings.redacted_keys,
            lay_out=lay_out,
        )


async def _clean_ended_jobs(application: Application, cleanup: Cleanup) -> None:
    """Clean up after each job as soon as its result is durable."""
    async with asyncio.TaskGroup() as group:  # A failing job does not delay the others.
        for job_id, entry in list(application.jobs.entries.items()):
            if entry.result and not entry.result.cleaned:
                group.create_task(cleanup.clean_job(job_id))
        while True:
            group.create_task(cleanup.clean_job(await application.jobs.ended.get()))


def _priority(record: ApplicationRecord) -> int:
    """Return the priority that the application was submitted with."""
    return options.PRIORITY.parse(record.configuration.get(options.PRIORITY.key, "0"))
