"""Options of metrics and where they are scraped."""

from __future__ import annotations

from understudy.config.option import PORTS, TEXT, WORDS, Kind, Option

PROMETHEUS = "prom"


def _reporters(text: str) -> tuple[str, ...]:
    names = tuple(name.lower() for name in WORDS.parse(text))
    if any(name != PROMETHEUS for name in names):
        raise ValueError(f"{PROMETHEUS} (the only reporter there is), or nothing, for none")
    return names


REPORTERS = Option(
    "metrics.reporters",
    Kind(f"List of: {PROMETHEUS}", _reporters, takes_lists=True),
    PROMETHEUS,
    "The reporters of metrics. prom: Prometheus scrapes /metrics of each JobManager, at its REST "
    "port, and of each TaskManager, at metrics.reporter.prom.port. Empty: none, and TaskManagers "
    "open no port.",
    "unset there, which means all that are configured",
)
METRICS_PORT = Option(
    "metrics.reporter.prom.port",
    PORTS,
    "9249-9348",
    "The ports that a TaskManager tries for its metrics, in order; 0 is any free one. If none is "
    "free, the TaskManager warns and continues without. /taskmanagers shows the port in use. "
    "JobManagers answer at their REST port.",
    "9249 there, of JobManagers too: several TaskManagers of one host need several",
)
TASKMANAGER_BIND_HOST = Option(
    "taskmanager.bind-host",
    TEXT,
    "127.0.0.1",
    "The address at which a TaskManager serves its metrics; it opens no other port. An address "
    "beyond loopback needs security.secret-file; scrapers then send the token, as for REST.",
    "0.0.0.0 there, for all ports of a TaskManager",
)
