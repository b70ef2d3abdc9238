"""What becomes of a run: another one over it, an interrupt, a resumption, and what `list` says."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import SESSION_LESS, Run, command, processes_of, stored

CLUSTER = ("-D", "high-availability.cluster-id=flights")
NAMED = (*CLUSTER, "--run-id", "monday")


def interrupted(start: Start, place: Path) -> None:
    """Leave a run that is unfinished in the middle of its second job."""
    run = start("three.py", "x", options=NAMED)
    run.at_work()
    run.process.terminate()
    run.finish()


def listed(place: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(command(place, "list", "--json").stdout)[
        "applications"
    ]
    return found


def printed(run: Run, what: str) -> list[str]:
    """Return the words of a command that the run printed for a person."""
    lines = run.log.read_text().splitlines()
    return shlex.split(next(line for line in lines if line.startswith(f"  {what}")))[1:]


@pytest.mark.long  # Units: tests/cli/test_another_run.py.
def test_a_start_of_another_run_is_refused_with_the_two_ways_out(start: Start, place: Path) -> None:
    interrupted(start, place)
    harness.put_app(place, "mains.py")
    before = stored(place)
    run = ("run-application", *SESSION_LESS, *CLUSTER)
    tuesday = command(place, *run, "--run-id", "tuesday", "three.py", "x", code=2).stderr
    others = command(place, *run, "three.py", "y z", code=2).stderr
    script = command(place, *run, "mains.py", "x", code=2).stderr
    standing = command(place, "jobmanager", *SESSION_LESS, *CLUSTER, "three.py", code=2).stderr

    assert "the run id is tuesday, not monday" in tuesday
    assert "its arguments are 'y z', not x" in others
    assert "it executes mains.py, not three.py" in script
    assert "its arguments are none, not x" in standing
    for said in (tuesday, others, script, standing):
        assert "nothing was started" in said
        assert "understudy run-application --resume --run-id monday -D high-avail" in said
        assert "understudy cancel -D high-availability.cluster-id=flights " in said
        assert said.endswith(" monday\n")
    assert before == stored(place)
    assert ["first 1", "long 1"] == harness.lines(place, "jobs.txt")
    assert {} == processes_of(place)


@pytest.mark.long
def test_an_interrupted_run_is_shown_and_its_command_resumes_it(start: Start, place: Path) -> None:
    interrupted(start, place)
    (shown,) = listed(place)
    (later,) = listed(place)
    told = command(place, "list").stdout
    info = command(place, "info", "second job").stdout
    job = command(place, "cancel", "second job", code=1).stderr
    (place / "go").touch()
    (place / "three.py").unlink()
    words = shlex.split(str(shown["resume"]))
    done = command(place, *words[1:])
    (ended,) = listed(place)

    assert "INTERRUPTED" == shown["status"]
    assert later["duration"] == shown["duration"]
    assert str(shown["resume"]) in told
    assert str(shown["resume"]) in info
    assert "first job" not in info
    assert "run monday is interrupted" in job
    assert ["first 1", "long 1", "long 2", "third 1"] == harness.lines(place, "jobs.txt")
    assert "is FINISHED" in done.stderr
    assert ("FINISHED", "monday") == (ended["status"], ended["run-id"])
    assert "resume" not in ended


def test_an_interrupted_run_is_ended_for_good_without_a_process_of_its_cluster(
    start: Start, place: Path
) -> None:
    interrupted(start, place)
    mains = len(harness.lines(place, "main.txt"))
    done = command(place, "cancel", "monday").stdout
    again = command(place, "cancel", "monday").stdout
    (ended,) = listed(place)
    (place / "go").touch()
    next_one = start("three.py", "y", options=(*CLUSTER, "--run-id", "tuesday"))

    assert 0 == next_one.finish()
    assert "is CANCELED" in done
    assert "is CANCELED" in again
    assert ("CANCELED", "monday") == (ended["status"], ended["run-id"])
    assert mains + 1 == len(harness.lines(place, "main.txt"))


@pytest.mark.long
def test_the_first_interrupt_keeps_what_an_application_has_recorded(
    start: Start, place: Path
) -> None:
    run = start("kept_loop.py", "loop", "50", options=NAMED)
    run.grown("steps.txt", 51)
    run.process.send_signal(signal.SIGINT)
    code = run.finish()
    (shown,) = listed(place)
    (place / "go").touch()
    done = command(place, *printed(run, "understudy run-application"))

    assert 130 == code
    assert "INTERRUPTED" == shown["status"]
    assert printed(run, "understudy cancel")[-1] == "monday"
    assert ["1 0", "2 50"] == harness.lines(place, "begun.txt")
    assert "is FINISHED" in done.stderr


@pytest.mark.long  # Units: tests/cli/test_story.py.
def test_a_start_over_a_run_that_lives_follows_it(start: Start, place: Path) -> None:
    run = start("three.py", "x", options=NAMED)
    run.at_work()
    follower = start("three.py", "x", options=CLUSTER)
    follower.said("run monday is running already")
    run.until("/ha/status", lambda answer: len(answer["standbys"]) == 1)
    left = start("three.py", "x", options=CLUSTER)
    left.wait("cluster-started")
    left.process.send_signal(signal.SIGINT)
    interrupted_with = left.finish()
    run.release()

    assert 130 == interrupted_with
    assert "run monday continues without this start" in left.log.read_text()
    assert (0, 0) == (run.finish(), follower.finish())
    assert ["first 1", "long 1", "third 1"] == run.lines("jobs.txt")
    assert 1 == len(run.lines("main.txt"))


@pytest.mark.long  # Units: tests/cli/test_past_runs.py.
def test_a_run_without_a_cluster_id_is_shown_after_its_end(start: Start, place: Path) -> None:
    (place / "go").touch()
    run = start("three.py")
    run.finish()
    (shown,) = listed(place)
    run_id = str(shown["run-id"])
    wide = command(place, "list").stdout
    info = command(place, "info", run_id[:4]).stdout
    value = command(place, "result", "third job").stdout
    too_late = command(place, "cancel", run_id, code=1).stderr
    cleaned = command(place, "cleanup", "retry", run_id).stdout
    named = f"high-availability.cluster-id={shown['cluster-id']}"
    refused = command(place, "destroy", "-D", named, code=2).stderr
    command(place, "destroy", "-D", named, "--yes")
    gone = listed(place)

    assert [] == stored(place)
    assert "FINISHED" == shown["status"]
    assert str(shown["cluster-id"]) in wide
    assert "second job" in info
    assert '{"name": "third", "attempt": 1}' in value
    assert "has ended already: FINISHED" in too_late
    assert "nothing to clean up" in cleaned
    assert "confirm with --yes" in refused
    assert [] == gone
