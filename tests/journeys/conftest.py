"""Fixtures of the journeys: a place of one's own, runs that are ended, nothing left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, Run

Start = Callable[..., Run]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the directory in which a test's application runs."""
    return tmp_path


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    """Return a function that starts a run of an application from ``apps``."""
    runs: list[Run] = []

    def begin(
        app: str, *arguments: str, options: tuple[str, ...] | list[str] = (), spark: bool = False
    ) -> Run:
        script = harness.put_app(place, app)
        kind = ("--master", "local[2]") if spark else SESSION_LESS
        line = [*COMMAND, "run-application", "--json", *kind, *options, str(script), *arguments]
        run = Run(line, place, place / f"stderr-{len(runs)}.log")
        runs.append(run)
        return run

    yield begin
    for run in runs:
        harness.end(run)


@pytest.fixture
def nothing_left(place: Path) -> Callable[[], None]:
    """Return a check that no process and no scratch of this test is left."""

    def check() -> None:
        deadline = time.monotonic() + 10
        while (left := harness.processes_of(place)) and time.monotonic() < deadline:
            time.sleep(0.1)

        assert left == {}

    return check
