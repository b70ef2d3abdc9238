"""Other code over an unfinished run, and results that a person discards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import SESSION_LESS, command, stored
from tests.journeys.members import Begin, members, until
from tests.support.sampling import quickly

NAMED = ("-D", "high-availability.cluster-id=flights", "--run-id", "monday")


@pytest.fixture
def begin(place: Path) -> Iterator[Begin]:
    """Return a function that starts a single process of a cluster, in the foreground."""
    with members(place, "{role}.log") as start:

        def with_timeouts(
            role: str, *arguments: str, patient: bool = False
        ) -> subprocess.Popen[bytes]:
            timeouts = [] if patient else harness.impatient()
            return start(role, *timeouts, *SESSION_LESS, *arguments)

        yield with_timeouts


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
    run = start("version.py", options=NAMED, standbys=1)
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


@pytest.mark.long  # Units: tests/jobmanager/test_redeployment.py.
def test_the_same_code_is_no_deployment(start: Start, place: Path) -> None:
    write(place, "old")
    closed(start, place, "version.py", 2)
    (place / "go").touch()
    run = start("version.py", options=NAMED)
    code = run.finish()

    assert 0 == code
    assert [] == run.of("application-redeployed")
    assert "other code" not in run.log.read_text()


@pytest.mark.long
def test_a_script_that_is_edited_while_it_runs_is_not_deployed_by_a_failover(
    start: Start, place: Path
) -> None:
    write(place, "old")
    run = start("version.py", options=NAMED, standbys=1)
    run.grown("jobs.txt", 2)
    write(place, "edited")
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    run.wait("takeover")
    run.release()
    code = run.finish()

    assert 0 == code
    assert ["quick old 1", "long old 1"] == run.lines("jobs.txt")
    assert ["old", "old"] == run.lines("main.txt")


@pytest.mark.long
def test_what_runs_is_stopped_when_a_jobmanager_with_other_code_takes_over(
    begin: Begin, place: Path
) -> None:
    write(place, "old")
    script = harness.put_app(place, "version.py")
    first = begin("jobmanager", str(script))
    begin("taskmanager")
    until(lambda: len(_lines(place)) == 2)
    write(place, "new")
    second = begin("jobmanager", str(script))
    _standing_by(place, 2)
    _lose(first)
    until(lambda: len(_lines(place)) == 3)
    (place / "go").touch()
    code = second.wait(harness.PATIENCE_S)

    assert 0 == code
    assert ["quick old 1", "long old 1", "long new 2"] == _lines(place)


@pytest.mark.long  # Units: tests/jobmanager/test_redeployment.py.
@pytest.mark.filesystem  # In a line nobody overtakes: while the older one lives, it leads first.
def test_an_older_standby_that_takes_over_goes_on_with_the_code_that_was_deployed_since(
    begin: Begin, place: Path
) -> None:
    write(place, "old")
    script = harness.put_app(place, "version.py")
    first = begin("jobmanager", str(script), patient=True)
    begin("taskmanager", patient=True)
    until(lambda: len(_lines(place)) == 2)
    write(place, "older")
    older = begin("jobmanager", str(script), patient=True)
    _standing_by(place, 2)
    write(place, "new")
    newer = begin("jobmanager", str(script), patient=True)
    _standing_by(place, 3)
    frozen = harness.descendants_of({older.pid})  # So that the newer one leads first.
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    _lose(first)
    until(lambda: len(_lines(place)) == 3)
    harness.thaw(frozen)
    _lose(newer)
    until(lambda: len(_lines(place, "main.txt")) == 3)
    shown = json.loads(command(place, "list", "--json").stdout)["applications"]
    (place / "go").touch()
    code = older.wait(harness.PATIENCE_S)

    assert 0 == code
    assert ["RUNNING"] == [one["status"] for one in shown]
    assert ["quick old 1", "long old 1", "long new 2"] == _lines(place)
    assert ["old", "new", "new"] == _lines(place, "main.txt")
    told = (place / "jobmanager.log").read_text()
    assert 1 == told.count("application-redeployed")
    assert "has been deployed again since this process was started" in told


@pytest.mark.long  # Units: tests/jobmanager/test_redeployment.py.
@pytest.mark.parametrize("kill", quickly([False, True], [True]))
def test_a_discarded_result_is_made_again_once(start: Start, place: Path, kill: bool) -> None:
    closed(start, place, "three.py", 2)
    run = start("three.py", options=(*NAMED, "--rerun", "first job"), standbys=1)
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


@pytest.mark.long  # Units: tests/jobmanager/test_redeployment.py.
@pytest.mark.parametrize("retention", ["DELETE_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"])
def test_a_failed_job_is_run_anew_from_nothing_and_what_was_retained_stays(
    start: Start, place: Path, retention: str
) -> None:
    points = place / "points"
    options = (
        *NAMED,
        *("-D", f"execution.checkpointing.dir={points}"),
        *("-D", f"execution.checkpointing.externalized-checkpoint-retention={retention}"),
        *("-D", "restart-strategy.type=fixed-delay"),
        *("-D", "restart-strategy.fixed-delay.attempts=1"),
        *("-D", "restart-strategy.fixed-delay.delay=50ms"),
    )
    first = start("anew.py", options=options)
    first.wait("job-status", name="breaks", status="FAILED")
    until((place / "waiting").exists)
    first.process.terminate()
    first.finish()
    for file in ("mended", "go"):
        (place / file).touch()
    second = start("anew.py", options=(*options, "--rerun", "breaks"))
    code = second.finish()
    begun = [json.loads(line) for line in second.lines("begun.txt")]
    before, after = begun[0][0], begun[-1][0]
    left = [directory for directory in (before, after) if Path(directory).exists()]
    job_id = Path(before).parts[-3]
    nonce = begun[0][-1].rpartition("-")[2]

    assert 0 == code, second.story()
    assert [
        [f"{points}/{job_id}/streaming/board", False, None, f"understudy-{job_id}-{nonce}"],
        [f"{points}/{job_id}/streaming/board", True, 1, f"understudy-{job_id}-{nonce}"],
        [f"{points}/{job_id}-2/streaming/board", False, None, f"understudy-{job_id}-2-{nonce}"],
    ] == begun
    assert ([before] if retention == "DELETE_ON_CANCELLATION" else []) == left


@pytest.mark.long
def test_a_jobmanager_that_is_started_over_an_unfinished_run_discards_a_result_once_it_leads(
    begin: Begin, place: Path
) -> None:
    script = harness.put_app(place, "three.py")
    first = begin("jobmanager", str(script))
    begin("taskmanager")
    until(lambda: _lines(place) == ["first 1", "long 1"])
    line = ("jobmanager", *harness.impatient(), "--rerun", "third job", str(script))
    unknown = command(place, *line, code=2).stderr
    second = begin("jobmanager", "--rerun", "first job", str(script))
    _standing_by(place, 2)
    before = _lines(place)
    _lose(first)
    until(lambda: "first 2" in _lines(place))
    (place / "go").touch()
    code = second.wait(harness.PATIENCE_S)

    assert 0 == code
    assert "has no result of a job of that name; it has those of 'first job'" in unknown
    assert ["first 1", "long 1"] == before
    assert ["first 1", "long 1", "first 2", "third 1"] == _lines(place)
    assert "as soon as a JobManager of this start leads" in (place / "jobmanager.log").read_text()


@pytest.mark.long  # Units: tests/jobmanager/test_redeployment.py.
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


def _lines(place: Path, name: str = "jobs.txt") -> list[str]:
    path = place / name
    return path.read_text().splitlines() if path.exists() else []


def _standing_by(place: Path, jobmanagers: int) -> None:
    """Wait until so many JobManagers have said that they are ready."""
    log = place / "jobmanager.log"
    until(lambda: log.read_text().count("jobmanager-ready") == jobmanagers)


def _lose(member: subprocess.Popen[bytes]) -> None:
    """Kill all of a JobManager but its guardian, which tells."""
    harness.kill(harness.descendants_of({member.pid}) - {member.pid})
    member.wait(harness.PATIENCE_S)
