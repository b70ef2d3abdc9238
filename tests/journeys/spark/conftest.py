"""Runs with real Spark that several tests look at: started once a module, ended in any case."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, Run
from tests.support.spark_cluster import SparkCluster, shared_spark_cluster, spark_cluster

__all__ = ["shared_spark_cluster", "spark_cluster"]

APPS = Path(__file__).parent / "apps"

SMALL = (
    *("--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2"),
    *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
)
"""Enough to compute with, in JVMs that live too short to be worth much compiling."""

SMALL_EXECUTORS = (
    *("--conf", "spark.executor.memory=512m"),
    *("--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
)
"""The same for a cluster's executors. Their number and their cores are as by default."""

Begin = Callable[..., Run]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory in which the application of a module runs."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def begin(ground: Path) -> Iterator[Begin]:
    """Return a function that starts a run of an application from ``apps``."""
    runs: list[Run] = []

    def start(
        app: str, *arguments: str, options: tuple[str, ...] = (), place: Path = ground
    ) -> Run:
        scratch = ("-D", f"io.tmp.dirs={place / 'tmp'}")
        line = [*COMMAND, "run-application", "--json", *SMALL, *scratch, *options]
        run = Run([*line, str(put(place, app)), *arguments], place, place / "stderr.log")
        runs.append(run)
        return run

    yield start
    for run in runs:
        harness.end(run)


def on(cluster: SparkCluster) -> tuple[str, ...]:
    """Return the options with which a run's executors are on a cluster."""
    return ("--master", cluster.url, *SMALL_EXECUTORS)


def put(ground: Path, *names: str) -> Path:
    """Copy applications, or the modules beside them, to where they run; return the first."""
    for name in names:
        target = ground / name
        if (APPS / name).is_dir():
            shutil.copytree(APPS / name, target)
        else:
            shutil.copy(APPS / name, target)
    return ground / names[0]


def left_behind(ground: Path) -> dict[int, str]:
    """Return the processes that are left of a run, once they had the time to be gone."""
    deadline = time.monotonic() + 10
    while (left := harness.processes_of(ground)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left
