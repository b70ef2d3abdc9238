"""A backend of another distribution, installed with pip: a cluster fails over on it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, Run
from tests.support.distributions import sqlite

__all__ = ["sqlite"]

pytestmark = pytest.mark.filesystem


@pytest.fixture
def installed(sqlite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each process that the test starts find the backend."""
    monkeypatch.setenv("PYTHONPATH", str(sqlite))


def settings(place: Path, **more: str) -> list[str]:
    chosen = {"type": "sqlite", "sqlite.directory": str(place / "databases"), **more}
    return [
        word for key, text in chosen.items() for word in ("-D", f"high-availability.{key}={text}")
    ]


def begin(place: Path, *options: str) -> Run:
    script = harness.put_app(place, "three.py")
    line = [*COMMAND, "run-application", "--json", *SESSION_LESS, *options, str(script)]
    return Run(line, place, place / "stderr.log")


@pytest.mark.usefixtures("installed")
def test_a_killed_leader_is_replaced(place: Path, nothing_left: Callable[[], None]) -> None:
    run = begin(place, *settings(place, **{"sqlite.poll-interval": "50 ms"}))
    try:
        run.running("second job")
        driver = run.busy()[1]["driver_pid"]
        os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
        takeover = run.wait("takeover")
        same_driver = run.busy()[1]["driver_pid"] == driver
        run.release()
        code = run.finish()
    finally:
        harness.end(run)

    assert 0 == code
    assert ["second job"] == takeover["adopted"]
    assert same_driver
    assert ["first 1", "long 1", "third 1"] == run.lines("jobs.txt")
    nothing_left()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sqlite.directory": ""}, "high-availability.sqlite.directory is not set"),
        ({"sqlite.poll-interval": "soon"}, "high-availability.sqlite.poll-interval is 'soon'"),
        ({"sqlite.poll-intervall": "1 s"}, "high-availability.sqlite.poll-intervall"),
    ],
)
def test_its_options_are_checked_like_those_of_the_house(
    place: Path, wrong: dict[str, str], said: str
) -> None:
    run = begin(place, *settings(place, **wrong))
    try:
        code = run.finish()
    finally:
        harness.end(run)

    assert 2 == code
    assert said in run.log.read_text()
