"""Metrics: exact numbers after known stories, as a scraper reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from tests.ha import ground
from tests.jobmanager.test_resource_manager import Tenant
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.api import metrics
from understudy.api.leading import Leading
from understudy.api.metrics_jobmanager import JobManagerMetrics, routes
from understudy.api.rest import Rest
from understudy.clock import Clock
from understudy.config import Configuration
from understudy.ha.election import Leadership
from understudy.ha.registry import Shutdown
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.cleanup import Cleanup, CleanupSettings
from understudy.jobmanager.dispatcher import Binding, Dispatcher
from understudy.jobmanager.effort import CleanupStrategy, CleanupView
from understudy.jobmanager.job_manager import (
    CountingReporter,
    JobManager,
    LeaderCounts,
    LeadingTerm,
    StandbyView,
)
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.jobmanager.surroundings import Surroundings
from understudy.model import (
    ApplicationId,
    ApplicationStatus,
    Incarnation,
    JobEntry,
    JobId,
    JobResultEntry,
    JobStatus,
    LeaderRecord,
    Pointer,
    RegistryBody,
    RunId,
    Tombstone,
)
from understudy.process.reporter import Silent
from understudy.rpc import messages
from understudy.rpc.local import LocalLink, link_pair
from understudy.rpc.messages import DriverReport, LinkMessage

GONE = Pointer(path="gone", digest="sha256:0", size=0)
ONE, TWO = Incarnation("taskmanager-1"), Incarnation("taskmanager-2")


class Mains:
    """A process of main waits."""

    ready = True


class Locks:
    """Nobody dies here."""

    async def dead(self, incarnation: Incarnation) -> None:
        """See `Locks.dead`."""
        await asyncio.Event().wait()


@dataclass
class Manager:
    """What a JobManager shows of itself; a test sets it."""

    around: Surroundings
    me: LeaderRecord
    leader: LeaderRecord | None = None
    waits_for_run: bool = False
    term: LeadingTerm | None = None
    standbys: dict[Incarnation, StandbyView] = field(default_factory=dict)
    counts: LeaderCounts = field(default_factory=LeaderCounts)
    shutdown: Shutdown = field(default_factory=Shutdown)

    def lead(self, term: int) -> None:
        """Lead from now on."""
        vacant = LeaderRecord(holder=Incarnation(""), term=0, session="")
        leadership = Leadership(term, "session", vacant, None, "it died")
        resources = ResourceManager(
            term, 40.0, cast("Any", Locks()), self.around.clock, lambda: None
        )
        binding = Binding(RunId("run-1"), ephemeral=False, submission=None)
        dispatcher = Dispatcher(self.around, binding, leadership, resources)
        self.term = LeadingTerm(leadership, resources, dispatcher)


def manager(
    settings: Mapping[str, str] | None = None,
    services: HighAvailabilityServices | None = None,
    clock: Clock | None = None,
) -> Manager:
    """Return a JobManager that stands by."""
    around = Surroundings(
        me=Incarnation("me"),
        name="jm-1",
        rest="",
        configuration=Configuration(dict(settings or {})),
        services=services or ground.services(Durable()),
        mains=cast("Any", Mains()),
        locks=cast("Any", Locks()),
        reporter=Silent(),
        clock=clock or virtual_clock(),
        chance=cast("Any", None),
    )
    me = LeaderRecord(holder=around.me, term=0, session="", name=around.name)
    return Manager(around, me)


def leading(one: Manager) -> Leading:
    """Return what REST knows of it."""
    return Leading(cast("JobManager", one))


def scrape(registry: CollectorRegistry) -> dict[str, float]:
    """Read all samples as a scraper does; labels stand in braces, sorted."""
    request = Request({"type": "http", "method": "GET", "path": "/metrics", "headers": []})
    text = bytes(metrics.scraped(registry, request).body).decode()
    return read(text)


def read(text: str) -> dict[str, float]:
    """Parse the text format."""
    return {
        sample.name + shown(sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def shown(labels: Mapping[str, str]) -> str:
    """Return labels as a key."""
    return "{" + ",".join(f"{name}={labels[name]}" for name in sorted(labels)) + "}"


def only(samples: Mapping[str, float], prefix: str) -> dict[str, float]:
    """Return those of one family that are not 0, by what follows its name."""
    return {
        name.removeprefix(prefix): value
        for name, value in samples.items()
        if name.startswith((f"{prefix}{{", prefix + "_")) and value
    }


def of(one: Manager) -> dict[str, float]:
    """Scrape a JobManager."""
    registry = CollectorRegistry()
    registry.register(JobManagerMetrics(leading(one)))
    return scrape(registry)


def test_a_standby_tells_of_itself_and_not_of_the_cluster() -> None:
    async def story() -> dict[str, float]:
        one = manager()
        one.leader = LeaderRecord(holder=Incarnation("other"), term=7, session="")
        return of(one)

    actual = run_virtual(story())

    assert (0, 7, 1) == tuple(
        actual[f"understudy_{name}{{}}"] for name in ("leading", "term", "main_warm")
    )
    assert not [name for name in actual if name.startswith(("understudy_jobs", "understudy_slots"))]


def test_terms_and_takeovers_are_counted_as_they_are_told() -> None:
    async def story() -> dict[str, float]:
        one = manager()
        told = CountingReporter(Silent(), one.counts, lambda _: None)
        told.event("leader", id="jm-1", rest="", term=1)
        told.event("leader", id="jm-1", rest="", term=3)
        told.event(
            "takeover",
            seconds=0.25,
            adopted=["a", "b"],
            restarted=["c"],
            skipped=[],
            displaced=[],
            term=3,
        )
        told.event(
            "takeover", seconds=70.0, adopted=["a"], restarted=[], skipped=[], displaced=[], term=4
        )
        one.lead(3)
        return of(one)

    actual = run_virtual(story())

    assert 1 == actual["understudy_leading{}"]
    assert 3 == actual["understudy_term{}"]
    assert 2 == actual["understudy_leaderships_total{}"]
    assert 2 == actual["understudy_takeovers_total{}"]
    assert (2, 70.25) == (
        actual["understudy_takeover_seconds_count{}"],
        actual["understudy_takeover_seconds_sum{}"],
    )
    assert [0, 1, 1, 2] == [
        actual[f"understudy_takeover_seconds_bucket{{le={bound}}}"]
        for bound in ("0.1", "0.25", "60.0", "+Inf")
    ]
    assert {"{fate=adopted}": 3, "{fate=restarted}": 1} == only(
        actual, "understudy_takeover_jobs_total"
    )


def driver(name: str, state: str, slot: int | None, job: str = "") -> DriverReport:
    """Return what a TaskManager says of a driver."""
    return DriverReport(
        driver=Incarnation(name), slot=slot, state=state, application_id="a",
        profile=Tenant("a").purpose.profile,
        driver_pid=1, guardian_pid=2, jvm_pid=3, job_id=job, attempt=int(bool(job)),
    )  # fmt: skip


DRIVERS = (
    driver("d1", "busy", 1, "job"),
    driver("d2", "warm", 2),
    driver("d3", "ending", 3),
    driver("d4", "warm", None),
    driver("d5", "starting", None),
)
"""Of a TaskManager with four slots."""


def test_slots_and_drivers_are_summed_over_all_taskmanagers_and_every_state_is_named() -> None:
    async def story() -> dict[str, float]:
        one = manager()
        one.lead(1)
        assert one.term is not None
        jobs = tuple("12345")
        one.term.resources.serve(Tenant("a", jobs))
        one.term.resources.open()
        registered = [await register(one.term.resources, who) for who in (ONE, TWO)]
        registered[1][0].close()
        await asyncio.sleep(0.1)
        for job in jobs:  # Two drivers are warm at each TaskManager.
            one.term.resources.request(ApplicationId("a"), JobId(job))
        return of(one)

    actual = run_virtual(story())

    assert {"{state=connected}": 1, "{state=silent}": 1} == only(actual, "understudy_taskmanagers")
    assert {"{state=busy}": 2, "{state=free}": 2, "{state=ending}": 2, "{state=empty}": 2} == only(
        actual, "understudy_slots"
    )
    assert 0 == actual["understudy_slots{state=starting}"]
    assert {
        "{seat=slot,state=busy}": 2,
        "{seat=slot,state=ending}": 2,
        "{seat=slot,state=warm}": 2,
        "{seat=spare,state=warm}": 2,
        "{seat=spare,state=starting}": 2,
    } == only(actual, "understudy_drivers")
    assert 2 == actual["understudy_attempts_running{}"]
    assert 1 == actual["understudy_jobs_waiting_for_slot{}"]


async def register(
    resources: ResourceManager, who: Incarnation
) -> tuple[LocalLink[LinkMessage], asyncio.Task[None]]:
    """Let a TaskManager register; return its end of the link, and who serves it."""
    ends: tuple[LocalLink[LinkMessage], LocalLink[LinkMessage]] = link_pair(
        who, Incarnation("leader")
    )
    drivers = tuple(replace(one, driver=Incarnation(who + one.driver)) for one in DRIVERS)
    registration = messages.RegisterTaskManager(
        name=who, pid=1, guardian_pid=2, host="here", lock="", slots=4, spares=2,
        drivers=drivers, attempts=(),
    )  # fmt: skip
    serving = asyncio.create_task(resources.converse(ends[1], who, registration))
    await asyncio.sleep(0.01)
    return ends[0], serving


def ended(entry: JobEntry, status: JobStatus) -> JobEntry:
    """Return the job with its result committed."""
    return replace(entry, result=JobResultEntry(status=status, attempt=entry.attempt, source=GONE))


async def cleaning(one: Manager, *entries: JobEntry) -> Cleanup:
    """Let a leader be there for an application with these jobs."""
    stores = one.around.services
    stored = await ground.submitted(stores)
    plans = stores.plans(stored)
    await plans.claim(1)
    for entry in entries:
        await plans.add(1, entry)
    strategy = CleanupStrategy("none", 0, 0.0, 0.0)
    cleanup = Cleanup(stored, plans, stores, 1, CleanupSettings(strategy))
    one.lead(1)
    assert one.term is not None
    linked: Any = SimpleNamespace(application=None, cleanup=cleanup)
    one.term.dispatcher.applications[cleanup.application_id] = linked
    return cleanup


def test_jobs_are_counted_by_state_and_restarts_are_the_attempts_after_the_first() -> None:
    async def story() -> dict[str, float]:
        one = manager()
        await cleaning(
            one,
            ground.job(1, attempt=0),
            ended(ground.job(2), JobStatus.FINISHED),
            ended(ground.job(3, attempt=4), JobStatus.FINISHED),
            ended(ground.job(4, attempt=2), JobStatus.FAILED),
        )
        return of(one)

    actual = run_virtual(story())

    assert {"{state=CREATED}": 1, "{state=FINISHED}": 2, "{state=FAILED}": 1} == only(
        actual, "understudy_jobs"
    )
    assert 4 == actual["understudy_job_restarts_total{}"]
    assert {"{state=CREATED}": 1} == only(actual, "understudy_applications")


def test_applications_that_have_ended_or_cannot_be_read_are_counted() -> None:
    async def story() -> dict[str, float]:
        one = manager()
        await cleaning(one)
        assert one.term is not None
        registry = await one.around.services.registry.read()
        assert registry is not None
        (link,) = registry.applications.values()
        stone = Tombstone(
            application_id=cast("Any", "b"), run_id=RunId("r"), name="", started_at=1, ended_at=2,
            status=ApplicationStatus.FAILED, file=GONE,
        )  # fmt: skip
        one.term.dispatcher.registry = with_others(registry, link, stone)
        one.term.dispatcher.attention["unreadable"] = "its document is damaged"
        one.term.dispatcher.attention["leader"] = "its record was damaged"
        return of(one)

    actual = run_virtual(story())

    assert {"{state=CREATED}": 1, "{state=FAILED}": 1, "{state=UNREADABLE}": 1} == only(
        actual, "understudy_applications"
    )
    assert 2 == actual["understudy_attention{}"]


def with_others(registry: RegistryBody, link: Any, stone: Tombstone) -> RegistryBody:
    """Return the registry with one more application, and a tombstone."""
    applications = {**registry.applications, cast("Any", "unreadable"): link}
    return replace(registry, applications=applications, tombstones={stone.run_id: stone})


def test_what_is_still_to_be_cleaned_up_is_counted_by_state() -> None:
    async def story() -> dict[str, float]:
        one = manager()
        cleanup = await cleaning(one)
        cleanup.open = {
            "a": CleanupView("app", "a"),
            "b": CleanupView("app", "b", failures=2),
            "c": CleanupView("app", "c", failures=3, given_up=True),
            "d": CleanupView("app", "d", failures=1, given_up=True),
        }
        return of(one)

    actual = run_virtual(story())

    assert {"{state=pending}": 1, "{state=failing}": 1, "{state=given_up}": 2} == only(
        actual, "understudy_cleanup_tasks"
    )


def test_tries_of_the_cleanup_that_fail_are_counted() -> None:
    async def story() -> dict[str, float]:
        one = manager()
        cleanup = await cleaning(one, ended(ground.job(1), JobStatus.FINISHED))
        one.around.services.job_results.publish_dirty = full_disk  # type: ignore[assignment]
        trying = asyncio.ensure_future(cleanup.clean_job(ground.job(1).job_id))
        await asyncio.sleep(1)
        cleanup.retry()
        await asyncio.sleep(1)
        trying.cancel()
        return of(one)

    actual = run_virtual(story())

    assert 2 == actual["understudy_cleanup_failures_total{}"]
    assert {"{state=given_up}": 1} == only(actual, "understudy_cleanup_tasks")


async def full_disk(*_: object) -> None:
    """Fail as a write does where there is no space."""
    raise OSError("no space left on device")


def test_a_standby_that_is_ready_is_told_from_one_that_is_not() -> None:
    async def story() -> dict[str, float]:
        one = manager()
        one.lead(1)
        for name, ready in (("a", True), ("b", False), ("c", True)):
            attend = messages.Attend(name=name, pid=1, guardian_pid=2, rest="", ready=ready)
            one.standbys[Incarnation(name)] = StandbyView(Incarnation(name), attend)
        return of(one)

    actual = run_virtual(story())

    assert (3, 2) == (actual["understudy_standbys{}"], actual["understudy_standbys_ready{}"])


def test_each_jobmanager_answers_for_itself_and_hands_nothing_on() -> None:
    async def story() -> dict[str, float]:
        one = manager()
        one.leader = LeaderRecord(
            holder=Incarnation("other"), term=7, session="", rest="http://192.0.2.1:1"
        )
        (route,) = (
            route
            for route in cast("Any", Rest(cast("JobManager", one)).application()).routes
            if getattr(route, "path", "") == "/metrics"
        )
        request = Request({"type": "http", "method": "GET", "path": "/metrics", "headers": []})
        answer = await cast("Any", route).endpoint(request)
        return read(answer.body.decode())

    actual = run_virtual(story())

    assert 0 == actual["understudy_leading{}"]
    assert {"{cluster=flights,id=jm-1,role=jobmanager,version=0.1.0}": 1} == {
        name.removeprefix("understudy_info"): value
        for name, value in actual.items()
        if name.startswith("understudy_info")
    }
    assert actual["process_resident_memory_bytes{}"] > 1_000_000
    assert actual["process_open_fds{}"] > 2


@pytest.mark.parametrize(("reporters", "served"), [("prom", True), ("", False)])
def test_where_nobody_is_to_be_given_metrics_there_is_no_route(
    reporters: str, served: bool
) -> None:
    async def story() -> bool:
        return bool(routes(leading(manager({"metrics.reporters": reporters}))))

    assert served == run_virtual(story())


def test_open_metrics_is_answered_where_it_is_asked_for() -> None:
    async def story() -> tuple[str, bytes]:
        registry = CollectorRegistry()
        registry.register(JobManagerMetrics(leading(manager())))
        accept = (b"accept", b"application/openmetrics-text; version=1.0.0")
        scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": [accept]}
        answer = metrics.scraped(registry, Request(scope))
        return answer.headers["content-type"], bytes(answer.body)

    kind, body = run_virtual(story())

    assert kind.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_names_and_labels_keep_their_rules() -> None:
    async def story() -> CollectorRegistry:
        one = manager()
        await cleaning(one, ended(ground.job(1), JobStatus.FINISHED))
        registry = CollectorRegistry()
        registry.register(JobManagerMetrics(leading(one)))
        return registry

    found = list(run_virtual(story()).collect())

    assert {"understudy"} == {family.name.partition("_")[0] for family in found}
    assert {"state", "seat", "fate", "le"} == {
        label for family in found for sample in family.samples for label in sample.labels
    }
    assert all(family.documentation.endswith(".") for family in found)
