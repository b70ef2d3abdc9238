"""A session takes applications, loses its leader, is stopped, and continues."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, SESSION_LESS, Run, command, lines
from tests.journeys.members import until

OPTIONS = (*SESSION_LESS, *harness.impatient())


@pytest.fixture
def session(place: Path) -> Iterator[Path]:
    """Start a session, and return its place."""
    command(place, "session", "start", *OPTIONS)
    yield place
    harness.kill(harness.processes_of(place))


def status(place: Path, code: int | None = 0) -> dict[str, Any]:
    told = command(place, "session", "status", "--json", code=code).stdout
    found: dict[str, Any] = json.loads(told)
    return found


def followed(place: Path, *words: str) -> Run:
    return Run([*COMMAND, "run", "--json", *words], place, place / "followed.log")


def kill_the_leader(place: Path) -> None:
    """Kill the leader's process; its guardian is left to see to the rest."""
    leader = status(place)["leader"]["id"]
    found = json.loads(command(place, "ps", "--json").stdout)["processes"]
    (pid,) = [one["pid"] for one in found if one["name"] == leader]
    harness.kill([pid])


def test_it_loses_its_leader_and_is_stopped_and_no_application_is(session: Path) -> None:
    script = harness.put_app(session, "three.py")
    detached = command(session, "run", "-d", str(script)).stdout.strip()
    until(lambda: lines(session, "jobs.txt") == ["first 1", "long 1"])
    kill_the_leader(session)
    until(lambda: len(lines(session, "main.txt")) == 2)
    waiting = command(session, "result", detached, code=4).stdout
    stopped = command(session, "session", "stop").stdout
    left = harness.processes_of(session)
    interrupted = command(session, "list").stdout
    command(session, "session", "start", *OPTIONS)
    until(lambda: "long 2" in lines(session, "jobs.txt"))
    follower = followed(session, "--run-id", "monday", str(script))
    follower.wait("application-status", status="RUNNING")
    (session / "go").touch()
    code = follower.finish()
    until(lambda: [one["status"] for one in status(session)["applications"]] == ["FINISHED"] * 2)
    result = json.loads(command(session, "result", detached, "--json").stdout)
    again = command(session, "run", "--run-id", "monday", str(script))
    command(session, "session", "stop")

    assert "long" in waiting or "first" in waiting
    assert "its data is kept" in stopped
    assert {} == left
    assert "understudy session start" in interrupted
    assert 0 == code
    assert ["FINISHED"] * 3 == [
        one["status"] for one in follower.of("application-finished")[0]["jobs"]
    ]
    values = [one["job-execution-result"]["value"] for one in result["jobs"]]
    assert {"name": "first", "attempt": 1} == values[0], "it did not run again"
    assert 2 == values[1], "the stop has ended its first attempt"
    assert "has ended: FINISHED" in again.stderr


@pytest.mark.long  # Units: tests/cli/test_following.py.
def test_the_command_that_follows_survives_the_leader_and_can_leave_the_application(
    session: Path,
) -> None:
    script = harness.put_app(session, "three.py")
    rest = status(session)["leader"]["rest"]
    follower = followed(session, "--target", rest, str(script))
    until(lambda: lines(session, "jobs.txt") == ["first 1", "long 1"])
    kill_the_leader(session)
    follower.wait("takeover")
    follower.process.send_signal(signal.SIGINT)
    code = follower.finish()
    (name,) = [one["id"] for one in status(session, None)["applications"]]
    shown = follower.log.read_text()
    other = status(session, None)["leader"]["rest"]
    cancelled = command(session, "cancel", "--target", other, name).stdout
    until(lambda: status(session, None)["applications"][0]["status"] == "CANCELED")
    command(session, "session", "stop")

    assert 130 == code
    assert f"understudy logs -f {name}" in shown
    assert ["second job"] == follower.of("takeover")[0]["adopted"]
    assert "is being cancelled" in cancelled


@pytest.mark.long  # Units: tests/jobmanager/test_shutdown.py.
def test_a_request_shuts_it_down_and_the_next_start_continues(session: Path) -> None:
    script = harness.put_app(session, "three.py")
    command(session, "run", "-d", str(script))
    until(lambda: lines(session, "jobs.txt") == ["first 1", "long 1"])
    (standby,) = status(session)["standbys"]
    answer = httpx.delete(f"{standby['rest']}/cluster", timeout=harness.PATIENCE_S)
    until(lambda: not harness.processes_of(session))
    command(session, "session", "start", *OPTIONS)
    until(lambda: "long 2" in lines(session, "jobs.txt"))
    (session / "go").touch()
    until(lambda: [one["status"] for one in status(session)["applications"]] == ["FINISHED"])
    processes = [one["state"] for one in status(session)["processes"]]
    command(session, "session", "stop")

    assert 202 == answer.status_code
    assert ["runs"] * 3 == processes, "they ignore the shutdown before their start"
    assert 1 == lines(session, "jobs.txt").count("first 1")
