"""The jobs of one application as tenant of slots: what runs, and what is lost, on TaskManagers."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from understudy.core import job, recovery
from understudy.core.drivers import Purpose
from understudy.core.recovery import Inventory
from understudy.jobmanager.application_jobs import ApplicationJobs
from understudy.jobmanager.resource_manager import JobInbox
from understudy.model import Failure, Incarnation, JobId
from understudy.rpc import messages

_log = logging.getLogger(__name__)


class JobSlots:
    """The `Tenant` of the ResourceManager."""

    def __init__(self, jobs: ApplicationJobs) -> None:
        self._jobs = jobs
        self._context = jobs.context
        self._without_drivers: set[Incarnation] = set()
        record = self._context.record
        self._prepare = messages.Prepare(
            application_id=record.application_id,
            run_id=record.run_id,
            cluster=self._context.incarnation,
            directory=self._context.directory,
            profile=record.profile,
            artifacts=record.artifacts,
            ended_runs=self._context.ended_runs(),
        )
        self._purpose = self._prepare.purpose

    @property
    def inboxes(self) -> Mapping[JobId, JobInbox]:
        """Return the JobMasters, which read the messages about their jobs."""
        return self._jobs.masters

    @property
    def prepare(self) -> messages.Prepare:
        """Return what a TaskManager needs to start drivers for this application."""
        return self._prepare

    @property
    def purpose(self) -> Purpose:
        """Return the application and its profile."""
        return self._purpose

    @property
    def priority(self) -> int:
        """Return the priority of the application's jobs for a slot."""
        return self._context.priority

    def owns(self, job_id: JobId) -> bool:
        """Return whether the job is of this application."""
        return job_id in self._jobs.entries

    def is_settled(self, message: messages.AttemptEnded) -> bool:
        """Return whether the job is gone or has its result, or a later attempt is intended."""
        entry = self._jobs.entries.get(message.job_id)
        return entry is None or entry.result is not None or message.attempt < entry.attempt

    def registered(self, taskmanager: Incarnation, reported: tuple[Inventory, ...]) -> None:
        """Compare the reported attempts with the stored ones; stop the unknown ones."""
        verdict = recovery.judge(taskmanager, reported, self._jobs.entries)
        for job_id in verdict.running:
            master = self._jobs.masters[job_id]
            if master.state.placement:
                placement = master.state.placement
                self._context.resources.occupy(job_id, placement, self._purpose)
            master.enqueue(job.Running(self._jobs.entries[job_id].attempt))
        for job_id in verdict.lost:
            attempt = self._jobs.entries[job_id].attempt
            lost = job.Lost(attempt, "its TaskManager does not have it", 0.0)
            # Without a JobMaster, the job is being stored and its attempt is not sent yet.
            if found := self._jobs.masters.get(job_id):
                found.enqueue(lost)
        for item in verdict.foreign:  # Of an attempt that another one has followed.
            stop = messages.StopAttempt(job_id=item.job_id, attempt=item.attempt)
            self._context.resources.send(taskmanager, stop)

    def cannot_start(self, taskmanager: Incarnation, reason: str) -> None:
        """Fail the application once no TaskManager can start a driver."""
        self._without_drivers.add(taskmanager)
        for other, view in self._context.resources.taskmanagers.items():
            if other not in self._without_drivers or any(
                driver.state in {"warm", "busy"} and self._serves(driver) for driver in view.drivers
            ):
                _log.warning("TaskManager %s cannot start drivers: %s", taskmanager[:8], reason)
                return
        self._jobs.broken(Failure(type="DriverStartError", message=reason))

    def _serves(self, driver: messages.DriverReport) -> bool:
        return driver.application_id == self._context.record.application_id

    def taskmanager_lost(self, taskmanager: Incarnation, reason: str) -> None:
        """Report every attempt on the TaskManager as lost."""
        for master in self._jobs.masters.values():
            place = master.state.placement
            if place and place.taskmanager == taskmanager:
                master.enqueue(job.Lost(master.state.attempt, reason, master.ran_s()))
