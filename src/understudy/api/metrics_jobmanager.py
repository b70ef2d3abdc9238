"""Metrics of a JobManager: its own terms, and the cluster while it leads.

A standby reports no jobs, slots or TaskManagers, as it knows none. So the sum over all JobManagers
counts each of them once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from understudy.api import answers, metrics, views
from understudy.api.answers import Operation, Routes
from understudy.api.endpoint import METRICS_PATH
from understudy.api.leading import Leading
from understudy.api.metrics import counter, counters, gauge, gauges, histogram
from understudy.api.views import UNREADABLE, ApplicationFacts, JobLive
from understudy.core import job
from understudy.jobmanager.dispatcher import Dispatcher
from understudy.jobmanager.effort import CleanupView
from understudy.jobmanager.linked_application import LinkedApplication
from understudy.jobmanager.notices import FATES
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.model import ApplicationStatus, JobStatus, Term

TASK_STATES = ("pending", "failing", "given_up")
"""States of cleanup tasks: not failed so far, to be tried again, left to a person."""


def routes(leading: Leading) -> Routes:
    """Return the route of ``/metrics``; none if metrics are switched off.

    Each JobManager answers for itself: a request is never forwarded to the leader.
    """
    manager = leading.manager
    if not leading.settings.reports_metrics:
        return []
    registry = metrics.registry_of(
        "jobmanager", manager.me.name, manager.around.services, JobManagerMetrics(leading)
    )

    async def endpoint(request: Request) -> Response:
        return metrics.scraped(registry, request)

    return [Operation("GET", METRICS_PATH, endpoint, "Metrics of this process.", answers.TEXT)]


class JobManagerMetrics(Collector):
    """Metrics of one JobManager, leading or standing by."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of this process, and of the cluster while it leads."""
        manager = self._leading.manager
        yield from self._terms()
        if manager.term is None:
            return
        resources, dispatcher = manager.term.resources, manager.term.dispatcher
        standbys = manager.standbys.values()
        yield gauge("understudy_standbys", "Standbys that attend to this leader.", len(standbys))
        yield gauge(
            "understudy_standbys_ready",
            "Standbys with a warm process for main.",
            sum(one.attend.ready for one in standbys),
        )
        yield from _of_resources(resources)
        yield from self._of_applications(dispatcher)
        yield from _of_checkpoints(dispatcher, manager.around.clock.wall())
        yield from _of_cleanup(dispatcher)
        yield gauge(
            "understudy_attention",
            "What this leader has met that needs a person.",
            len(dispatcher.attention),
        )

    def _terms(self) -> Iterator[Metric]:
        manager, counts = self._leading.manager, self._leading.manager.counts
        yield gauge("understudy_leading", "1 while this process leads.", self._term() > 0)
        followed = manager.leader.term if manager.leader else 0
        yield gauge(
            "understudy_term",
            "The term in which this process leads, else that of the leader it follows.",
            self._term() or followed,
        )
        yield gauge(
            "understudy_main_warm",
            "1 while a process for main waits here, as a standby's must.",
            manager.around.mains.ready,
        )
        yield counter(
            "understudy_leaderships_total",
            "Terms in which this process served.",
            counts.leaderships,
        )
        yield counter(
            "understudy_takeovers_total",
            "Takeovers by this process that are over.",
            counts.takeovers.count,
        )
        yield histogram(
            "understudy_takeover_seconds",
            "From the loss of the last leader until its jobs were settled.",
            {(): counts.takeovers},
        )
        yield counters(
            "understudy_takeover_jobs_total",
            "Jobs in takeovers, by what became of them.",
            {(fate,): counts.jobs[fate] for fate in FATES},
            ("fate",),
        )

    def _term(self) -> Term:
        term = self._leading.manager.term
        return term.number if term else 0

    def _of_applications(self, dispatcher: Dispatcher) -> Iterator[Metric]:
        known = [facts for one in dispatcher.applications.values() if (facts := _facts(one))]
        yield gauges(
            "understudy_applications",
            "Applications that this leader knows, ended ones too, by state.",
            _applications(dispatcher, known),
            ("state",),
        )
        states: dict[tuple[str, ...], float] = {(status.value,): 0 for status in JobStatus}
        attempts = 0
        for facts in known:
            for job_id, entry in facts.entries.items():
                status = entry.result.status if entry.result else views.job_status(facts, job_id)
                states[status.value,] += 1
                attempts += max(0, entry.attempt - 1)
        yield gauges(
            "understudy_jobs", "Jobs of the applications that are not over, by state.", states,
            ("state",),
        )  # fmt: skip
        yield counter(
            "understudy_job_restarts_total",
            "Attempts of these jobs after the first of each, under all leaders.",
            attempts,
        )


def _facts(linked: LinkedApplication) -> ApplicationFacts | None:
    """Return the facts of an application that counting needs; None while it is parked.

    Of ended jobs, which may be thousands, only facts in memory.
    """
    if application := linked.application:
        jobs = application.jobs
        live = {
            job_id: JobLive(job.status_of(master.state))
            for job_id, master in jobs.masters.items()
            if not master.done.is_set()
        }
        body = application.stored.body
        return ApplicationFacts(body, jobs.entries, application.status, 0.0, live)
    if cleanup := linked.cleanup:
        return ApplicationFacts(cleanup.body, cleanup.jobs, cleanup.body.status, 0.0)
    return None


def _applications(
    dispatcher: Dispatcher, known: list[ApplicationFacts]
) -> Mapping[tuple[str, ...], float]:
    states: dict[tuple[str, ...], float] = {(status.value,): 0 for status in ApplicationStatus}
    states[UNREADABLE,] = 0
    current = {facts.body.application_id for facts in known}
    for facts in known:
        states[facts.status.value,] += 1
    if registry := dispatcher.registry:
        for stone in registry.tombstones.values():
            if stone.application_id not in current:
                states[stone.status.value,] += 1
        unreadable = dispatcher.attention.keys() & registry.applications.keys() - current
        states[UNREADABLE,] += len(unreadable)
    return states


def _of_checkpoints(dispatcher: Dispatcher, now: float) -> Iterator[Metric]:
    """Yield numbers over all jobs: a series per job would mean new series with each run."""
    executed = [one.application for one in dispatcher.applications.values() if one.application]
    masters = [master for one in executed for master in one.jobs.masters.values()]
    bodies = [master.checkpoints.body for master in masters]
    yield counters(
        "understudy_checkpoints_total",
        "Checkpoints of the applications' jobs, and attempts that went on from some, under all "
        "leaders.",
        {
            ("completed",): sum(body.completed_total for body in bodies),
            ("failed",): sum(body.failed_total for body in bodies),
            ("restored",): sum(body.restored_total for body in bodies),
        },
        ("state",),
    )
    yield gauge(
        "understudy_checkpoints_retained",
        "Checkpoints that the register holds of these jobs.",
        sum(len(body.completed) for body in bodies),
    )
    last = [
        master.checkpoints.body.completed[-1]
        for master in masters
        if master.checkpoints.body.completed and not master.done.is_set()
    ]
    if not last:
        return
    yield gauge(
        "understudy_checkpoint_last_number",
        "The highest number of a checkpoint of a running job.",
        max(one.number for one in last),
    )
    yield gauge(
        "understudy_checkpoint_last_age_seconds",
        "Since the last checkpoint of a running job; of several jobs, the longest.",
        max(max(0.0, now - one.completed_at) for one in last),
    )
    yield gauge(
        "understudy_checkpoint_last_duration_seconds",
        "How long the last checkpoint of a running job took; of several jobs, the longest.",
        max(one.duration_s for one in last),
    )
    yield gauge(
        "understudy_checkpoint_last_size_bytes",
        "Size of the last checkpoints of the jobs that go on, together.",
        sum(one.size for one in last),
    )


def _of_resources(resources: ResourceManager) -> Iterator[Metric]:
    views_ = resources.taskmanagers.values()
    connected = sum(view.link is not None for view in views_)
    yield gauges(
        "understudy_taskmanagers",
        "TaskManagers that have registered and are not known dead.",
        {("connected",): connected, ("silent",): len(views_) - connected},
        ("state",),
    )
    slots = Counter(metrics.slot_states(0, ()))
    drivers = Counter(metrics.driver_states(()))
    for view in views_:
        slots.update(metrics.slot_states(view.registration.slots, view.drivers))
        drivers.update(metrics.driver_states(view.drivers))
    yield gauges("understudy_slots", "Slots of all TaskManagers, by state.", slots, ("state",))
    yield gauges(
        "understudy_drivers",
        "Drivers of all TaskManagers, by state, in a slot or to spare.",
        drivers,
        ("state", "seat"),
    )
    yield gauge(
        "understudy_attempts_running",
        "Attempts in drivers, as TaskManagers have told.",
        sum(bool(driver.job_id) for view in views_ for driver in view.drivers),
    )
    yield gauge(
        "understudy_jobs_waiting_for_slot", "Jobs that wait for a slot.", len(resources.waiting())
    )
    yield gauge(
        "understudy_jobs_waiting_for_executors",
        "Jobs in a slot to which the Spark cluster has given no executors.",
        sum(bool(driver.waits) for view in views_ for driver in view.drivers),
    )


def _of_cleanup(dispatcher: Dispatcher) -> Iterator[Metric]:
    cleanups = [one.cleanup for one in dispatcher.applications.values() if one.cleanup]
    tasks = [view for cleanup in cleanups for view in cleanup.open.values()]
    states: dict[tuple[str, ...], float] = {(state,): 0 for state in TASK_STATES}
    for view in tasks:
        states[_task_state(view),] += 1
    yield gauges(
        "understudy_cleanup_tasks", "What is still to be cleaned up, by state.", states, ("state",)
    )
    yield counter(
        "understudy_cleanup_failures_total",
        "Tries of cleanup tasks that failed in this term.",
        dispatcher.cleanup_failures + sum(cleanup.failures for cleanup in cleanups),
    )


def _task_state(view: CleanupView) -> str:
    if view.given_up:
        return "given_up"
    return "failing" if view.failures else "pending"
