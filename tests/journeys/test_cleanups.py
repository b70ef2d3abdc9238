"""Storage that cannot be cleaned up: what is shown, and how a person steps in."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import Run, command, stored
from tests.support.sampling import quickly

pytestmark = pytest.mark.local_storage

NAMED = ("-D", "high-availability.cluster-id=flights")
ONCE = (*NAMED, "-D", "cleanup-strategy.type=none")
FIXED = (
    *NAMED,
    *("-D", "cleanup-strategy.type=fixed-delay"),
    *("-D", "cleanup-strategy.fixed-delay.attempts=2"),
    *("-D", "cleanup-strategy.fixed-delay.delay=200ms"),
)
ENDED = "application-result-store"


def storage_of(place: Path) -> Path:
    return place / "state" / "understudy" / "ha"


def block(place: Path, name: str) -> Path:
    """Put a file in the way where a directory is needed."""
    path = storage_of(place) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("in the way")
    return path


def replace_plan(place: Path) -> Path:
    """Put a directory, with something in it, in the place of the plan of the only living job."""
    (plan,) = storage_of(place).glob("flights/applications/*/plans/*")
    plan.unlink()
    plan.mkdir()
    (plan / "precious").touch()
    return plan


def given_up(run: Run) -> list[dict[str, Any]]:
    """Wait until something was left to a person; return all that is open."""
    answer: dict[str, Any] = run.until(
        "/ha/cleanup", lambda answer: any(one["given_up"] for one in answer["open"])
    )
    return [one for one in answer["open"] if one["failures"]]


def post(run: Run, path: str) -> int:
    request = urllib.request.Request(run.rest + path, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_run_waits_for_a_person_and_ends_once_its_cleanup_is_tried_again(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    run = start("three.py", options=ONCE)
    run.at_work()
    blocking = block(place, f"{ENDED}/flights")
    run.release()
    (task,) = given_up(run)
    application = task["application_id"]
    run.said(f"understudy cleanup retry {application}")
    blocking.unlink()
    told = command(place, "cleanup", "retry", application[:8], "--json")

    assert 0 == run.finish()
    assert ("publish the application's result", 1, None) == (
        task["task"],
        task["failures"],
        task["next_try_seconds"],
    )
    assert "flights" in task["error"]
    assert {"id": application, "tasks": [task["task"]]} == json.loads(told.stdout)
    assert not [name for name in stored(place) if ENDED in name]
    nothing_left()


@pytest.mark.parametrize("named", quickly([True, False], [False]), ids=["by run id", "by REST"])
def test_an_abandoned_cleanup_ends_the_run_and_what_is_not_ours_stays(
    start: Start, place: Path, nothing_left: Callable[[], None], named: bool
) -> None:
    run = start("three.py", options=(*FIXED, "--run-id", "monday"))
    run.at_work()
    blocking = block(place, f"{ENDED}/flights")
    run.release()
    (task,) = given_up(run)
    if named:
        told = command(place, "cleanup", "abandon", "monday", "--json")
    else:
        assert 202 == post(run, f"/ha/cleanup/{task['application_id']}/abandon")
    code = run.finish()
    again = start("three.py", options=(*FIXED, "--run-id", "monday"))
    info = json.loads(command(place, "info", "monday", *NAMED, "--json").stdout)

    assert 0 == code
    assert 3 == task["failures"]
    if named:
        assert {
            "id": task["application_id"],
            "tasks": [task["task"]],
            "left_behind": [],
        } == json.loads(told.stdout)
    assert [] == info["left-behind"]
    assert "in the way" == blocking.read_text(), "it is not ours"
    assert 0 == again.finish()
    assert ["first 1", "long 1", "third 1"] == run.lines("jobs.txt")
    nothing_left()


@pytest.mark.long  # Units: tests/jobmanager/test_cleanup_abandoned.py.
def test_what_stays_of_a_job_is_named(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    run = start("three.py", options=ONCE)
    run.at_work()
    run.until("/ha/cleanup", lambda answer: answer == {"open": []})
    job = run.of("job-status", name="second job")[0]["job_id"]
    results = storage_of(place) / "job-result-store" / "flights"
    (results / f"{job}_DIRTY.json").mkdir()
    (results / f"{job}_DIRTY.json" / "precious").touch()
    run.release()
    tasks = given_up(run)
    printed = command(place, "cleanup", "abandon", tasks[0]["application_id"]).stdout
    code = run.finish()
    value = json.loads(command(place, "result", job, *NAMED, "--json").stdout)["jobs"][0]

    assert 0 == code
    assert ["job second job"] == [task["task"] for task in tasks]
    assert f"left behind: {results}/{job}_DIRTY.json" in printed
    assert (results / f"{job}_DIRTY.json" / "precious").exists()
    assert 1 == value["job-execution-result"]["value"]
    nothing_left()


@pytest.mark.long  # Units: tests/jobmanager/test_cleanup_abandoned.py.
def test_what_went_with_the_application_was_not_left_behind(
    start: Start, place: Path, nothing_left: Callable[[], None]
) -> None:
    run = start("three.py", options=ONCE)
    run.at_work()
    run.until("/ha/cleanup", lambda answer: answer == {"open": []})
    replace_plan(place)
    run.release()
    (task,) = given_up(run)
    printed = command(place, "cleanup", "abandon", task["application_id"]).stdout

    assert 0 == run.finish()
    assert "nothing is left behind" in printed
    assert [] == [name for name in stored(place) if "/applications/" in name]
    nothing_left()


@pytest.mark.long  # Units: tests/jobmanager/test_cleanup_abandoned.py.
def test_stepping_in_is_refused_where_nothing_fails_or_nobody_is_known(
    start: Start, place: Path
) -> None:
    run = start("three.py", options=NAMED)
    run.running("second job")
    application = run.of("application-status")[0]["application_id"]
    codes = [
        post(run, f"/ha/cleanup/{wanted}/{verb}")
        for wanted in (application, "0" * 32)
        for verb in ("retry", "abandon")
    ]
    refused = command(place, "cleanup", "retry", application, code=1)
    unknown = command(place, "cleanup", "abandon", "nobody", code=1)
    run.release()

    assert 0 == run.finish()
    assert [409, 409, 404, 404] == codes
    assert "Nothing that is to be cleaned up fails" in refused.stderr
    assert "there is no 'nobody'" in unknown.stderr


@pytest.mark.long  # Units: tests/jobmanager/test_cleanup_tasks.py.
def test_failures_are_counted_through_the_death_of_the_leader(start: Start) -> None:
    rate = "restart-strategy.failure-rate"
    options = (
        *("-D", "restart-strategy.type=failure-rate"),
        *("-D", f"{rate}.max-failures-per-interval=2"),
        *("-D", f"{rate}.delay=4s"),
    )
    run = start("mains.py", "caught", options=(*harness.impatient(), *options), standbys=1)
    run.wait("leader")
    run.standby_is_ready()
    run.grown("jobs.txt", 2)
    leader = run.leader()
    os.kill(leader["pid"], signal.SIGKILL)
    run.wait("leader")
    failed = run.wait("job-status", name="fail", status="FAILED")

    assert 0 == run.finish()
    assert 3 == failed["attempt"]
    assert ["luck 1", "luck 2", "luck 3", "after 1"] == run.lines("jobs.txt")
