"""``python -m benchmarks.zookeeper``: measure all three on one ZooKeeper, and write the report.

A run that measures less than everything writes below ``out`` unless it is told where to.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.beside_server import Page
from benchmarks.zookeeper import failover, flink, writes
from tests.support.zookeeper import Server


def _start(place: Path) -> Server:
    flink.jars()
    return Server(place / "zookeeper", fsync=True)


def beside(server: Server) -> str:
    """Return which versions of the others are measured with."""
    serving = server.serving()
    assert serving is not None, "the server does not serve"
    return f", Flink {flink.version()}, ZooKeeper {serving.version}, Java {flink.java()}"


PAGE = Page(
    "zookeeper",
    "Benchmarks: beside Flink and Spark on one ZooKeeper",
    {"failover": failover.run, "writes": writes.run},
    _start,
    beside,
)

if __name__ == "__main__":
    sys.exit(PAGE.main(__doc__))
