"""Metrics for Prometheus: each process reports its own state when it is scraped.

Nothing is kept up to date for them: a collector reads the current state during the scrape, and the
few numbers that only grow (``LeaderCounts``, ``DriverCounts``, ``ha.metered``). It runs
in the event loop from beginning to end and never waits, so its values are consistent. Each registry
belongs to one process; nothing here is global.

Names begin with ``understudy_``, units are seconds, and labels take few values: never a name or an
id of a job. ``docs/metrics.md`` explains them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from understudy.ha.metered import Durations
from understudy.ha.services import HighAvailabilityServices
from understudy.rpc.messages import DriverReport
from understudy.version import VERSION

SLOT_STATES = {"warm": "free", "busy": "busy", "starting": "starting", "ending": "ending"}
"""A driver's state → the state of its slot."""

NO_DRIVER = "empty"

_TOTAL = "_total"
_NAME = re.compile("[a-z][a-z0-9_]*")

Values = Mapping[tuple[str, ...], float]
"""A sample for each set of label values."""


def scraped(registry: CollectorRegistry, request: Request) -> Response:
    """Return all metrics, in the requested format."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), headers={"content-type": content_type})


def registry_of(
    role: str, name: str, services: HighAvailabilityServices, collector: Collector
) -> CollectorRegistry:
    """Return a process's registry: its own collector, and the metrics of every process."""
    registry = CollectorRegistry()
    registry.register(collector)
    registry.register(ProcessMetrics(role, name, services))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class ProcessMetrics(Collector):
    """Metrics of every process of a cluster: its identity, and its operations on the register."""

    def __init__(self, role: str, name: str, services: HighAvailabilityServices) -> None:
        self._services = services
        self._labels = {
            "cluster": services.cluster_id,
            "role": role,
            "id": name,
            "version": VERSION,
        }

    def collect(self) -> Iterator[Metric]:
        """Yield the identity of the process and its register operations."""
        yield InfoMetricFamily("understudy", "Which process this is.", value=self._labels)
        register = self._services.register
        yield histogram(
            "understudy_register_operation_seconds",
            "Operations of the register, by verb and outcome.",
            {(verb, how.value): took for (verb, how), took in register.operations.items()},
            ("verb", "outcome"),
        )
        yield from of_backend(register.status())


def of_backend(status: Mapping[str, object]) -> Iterator[Metric]:
    """Return the numbers in a backend's status; see `understudy.ha.register.Informative`.

    A name that no metric can have is skipped.
    """
    for name, value in status.items():
        if not isinstance(value, (int, float)) or not _NAME.fullmatch(name):
            continue
        text = "Told by the high-availability backend."
        if name.endswith(_TOTAL):
            yield counter(f"understudy_register_{name}", text, value)
        else:
            yield gauge(f"understudy_register_{name}", text, value)


# --- drivers and slots ----------------------------------------------------------------------------


def slot_states(slots: int, drivers: tuple[DriverReport, ...]) -> dict[tuple[str, ...], float]:
    """Return the number of slots of one TaskManager in each state, zeros included."""
    seated = {driver.slot: driver.state for driver in drivers if driver.slot is not None}
    found: dict[tuple[str, ...], float] = {(state,): 0 for state in SLOT_STATES.values()}
    found[NO_DRIVER,] = 0
    for number in range(1, slots + 1):
        found[SLOT_STATES[seated[number]] if number in seated else NO_DRIVER,] += 1
    return found


def driver_states(drivers: tuple[DriverReport, ...]) -> dict[tuple[str, ...], float]:
    """Return the number of drivers in each state, in slots and as spares, zeros included."""
    found: dict[tuple[str, ...], float] = {
        (state, seat): 0 for state in SLOT_STATES for seat in ("slot", "spare")
    }
    for driver in drivers:
        found[driver.state, "spare" if driver.slot is None else "slot"] += 1
    return found


# --- families -------------------------------------------------------------------------------------


def gauge(name: str, text: str, value: float) -> Metric:
    """Return a number that goes up and down."""
    return GaugeMetricFamily(name, text, value=value)


def gauges(name: str, text: str, values: Values, labels: tuple[str, ...]) -> Metric:
    """Return numbers that go up and down, by labels."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def counter(name: str, text: str, value: float) -> Metric:
    """Return a number that grows, until its process ends."""
    return CounterMetricFamily(name, text, value=value)


def counters(name: str, text: str, values: Values, labels: tuple[str, ...]) -> Metric:
    """Return numbers that grow, by labels."""
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def histogram(
    name: str,
    text: str,
    values: Mapping[tuple[str, ...], Durations],
    labels: tuple[str, ...] = (),
) -> Metric:
    """Return the distribution of durations."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for key, took in values.items():
        below, buckets = 0, []
        for bound, count in zip((*took.bounds, float("inf")), took.counts, strict=True):
            below += count
            buckets.append((_shown(bound), below))
        family.add_metric(key, buckets, took.sum_s)
    return family


def _shown(bound: float) -> str:
    return "+Inf" if bound == float("inf") else str(float(bound))
