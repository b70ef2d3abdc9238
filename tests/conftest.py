"""What all tests share: those that start real servers are marked, as their fixtures say."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import durations

STARTS_ONE = ("test_zookeeper_", "test_ensembles")
"""Files whose tests start servers of their own."""

ON_KUBERNETES = Path(__file__).parent / "kubernetes"


def pytest_configure(config: pytest.Config) -> None:
    """Count the seconds of each test, where a part of the suite is run; share one cache."""
    durations.register(config)
    # One archive of Spark's classes for all tests, whatever home they use: built once, it pays.
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))


@pytest.fixture(autouse=True, scope="session")
def _temporary_files_are_of_one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Clusters of tests beside each other have one name, and so one directory of code layouts."""
    tmp_path_factory.getbasetemp()  # Stays after the run, for whoever looks for a failure's cause.
    with tempfile.TemporaryDirectory(prefix="u-") as place, pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", place)  # Short: sockets may lie in it.
        yield


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their parameter: packed ones hold the time, which differs between processes."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs servers, so that the quick tests can be run without."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
        in_file = item.path.name.startswith(STARTS_ONE) or "failure" in item.path.parts
        if in_file or "zookeeper" in fixtures or "zookeeper" in parameters:
            item.add_marker("zookeeper")
        below = item.path.is_relative_to(ON_KUBERNETES)
        if below or "kubernetes" in fixtures or "kubernetes" in parameters:
            item.add_marker("kubernetes")
