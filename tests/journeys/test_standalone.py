"""high-availability.type NONE: one JobManager, found where the configuration says."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import SESSION_LESS, command, lines, stored
from tests.journeys.members import Begin, members, until
from tests.support.zookeeper import free_port

pytestmark = pytest.mark.filesystem  # With a backend of its own.


@pytest.fixture
def alone() -> tuple[str, ...]:
    """Return the options of a cluster of this test's own."""
    port = free_port()
    return (
        *("-D", "high-availability.type=NONE"),
        *("-D", f"rest.port={port}"),
        *("-D", f"jobmanager.rpc.port={port}"),
    )


@pytest.fixture
def begin(place: Path, alone: tuple[str, ...]) -> Iterator[Begin]:
    """Return a function that starts a process of the cluster in the foreground."""
    options = (*harness.impatient(), *SESSION_LESS, *alone)
    with members(place) as start:
        yield lambda role, *arguments: start(role, *options, *arguments)


def test_single_processes_find_the_one_jobmanager_and_a_second_one_is_refused(
    begin: Begin, place: Path, alone: tuple[str, ...]
) -> None:
    script = harness.put_app(place, "three.py")
    taskmanager = begin("taskmanager")  # Before there is anybody to find.
    jobmanager = begin("jobmanager", str(script))
    until(lambda: lines(place, "jobs.txt") == ["first 1", "long 1"])
    listed = json.loads(command(place, "list", *alone, "--json").stdout)["applications"]
    second = begin("jobmanager", str(script))
    refused = second.wait(harness.PATIENCE_S)
    said = (place / "jobmanager-2.log").read_text()
    (place / "go").touch()
    code = jobmanager.wait(harness.PATIENCE_S)
    taskmanager.terminate()
    taskmanager.wait(30)

    assert 0 == code
    assert 2 == refused
    assert "a JobManager serves at localhost:" in said
    assert "Traceback" not in said
    assert ["RUNNING"] == [one["status"] for one in listed]
    assert "its loss is the loss of its application" in (place / "jobmanager-1.log").read_text()
    assert ["first 1", "long 1", "third 1"] == lines(place, "jobs.txt")
    assert [] == [name for name in stored(place) if not name.startswith("_standalone")]
    assert {} == harness.processes_of(place)


@pytest.mark.long
def test_nothing_is_known_after_its_loss_and_the_next_one_begins_anew(
    begin: Begin, place: Path, alone: tuple[str, ...]
) -> None:
    script = harness.put_app(place, "three.py")
    begin("taskmanager")
    first = begin("jobmanager", str(script))
    until(lambda: lines(place, "jobs.txt") == ["first 1", "long 1"])
    first.kill()
    first.wait(30)
    unknown = command(place, "list", *alone, "--json")
    (place / "go").touch()
    second = begin("jobmanager", str(script))

    assert 0 == second.wait(harness.PATIENCE_S)
    assert [] == json.loads(unknown.stdout)["applications"]
    began = [line for line in lines(place, "jobs.txt") if line.startswith("first")]
    assert 2 == len(began), "no result was remembered"


def test_a_whole_cluster_without_high_availability_leaves_nothing(
    start: Start, place: Path, nothing_left: Callable[[], None], alone: tuple[str, ...]
) -> None:
    run = start("mains.py", "exit-0", options=alone)

    assert 0 == run.finish()
    assert 1 == len(run.of("cluster-started")[0]["rest"])
    assert [] == stored(place)
    nothing_left()


def test_the_loss_of_its_jobmanager_ends_a_cluster_as_failed(
    start: Start, place: Path, nothing_left: Callable[[], None], alone: tuple[str, ...]
) -> None:
    run = start("three.py", options=alone)
    run.at_work()
    os.kill(run.leader()["pid"], signal.SIGKILL)
    code = run.finish()
    said = run.log.read_text()

    assert 1 == code
    assert "the JobManager was lost, and with it the application" in said
    assert "continues where it stopped" not in said
    assert ["first 1", "long 1"] == run.lines("jobs.txt")
    assert [] == stored(place), "nobody remembers what was stored"
    nothing_left()


@pytest.mark.long
def test_what_a_killed_jobmanager_has_left_is_destroyed_once_it_is_dead(
    begin: Begin, place: Path, alone: tuple[str, ...]
) -> None:
    script = harness.put_app(place, "three.py")
    jobmanager = begin("jobmanager", str(script))
    until(lambda: lines(place, "main.txt") != [])
    living = command(place, "destroy", "--yes", *alone, code=2)
    harness.kill(harness.descendants_of({jobmanager.pid}))
    jobmanager.wait(harness.PATIENCE_S)
    until(lambda: not harness.processes_of(place))
    left = stored(place)
    command(place, "destroy", "--yes", *alone)

    assert "a JobManager serves at" in living.stderr
    assert left
    assert [] == stored(place)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run-application", "--jobmanagers", "2", "app.py"], "with high-availability.type NONE"),
        (
            ["run-application", "-D", "jobmanager.rpc.address=elsewhere", "app.py"],
            "jobmanager.rpc.address is 'elsewhere'",
        ),
    ],
)
def test_what_it_cannot_be_asked_for_is_refused(
    place: Path, arguments: list[str], said: str
) -> None:
    (place / "app.py").touch()
    words = [arguments[0], "-D", "high-availability.type=NONE", *arguments[1:]]
    done = command(place, *words, code=2)

    assert said in done.stderr
