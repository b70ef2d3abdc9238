"""Other code over an unfinished run, and results that a person discards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import COMMAND, SESSION_LESS, command, stored

NAMED = ("-D", "high-availability.cluster-id=flights", "--run-id", "monday")


def write(place: Path, word: str) -> None:
    (place / "recipe.py").write_text(f"WORD = {word!r}\n")


def closed(start: Start, place: Path, app: str, lines: int) -> None:
    """Close a run in the middle of its second job."""
    run = start(app, options=NAMED)
    run.grown("jobs.txt", lines)
    run.process.terminate()
    run.finish()


def test_other_code_takes_over_an_unfinished_run_and_keeps_its_results(
    start: Start, place: Path
) -> None:
    write(place, "old")
    closed(start, place, "version.py", 2)
    write(place, "new")
    run = start("version.py", options=NAMED)
    told = run.wait("application-redeployed")
    run.grown("jobs.txt", 3)
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    run.wait("takeover", adopted=["long"])
    info = json.loads(command(place, "info", "monday", "--json").stdout)
    shown = command(place, "info", "monday").stdout
    run.release()
    code = run.finish()

    assert 0 == code, run.story()
    assert ["quick old 1", "long old 1", "long new 2"] == run.lines("jobs.txt")
    assert ["old", "new", "new"] == run.lines("main.txt")
    assert (2, ["recipe.py"], ["long"]) == (told["deployment"], told["changed"], told["stopped"])
    assert 1 == len(run.of("application-redeployed"))
    assert 2 == info["deployment"]
    assert "deployment 2" in shown
    assert "this is other code (recipe.py)" in run.log.read_text()
    assert "[main] values old new in new" in run.log.read_text()
    assert not [name for name in stored(place) if "/applications" in name]


def test_the_same_code_is_no_deployment(start: Start, place: Path) -> None:
    write(place, "old")
    closed(start, place, "version.py", 2)
    (place / "go").touch()
    run = start("version.py", options=NAMED)
    code = run.finish()

    assert 0 == code
    assert [] == run.of("application-redeployed")
    assert "other code" not in run.log.read_text()


def test_a_script_that_is_edited_while_it_runs_is_not_deployed_by_a_failover(
    start: Start, place: Path
) -> None:
    write(place, "old")
    run = start("version.py", options=NAMED)
    run.grown("jobs.txt", 2)
    write(place, "edited")
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    run.wait("takeover")
    run.release()
    code = run.finish()

    assert 0 == code
    assert ["quick old 1", "long old 1"] == run.lines("jobs.txt")
    assert ["old", "old"] == run.lines("main.txt")


def test_what_runs_is_stopped_when_a_jobmanager_with_other_code_takes_over(place: Path) -> None:
    write(place, "old")
    script = harness.put_app(place, "version.py")
    members = [_foreground(place, "jobmanager", str(script)), _foreground(place, "taskmanager")]
    try:
        _until(lambda: len(_lines(place)) == 2)
        write(place, "new")
        members.append(_foreground(place, "jobmanager", str(script)))
        _until(lambda: (place / "jobmanager.log").read_text().count("jobmanager-ready") == 2)
        harness.kill(harness.descendants_of({members[0].pid}) - {members[0].pid})
        _until(lambda: len(_lines(place)) == 3)
        (place / "go").touch()
        code = members[2].wait(harness.PATIENCE_S)
    finally:
        for member in members:
            member.kill()
            member.wait(10)
        harness.kill(harness.processes_of(place))

    assert 0 == code
    assert ["quick old 1", "long old 1", "long new 2"] == _lines(place)


@pytest.mark.parametrize("kill", [False, True])
def test_a_discarded_result_is_made_again_once(start: Start, place: Path, kill: bool) -> None:
    closed(start, place, "three.py", 2)
    run = start("three.py", options=(*NAMED, "--rerun", "first job"))
    told = run.wait("result-discarded")
    run.grown("jobs.txt", 4)
    if kill:
        os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
        run.wait("takeover", adopted=["second job"])
    run.release()
    code = run.finish()

    assert 0 == code, run.story()
    assert ["first 1", "long 1", "first 2", "long 2", "third 1"] == run.lines("jobs.txt")
    assert ("first job", 1) == (told["name"], told["attempt"])
    assert "result of job 'first job' (attempt 1) is discarded" in run.log.read_text()


def test_a_result_that_is_not_there_cannot_be_discarded(start: Start, place: Path) -> None:
    closed(start, place, "three.py", 2)
    line = ("run-application", *NAMED, "--rerun", "second job", "three.py")
    unfinished = command(place, *line, code=2).stderr
    (place / "go").touch()
    start("three.py", options=NAMED).finish()
    ended = command(place, *line, code=2).stderr
    nameless = command(place, "run-application", "--rerun", "x", "three.py", code=2).stderr

    assert "run monday has no result of a job of that name; it has those of 'first" in unfinished
    assert "a run that has ended is not run again" in ended
    assert "no run is unfinished here" in nameless


def _lines(place: Path) -> list[str]:
    path = place / "jobs.txt"
    return path.read_text().splitlines() if path.exists() else []


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + harness.PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _foreground(place: Path, role: str, *arguments: str) -> subprocess.Popen[bytes]:
    log = (place / f"{role}.log").open("ab")
    return subprocess.Popen(
        [*COMMAND, role, *harness.impatient(), *SESSION_LESS, *arguments],
        cwd=place,
        env=harness.environment(place),
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
