"""Metrics of a TaskManager, and the small server that answers.

The server never delays the TaskManager: if no port is free it logs a warning, and the end waits for
no client. It serves only ``GET /metrics`` and the probes of a kubelet. In a cluster with a secret,
metrics need the token, as REST does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from understudy.api import answers, metrics, probes
from understudy.api import server as api_server
from understudy.api.bounds import Bounds
from understudy.api.endpoint import METRICS_PATH, MetricsEndpoint
from understudy.api.gate import Doorkeeper, Gate
from understudy.api.metrics import counter, counters, gauge, gauges
from understudy.ha.services import HighAvailabilityServices
from understudy.model import JobStatus
from understudy.process.closing import Closing
from understudy.taskmanager.driver import LOST, DriverCounts, DriverEnd
from understudy.taskmanager.task_manager import TaskManager

CONNECTIONS_MAX = 16
"""Some scrapers and a person; beyond that, the connection that is silent longest is closed."""

_log = logging.getLogger(__name__)


class TaskManagerMetrics(Collector):
    """Metrics of one TaskManager. Names differ from a leader's, which cover all TaskManagers."""

    def __init__(self, manager: TaskManager) -> None:
        self._manager = manager

    def collect(self) -> Iterator[Metric]:
        """Yield the slots, drivers and attempts of this TaskManager, and its leader's term."""
        facts = self._manager.facts
        yield gauge(
            "understudy_taskmanager_leader_known",
            "1 while a leader is known.",
            facts.leader is not None,
        )
        yield gauge(
            "understudy_taskmanager_registered",
            "1 while a leader has taken this TaskManager in.",
            facts.registered,
        )
        yield gauge("understudy_term", "The highest term that was obeyed.", facts.term)
        if facts.silent_s is not None:
            yield gauge(
                "understudy_taskmanager_heartbeat_age_seconds",
                "Since the request was sent that a leader answered last.",
                facts.silent_s,
            )
        yield gauges(
            "understudy_taskmanager_slots",
            "Slots of this TaskManager, by state.",
            metrics.slot_states(facts.slots, facts.drivers),
            ("state",),
        )
        yield gauges(
            "understudy_taskmanager_drivers",
            "Drivers of this TaskManager, by state, in a slot or to spare.",
            metrics.driver_states(facts.drivers),
            ("state", "seat"),
        )
        yield gauge(
            "understudy_taskmanager_attempts_running",
            "Attempts in drivers.",
            sum(bool(driver.job_id) for driver in facts.drivers),
        )
        yield gauge(
            "understudy_taskmanager_attempts_unrecorded",
            "Attempts that have ended, and no leader has said yet that it is recorded.",
            facts.unrecorded,
        )
        yield from _of_counts(facts.counts)


def _of_counts(counts: DriverCounts) -> Iterator[Metric]:
    yield counter(
        "understudy_taskmanager_driver_starts_total", "Drivers that were started.", counts.starts
    )
    yield counter(
        "understudy_taskmanager_driver_start_failures_total",
        "Drivers that could not be started, or were never warm.",
        counts.start_failures,
    )
    yield counters(
        "understudy_taskmanager_driver_ends_total",
        "Drivers that are no more, by reason.",
        {(end.value,): counts.ends[end] for end in DriverEnd},
        ("reason",),
    )
    yield counter(
        "understudy_taskmanager_attempts_total",
        "Attempts that were handed to a driver.",
        counts.attempts,
    )
    ends = [*(status.value.lower() for status in JobStatus if status.is_terminal), LOST]
    yield counters(
        "understudy_taskmanager_attempt_ends_total",
        "Attempts that have ended, by status; lost: their driver died.",
        {(end,): counts.attempt_ends[end] for end in ends},
        ("status",),
    )


# --- the server -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(
    registry: CollectorRegistry,
    endpoint: MetricsEndpoint | None,
    unready: Callable[[], str] = lambda: "",
) -> AsyncIterator[None]:
    """Serve metrics and probes during the block; a failure of the server is only logged.

    ``unready``: why the process is not ready, empty if it is. Raises `ConfigurationError` for bad
    certificates.
    """
    if endpoint is None:
        yield
        return
    app = _application(registry, endpoint, unready)
    server = api_server.server(app, endpoint.security.server(), CONNECTIONS_MAX)
    task = asyncio.create_task(server.serve(sockets=[endpoint.listening]))
    task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        # Ended at once: the server would check for a request to end only each 0.1 s.
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with Closing("metrics") as closing:
            with closing.step("their server"):
                await server.close()
            for connection in list(server.server_state.connections):
                with closing.step("a connection"):
                    connection.shutdown()
            with closing.step("their socket"):
                endpoint.listening.close()


def serving_manager(
    manager: TaskManager, name: str, services: HighAvailabilityServices, endpoint: MetricsEndpoint
) -> AbstractAsyncContextManager[None]:
    """Serve the metrics of a TaskManager's process."""
    registry = metrics.registry_of("taskmanager", name, services, TaskManagerMetrics(manager))

    def unready() -> str:
        return "" if manager.facts.registered else "no leader has registered this TaskManager"

    return serving(registry, endpoint, unready)


def _application(
    registry: CollectorRegistry, endpoint: MetricsEndpoint, unready: Callable[[], str]
) -> ASGIApp:
    async def scraped(request: Request) -> Response:
        return metrics.scraped(registry, request)

    found = [Route(METRICS_PATH, scraped, methods=["GET"])]
    found += [Route(one.path, one.handler, methods=["GET"]) for one in probes.routes(unready)]
    app: ASGIApp = Bounds(Starlette(routes=found, exception_handlers=answers.WITHOUT_A_ROUTE))
    if tokens := endpoint.security.tokens():
        app = Doorkeeper(app, tokens, "")
    return Gate(app, endpoint.hosts)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception():
        _log.warning("metrics are served no more", exc_info=task.exception())
