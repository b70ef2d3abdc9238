"""Savepoints: taken of a running job, with its end, and begun with by another cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import Run, command, impatient, lines, stored
from tests.journeys.members import members, until

NAMED = ("-D", "high-availability.cluster-id=first")
TRIGGER = "0123456789abcdef0123456789abcdef"


def allowed(place: Path) -> tuple[str, str]:
    """Return what lets REST write savepoints."""
    return ("-D", f"execution.checkpointing.savepoint-allowed-dirs={place}/kept")


def post(run: Run, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Post to the leader; return the status and the answer."""
    data = json.dumps(body).encode()
    headers = {**run.shown, "content-type": "application/json"}
    request = urllib.request.Request(run.rest + path, data=data, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10, context=run.tls) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def job_of(run: Run, name: str = "counter") -> str:
    return next(str(one["jid"]) for one in run.get("/jobs/overview")["jobs"] if one["name"] == name)


def completed(run: Run, job: str, trigger: str) -> dict[str, Any]:
    """Wait until a savepoint is done; return what REST says of it."""
    answer = run.until(
        f"/jobs/{job}/savepoints/{trigger}", lambda told: told["status"]["id"] == "COMPLETED"
    )
    operation: dict[str, Any] = answer["operation"]
    return operation


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a savepoint of a job that had come to step 5, whose cluster has ended since."""
    place = tmp_path_factory.mktemp("savepoint")
    script = str(harness.put_app(place, "steps.py"))
    alone = ("--jobmanagers", "1", *harness.SESSION_LESS, *NAMED)
    line = [*harness.COMMAND, "run-application", "--json", *alone, script, "5"]
    run = Run(line, place, place / "stderr.log")
    try:
        run.until_line("steps.txt", lambda line: line == "waits")
        told = json.loads(command(place, "stop", "--savepoint", "counter", "kept", "--json").stdout)
        assert 0 == run.finish(), run.story()
    finally:
        harness.end(run)
    return Path(told["location"])


@pytest.fixture
def kept(place: Path, savepoint: Path) -> Path:
    """Return a copy of the savepoint in a place without anything else."""
    return Path(shutil.copytree(savepoint, place / "kept" / savepoint.name))


def test_a_job_ends_with_a_savepoint_and_goes_on_from_it_in_another_cluster(
    start: Start, place: Path, kept: Path
) -> None:
    moved = place / "moved"
    shutil.move(kept, moved)
    before = stored(place)  # A register elsewhere remembers the first cluster.
    run = start("steps.py", "8", options=("--from-savepoint", str(moved)))
    run.release()
    code = run.finish()

    assert 0 == code, run.story()
    assert ["from 5", "step 6", "step 7", "step 8", "waits", "other"] == run.lines("steps.txt")
    assert (moved / "_metadata").is_file()
    assert before == stored(place)


@pytest.mark.long
def test_a_stopped_job_is_finished_and_its_result_names_the_savepoint(
    start: Start, place: Path
) -> None:
    run = start("steps.py", "2", options=NAMED)
    run.until_line("steps.txt", lambda line: line == "waits")
    told = json.loads(command(place, "stop", "--savepoint", "counter", "kept", "--json").stdout)
    assert 0 == run.finish(), run.story()
    result = json.loads(command(place, "result", told["job-id"], "--json").stdout)

    assert told["location"] == result["jobs"][0]["job-execution-result"]["savepoint"]
    assert "FINISHED" == result["status"]
    assert f"go on from it with --from-savepoint {told['location']}" in run.log.read_text()
    assert "value None" not in run.log.read_text()


def test_a_running_job_goes_on_while_its_savepoint_is_taken(start: Start, place: Path) -> None:
    run = start("steps.py", "3", options=NAMED)
    run.until_line("steps.txt", lambda line: line == "waits")
    where = command(place, "savepoint", "counter", "kept").stdout.strip()
    run.release()
    code = run.finish()

    assert 0 == code, run.story()
    assert 1 == run.lines("steps.txt").count("from 0")
    assert (Path(where) / "_metadata").is_file()
    assert place / "kept" == Path(where).parent


@pytest.mark.long
def test_it_does_not_matter_how_the_places_are_named(start: Start, place: Path) -> None:
    storage = ("-D", "high-availability.storageDir=../" + place.name + "/ha")
    points = ("-D", f"execution.checkpointing.dir={place}//x/../points/")
    run = start("steps.py", "3", options=(*NAMED, *storage, *points))
    run.until_line("steps.txt", lambda line: line == "waits")
    where = command(place, "savepoint", *storage, "counter", "kept").stdout.strip()
    run.release()
    code = run.finish()
    shutil.rmtree(place / "ha")
    again = start("steps.py", "3", options=(*storage, *points, "--from-savepoint", where))
    again.release()

    assert 0 == code, run.story()
    assert 0 == again.finish(), again.story()
    assert "from 3" in again.lines("steps.txt")


@pytest.mark.long  # Units: tests/jobmanager/test_savepoint_coordinator.py.
def test_the_same_trigger_is_the_same_savepoint_also_after_a_failover(
    start: Start, place: Path
) -> None:
    run = start("steps.py", "3", options=(*NAMED, *impatient(), *allowed(place)), standbys=1)
    run.until_line("steps.txt", lambda line: line == "waits")
    job = job_of(run)
    body = {"target-directory": str(place / "kept"), "triggerId": TRIGGER}
    first = post(run, f"/jobs/{job}/savepoints", body)
    where = completed(run, job, TRIGGER)["location"]
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    run.wait("takeover")
    again = post(run, f"/jobs/{job}/savepoints", body)
    told = completed(run, job, TRIGGER)
    run.release()
    code = run.finish()

    assert 0 == code, run.story()
    assert [(202, TRIGGER)] * 2 == [(code, one["request-id"]) for code, one in (first, again)]
    assert {"location": where} == told
    assert [Path(where).name] == os.listdir(place / "kept")


@pytest.mark.long  # Units: tests/jobmanager/test_savepoint_coordinator.py.
def test_a_job_that_is_being_stopped_is_stopped_by_the_next_leader(
    start: Start, place: Path
) -> None:
    run = start("steps.py", "3", options=(*NAMED, *impatient(), *allowed(place)), standbys=1)
    run.until_line("steps.txt", lambda line: line == "waits")
    job = job_of(run)
    leader = run.standby_is_ready()["leader"]["pid"]
    body = {"targetDirectory": str(place / "kept"), "triggerId": TRIGGER}
    answer = post(run, f"/jobs/{job}/stop", body)
    harness.kill([leader])  # Whatever of it was done by then.
    code = run.finish()

    assert 202 == answer[0]
    assert 0 == code, run.story()
    assert "FINISHED" == run.of("application-finished")[-1]["jobs"][0]["status"]
    whole = [
        one for one in os.listdir(place / "kept") if (place / "kept" / one / "_metadata").exists()
    ]
    assert 1 == len(whole)


@pytest.mark.long  # Units: tests/jobmanager/test_savepoint_coordinator.py.
def test_a_claimed_savepoint_is_gone_once_its_job_has_it(
    start: Start, place: Path, kept: Path
) -> None:
    (kept / "mine.txt").write_text("a note of the user's")
    claimed = ("--from-savepoint", str(kept), "--claim-mode", "CLAIM")
    run = start("steps.py", "6", options=claimed)
    run.release()
    code = run.finish()

    assert 0 == code, run.story()
    assert "from 5" == run.lines("steps.txt")[0]
    assert ["mine.txt"] == os.listdir(kept)


@pytest.mark.long  # Units: tests/jobmanager/test_savepoint_coordinator.py.
def test_a_job_begins_with_its_savepoint_once_though_the_leader_dies(
    start: Start, place: Path, kept: Path
) -> None:
    options = (*NAMED, *impatient(), "--from-savepoint", str(kept))
    run = start("steps.py", "7", options=options, standbys=1)
    run.until_line("steps.txt", lambda line: line == "waits")
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    run.wait("takeover")
    _, slot = run.busy()
    os.kill(slot["driver_pid"], signal.SIGKILL)
    run.grown("steps.txt", 6)
    run.release()
    code = run.finish()

    assert 0 == code, run.story()
    steps = ["from 5", "step 6", "step 7", "waits", "from 7", "waits", "other"]
    assert steps == run.lines("steps.txt")


@pytest.mark.long
def test_an_application_without_the_job_of_its_savepoint_fails(start: Start, kept: Path) -> None:
    run = start("steps.py", "1", "another", options=("--from-savepoint", str(kept)))
    run.release()
    code = run.finish()

    assert 1 == code
    failure = run.of("application-finished")[-1]["failure"]
    assert "without a job for what it was started from" in failure
    assert "'counter'" in failure


@pytest.mark.long
def test_it_may_be_left_where_a_person_says_so(start: Start, kept: Path) -> None:
    options = ("--from-savepoint", str(kept), "--allow-non-restored-state")
    run = start("steps.py", "1", "another", options=options)
    run.release()
    code = run.finish()

    assert 0 == code, run.story()
    assert "from 0" == run.lines("steps.txt")[0]


@pytest.mark.long
def test_a_job_goes_on_from_what_was_retained_of_one_that_was_cancelled(
    start: Start, place: Path
) -> None:
    retention = "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"
    points = ("-D", f"execution.checkpointing.dir={place / 'points'}", "-D", retention)
    run = start("steps.py", "5", options=(*NAMED, *points))
    run.until_line("steps.txt", lambda line: line == "waits")
    job = job_of(run)
    command(place, "cancel", job)
    run.wait("job-status", name="counter", status="CANCELED")
    run.release()
    assert 3 == run.finish(), run.story()
    (result,) = json.loads(command(place, "result", job, "--json", code=3).stdout)["jobs"]
    (place / "steps.txt").rename(place / "before.txt")
    told = result["job-execution-result"]["checkpoint"]
    options = ("-D", "high-availability.cluster-id=second", *points, "--from-savepoint", told)
    again = start("steps.py", "8", options=options)
    code = again.finish()

    assert 0 == code, again.story()
    steps = ["from 5", "step 6", "step 7", "step 8", "waits", "other"]
    assert steps == again.lines("steps.txt")
    assert Path(told).is_file()
    assert {Path(told).parent.name} == set(os.listdir(place / "points"))


@pytest.mark.long  # Units: tests/jobmanager/test_savepoints.py.
def test_what_is_no_savepoint_starts_nothing(place: Path, kept: Path) -> None:
    harness.put_app(place, "steps.py")
    state = kept / "checkpoints" / "state" / "1-5.json"
    state.write_bytes(state.read_bytes().replace(b"5", b"6", 1))
    refused = [
        command(place, "run-application", "--from-savepoint", str(one), "steps.py", "1", code=2)
        for one in (kept, place / "nothing", place)
    ]

    assert "was altered since it was written" in refused[0].stderr
    assert "is no savepoint: there is nothing" in refused[1].stderr
    assert "is no savepoint: it has no _metadata" in refused[2].stderr
    assert not (place / "steps.txt").exists()


def test_a_savepoint_is_disposed_of(place: Path, kept: Path) -> None:
    command(place, "savepoint", "--dispose", str(kept))
    again = command(place, "savepoint", "--dispose", str(kept), code=1)

    assert not kept.exists()
    assert "is no savepoint" in again.stderr


@pytest.mark.long
def test_rest_cancels_a_job_with_a_savepoint_and_disposes_of_it(start: Start, place: Path) -> None:
    run = start(
        "steps.py",
        "2",
        options=(*NAMED, "-D", f"execution.checkpointing.savepoint-dir={place}/kept"),
    )
    run.until_line("steps.txt", lambda line: line == "waits")
    job = job_of(run)
    body = {"target-directory": str(place / "kept"), "cancel-job": True}
    trigger = post(run, f"/jobs/{job}/savepoints", body)[1]["request-id"]
    where = Path(completed(run, job, trigger)["location"])
    written = (where / "_metadata").is_file()
    run.wait("job-status", name="counter", status="CANCELED")
    disposed = post(run, "/savepoint-disposal", {"savepoint-path": str(where)})
    ended = run.until(
        f"/savepoint-disposal/{disposed[1]['request-id']}",
        lambda told: told["status"]["id"] == "COMPLETED",
    )
    run.release()
    code = run.finish()

    assert 3 == code, run.story()
    assert written
    assert "failure-cause" not in ended.get("operation", {})
    assert not where.exists()
    assert ["from 0", "step 1", "step 2", "waits"] == run.lines("steps.txt")


@pytest.mark.long
def test_single_processes_begin_with_a_savepoint(place: Path, kept: Path) -> None:
    options = (*harness.SESSION_LESS, *impatient())
    script = str(harness.put_app(place, "steps.py"))
    with members(place) as begin:
        begin("taskmanager", *options)
        jobmanager = begin("jobmanager", *options, "--from-savepoint", str(kept), script, "6")
        until(lambda: "waits" in lines(place, "steps.txt"))
        (place / "go").touch()
        code = jobmanager.wait(harness.PATIENCE_S)

    assert 0 == code, (place / "jobmanager-1.log").read_text()
    assert ["from 5", "step 6", "waits", "other"] == lines(place, "steps.txt")


@pytest.mark.long
def test_a_standing_cluster_begins_with_a_savepoint(place: Path, kept: Path) -> None:
    script = str(harness.put_app(place, "steps.py"))
    directory = place / "conf"
    directory.mkdir()
    settings = [one.split("=", 1) for one in (*harness.SESSION_LESS, *impatient()) if one != "-D"]
    (directory / "config.yaml").write_text(
        "".join(f"{key}: '{value}'\n" for key, value in settings)
    )
    at = ("--config-dir", str(directory))
    try:
        command(place, "cluster", "start", *at, "--from-savepoint", str(kept), script, "6")
        until(lambda: "waits" in lines(place, "steps.txt"))
        (place / "go").touch()
        until(lambda: "other" in lines(place, "steps.txt"))
        command(place, "cluster", "stop", *at)
    finally:
        harness.kill(harness.processes_of(place))

    assert ["from 5", "step 6", "waits", "other"] == lines(place, "steps.txt")


@pytest.mark.long  # Units: tests/jobmanager/test_savepoints_refused.py.
def test_what_cannot_be_done_is_refused_and_the_job_goes_on(start: Start, place: Path) -> None:
    run = start("steps.py", "0", options=NAMED)
    run.until_line("steps.txt", lambda line: line == "waits")
    job = job_of(run)
    (place / "file").touch()
    nothing = command(place, "savepoint", "counter", "kept", code=1)
    unknown = command(place, "savepoint", "nobody", "kept", code=1)
    nowhere = command(place, "stop", "--savepoint", "counter", code=1)
    drained = post(run, f"/jobs/{job}/stop", {"targetDirectory": str(place), "drain": True})
    odd = post(run, f"/jobs/{job}/savepoints", {"target-directory": str(place), "triggerId": "x"})
    elsewhere = [
        post(run, f"/jobs/{job}/{route}", {key: str(place), "triggerId": TRIGGER})
        for route, key in (("savepoints", "target-directory"), ("stop", "targetDirectory"))
    ]
    missing = post(run, f"/jobs/{'0' * 32}/savepoints", {"target-directory": str(place)})
    run.release()
    code = run.finish()

    assert 0 == code, run.story()
    assert "has nothing to go on from yet" in nothing.stderr
    assert "there is no job 'nobody'" in unknown.stderr or "no 'nobody'" in unknown.stderr
    assert "execution.checkpointing.savepoint-dir" in nowhere.stderr
    assert (400, 400, 404) == (drained[0], odd[0], missing[0])
    assert [400, 400] == [code for code, _ in elsewhere]
    assert all("savepoint-allowed-dirs" in told["errors"][0] for _, told in elsewhere)
    assert ["from 0", "waits", "other"] == run.lines("steps.txt")
