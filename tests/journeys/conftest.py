"""Fixtures of the journeys: a place of one's own, runs that are ended, nothing left behind."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, Run
from tests.kubernetes.control_plane import kubernetes
from tests.support.kubernetes import kubeconfig_for
from tests.support.order import longest_first
from tests.support.s3 import BUCKET, Moto, moto
from tests.support.zookeeper import Server, zookeeper

__all__ = ["kubernetes", "moto", "zookeeper"]

Start = Callable[..., Run]

LONGEST = ("cluster_kills", "spark_writes", "spark_sessions", "spark_streaming", "pages", "unclean")
"""Files that begin first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        choices=["filesystem", "zookeeper", "kubernetes"],
        default="filesystem",
        help="What all journeys coordinate by, unless they say it themselves.",
    )
    parser.addoption(
        "--storage",
        choices=["local", "s3"],
        default="local",
        help="Where all journeys keep their data; s3 needs --backend zookeeper.",
    )


def pytest_configure(config: pytest.Config) -> None:
    on_s3 = config.getoption("--storage") == "s3"
    if on_s3 and config.getoption("--backend") == "filesystem":
        raise pytest.UsageError("--storage s3 needs --backend zookeeper")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about the files of the other backend, or of a local directory.

    The longest begin first, so far as pytest-xdist keeps that order.
    """
    marks = {"filesystem"} if config.getoption("--backend") != "filesystem" else set()
    if config.getoption("--storage") == "s3":
        marks |= {"local_storage"}
    others = [item for item in items if any(map(item.get_closest_marker, marks))]
    kept = [item for item in items if item not in others]
    items[:] = longest_first(kept, LONGEST)
    config.hook.pytest_deselected(items=others)


@pytest.fixture(scope="session", autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start what the chosen backend needs."""
    if request.config.getoption("--backend") == "zookeeper":
        server: Server = request.getfixturevalue("zookeeper")
        harness.quorum = server.connect_string
    if request.config.getoption("--backend") == "kubernetes":
        harness.kubeconfig = str(kubeconfig_for(request, "kubernetes"))
    if request.config.getoption("--storage") == "s3":
        s3: Moto = request.getfixturevalue("moto")  # Found by the environment that it sets.
        harness.bucket = f"s3://{BUCKET}"
        assert s3.endpoint
    yield
    shutil.rmtree(harness.configurations(), ignore_errors=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the directory in which a test's application runs."""
    return tmp_path


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    """Return a function that starts a run of an application from ``apps``.

    A run has no standby unless a test asks for one: each costs a second of processor time.
    """
    runs: list[Run] = []

    def begin(
        app: str,
        *arguments: str,
        options: tuple[str, ...] | list[str] = (),
        spark: bool = False,
        standbys: int = 0,
    ) -> Run:
        script = harness.put_app(place, app)
        kind = ("--master", "local[2]") if spark else SESSION_LESS
        size = ("--jobmanagers", str(1 + standbys))
        line = [*COMMAND, "run-application", "--json", *kind, *size, *options, str(script)]
        line += arguments
        run = Run(line, place, place / f"stderr-{len(runs)}.log")
        run.alone = not standbys and "--jobmanagers" not in options
        runs.append(run)
        return run

    yield begin
    for run in runs:
        harness.end(run)


@pytest.fixture
def nothing_left(place: Path) -> Callable[[], None]:
    """Return a check that no process and no scratch of this test is left."""

    def check() -> None:
        deadline = time.monotonic() + 30
        while (left := harness.processes_of(place)) and time.monotonic() < deadline:
            time.sleep(0.1)

        assert left == {}

    return check
