"""The commands: usage, asking a cluster, REST."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import command
from tests.support.sampling import quickly

NAMED = ("-D", "high-availability.cluster-id=flights")


BAD_USAGE: list[tuple[list[str], str]] = [
    (["nowhere.py"], "nowhere.py: no such script"),
    (["bad.py"], "bad.py, line 1: '(' was never closed"),
    (["nowhere:main"], "nowhere:main: no module 'nowhere' in"),
    (["--master", "locl", "app.py"], "--master 'locl': Spark knows no such master"),
    (["--master", "spark://127.0.0.1:1", "app.py"], "spark://127.0.0.1:1' cannot be reached"),
    (["--class", "Main", "app.py"], "--class Main has no meaning here"),
    (["--deploy-mode", "cluster", "app.py"], "--deploy-mode cluster has no meaning here"),
    (["-D", "high-availability.typ=x", "app.py"], "did you mean 'high-availability.type'"),
    (["-D", "heartbeat.interval=soon", "app.py"], "expected a duration"),
    (["-D", "nonsense", "app.py"], "expected key=value"),
    (["--conf", "nonsense", "app.py"], "expected spark.key=value"),
    (["--py-files", "lib.rar", "app.py"], "expected .py, .zip, .egg or .whl"),
    (["--files", "nothing.txt", "app.py"], "--files nothing.txt: no such file"),
    (["--archives", "app.py", "app.py"], "--archives app.py: expected .zip"),
    (["--run-id", "../up", "app.py"], "--run-id '../up'"),
    (["-D", "high-availability.cluster-id=../up", "app.py"], "high-availability.cluster-id"),
    (["-D", "high-availability.type=carrier-pigeon", *NAMED, "app.py"], "carrier-pigeon"),
    (["-D", "high-availability.type=embedded", "app.py"], "a cluster has several processes"),
    (["-D", "taskmanager.spare-drivers=1000", "app.py"], "spare"),
    (["-D", "rest.bind-address=0.0.0.0", "app.py"], "rest.bind-address is '0.0.0.0'"),
    (["-D", "rest.bind-port=38111", "app.py"], "2 JobManagers are to be started, and 1 found"),
    (["-D", "high-availability.storageDir=app.py", "app.py"], "storageDir cannot be used"),
    (["-D", "high-availability.storageDir=app.py", *NAMED, "app.py"], "is no directory"),
    (["-D", "high-availability.storageDir=/proc/none", *NAMED, "app.py"], "cannot be used"),
    (["--python", "/nowhere", "app.py"], "--python /nowhere: there is no Python"),
    (["-m", "nowhere.main"], "-m nowhere.main: no module 'nowhere' in"),
    (["app:nothing"], "app.py has no 'nothing'; its functions: none"),
    (["-D", "high-availability.type=pigeon", "app.py"], "high-availability.type is 'pigeon'"),
    (["--slots", "0", "app.py"], "--slots"),
    (["--colour", "app.py"], "--colour"),
    ([], "give APP"),
]
"""Arguments, and what is said to them."""

KEPT = ("bad.py, line 1", "did you mean", "storageDir cannot be used", "give APP")
"""What `make test` tries of it: the application, a setting, a place, no argument."""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *quickly(BAD_USAGE, [bad for bad in BAD_USAGE if bad[1].startswith(KEPT)]),
        pytest.param(
            ["-D", "high-availability.leader-election.lease-duration=1s", "app.py"],
            "must be longer than renew-deadline",
            marks=[pytest.mark.filesystem, pytest.mark.long],
        ),
    ],
)
def test_bad_usage_is_told_and_nothing_is_started(
    place: Path, arguments: list[str], said: str
) -> None:
    (place / "app.py").write_text("print('ran')")
    (place / "bad.py").write_text("x = (")
    done = command(place, "run-application", *arguments, code=2)

    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / "state").exists()


def test_a_run_can_be_asked_about_while_it_runs_and_after(start: Start, place: Path) -> None:
    run = start("three.py", options=NAMED)
    run.running("second job")
    running = json.loads(command(place, "list", "--json").stdout)["applications"][0]
    application = running["id"]
    info = json.loads(command(place, "info", application[:10], "--json").stdout)
    early = command(place, "result", application, "--json", code=4)
    run.release()
    run.finish()
    after = json.loads(command(place, "list", *NAMED, "--json").stdout)["applications"][0]
    result = json.loads(command(place, "result", application, "--json").stdout)
    by_run = command(place, "result", running["run-id"])
    logs = command(place, "logs", application[:8]).stdout

    assert ("RUNNING", "flights") == (running["status"], running["cluster-id"])
    assert {"first job": True, "second job": True} == {
        job["name"]: job["reached"] for job in info["jobs"]
    }
    assert "RUNNING" == json.loads(early.stdout)["status"]
    assert ("FINISHED", application) == (after["status"], after["id"])
    values = {
        one["job-execution-result"]["name"]: one["job-execution-result"]["value"]
        for one in result["jobs"]
    }
    assert {"name": "first", "attempt": 1} == values["first job"]
    assert 1 == values["second job"]
    assert "third job: FINISHED in attempt 1" in by_run.stdout
    assert "[main] values" in logs


def test_the_processes_of_a_cluster_are_shown_with_what_they_do(start: Start, place: Path) -> None:
    run = start(
        "three.py",
        options=("-D", "high-availability.cluster-id=seen", "--run-id", "one"),
        standbys=1,
    )
    run.at_work()
    leader = run.standby_is_ready()["leader"]
    _, slot = run.busy()
    rows = json.loads(command(place, "ps", "--json").stdout)["processes"]
    ours = [one for one in rows if one["pid"] in harness.processes_of(place)]
    printed = command(place, "ps").stdout
    run.release()
    run.finish()
    after = {one["pid"] for one in json.loads(command(place, "ps", "--json").stdout)["processes"]}

    assert {("seen", "one", "three")} == {
        (one["cluster_id"], one["run_id"], one["application"]) for one in ours
    }
    kinds = Counter(one["kind"] for one in ours)
    assert kinds.pop("main") >= 2  # Each JobManager has one that waits.
    assert {"run-application": 1, "jobmanager": 2, "taskmanager": 1, "driver": 3} == kinds
    does = {one["pid"]: one["does"] for one in ours}
    assert run.process.pid in does
    assert "leads" == does[leader["pid"]]
    assert ["stands by"] == [
        one["does"] for one in ours if one["kind"] == "jobmanager" and one["pid"] != leader["pid"]
    ]
    assert "runs 'second job', attempt 1" == does[slot["driver_pid"]]
    assert all(0 <= time.time() - one["started_at"] < 600 for one in ours)
    # Clusters of other tests are shown, too.
    line = next(one for one in printed.splitlines() if str(slot["driver_pid"]) in one.split())
    assert {"seen", "one", "three"} < {*line.split()}
    assert "runs 'second job', attempt 1" in line
    assert set() == after & set(does)


@pytest.mark.long
def test_storage_is_read_when_nobody_leads(start: Start, place: Path) -> None:
    run = start("three.py", options=NAMED)
    run.running("second job")
    run.process.terminate()
    run.finish()
    listed = json.loads(command(place, "list", "--json").stdout)["applications"][0]
    info = json.loads(command(place, "info", listed["id"], "--json").stdout)
    result = json.loads(command(place, "result", listed["id"], "--json", code=4).stdout)
    checked = json.loads(
        command(place, "check", *harness.SESSION_LESS, *NAMED, "--json", "three.py").stdout
    )

    assert ("INTERRUPTED", None) == (listed["status"], listed["leader"])
    assert ["FINISHED", "RECONCILING"] == [job["state"] for job in info["jobs"]]
    unfinished = {"run": listed["run-id"], "kept": ["first job"], "to do": ["second job"]}
    assert [unfinished] == checked["unfinished"]
    assert ["COMPLETED", "IN_PROGRESS"] == [one["status"]["id"] for one in result["jobs"]]


class Stranger(BaseHTTPRequestHandler):
    """Answers everything as a JobManager of another cluster would have, some versions ago."""

    def do_GET(self) -> None:
        body = json.dumps({"applications": [], "leader": {"id": "strange"}, "attention": []})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())


@pytest.mark.long  # Units: tests/api/test_remote.py.
def test_a_stranger_at_the_address_of_a_dead_leader_is_not_believed(
    start: Start, place: Path
) -> None:
    run = start("three.py", options=("-D", "high-availability.cluster-id=flights"))
    run.running("second job")
    address = urllib.parse.urlsplit(run.rest)
    harness.kill(harness.processes_of(place))
    run.finish()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # Then another test's JobManager is the stranger.
            server = ThreadingHTTPServer((address.hostname or "", address.port or 0), Stranger)
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        listed = json.loads(command(place, "list", "--json").stdout)

    assert ["three"] == [one["name"] for one in listed["applications"]]


@pytest.mark.long
def test_a_jobmanager_refuses_a_request_that_is_meant_for_another_one(start: Start) -> None:
    run = start("three.py")
    run.running("second job")
    request = urllib.request.Request(run.rest + "/overview", headers={"x-understudy-to": "other"})

    with pytest.raises(urllib.error.HTTPError, match="421"):
        urllib.request.urlopen(request, timeout=10)

    run.release()
    assert 0 == run.finish()


def test_cancel_ends_an_application_with_exit_code_3(start: Start, place: Path) -> None:
    run = start("three.py", options=NAMED)
    run.running("second job")
    application = run.of("application-status")[0]["application_id"]
    command(place, "cancel", application)
    code = run.finish()
    again = command(place, "result", application, "--json", code=3)
    missing = command(place, "cancel", "no-such-thing", code=1)

    assert 3 == code
    assert "CANCELED" == json.loads(again.stdout)["status"]
    assert "there is no 'no-such-thing'" in missing.stderr


@pytest.mark.long  # test_main.py has a job that is cancelled.
def test_cancelling_one_job_leaves_the_decision_to_main(start: Start, place: Path) -> None:
    run = start("three.py", options=NAMED)
    job = run.running("second job")["job_id"]
    command(place, "cancel", job)
    code = run.finish()

    assert 3 == code
    assert "understudy.errors.JobCanceled" in run.log.read_text()


@pytest.mark.long  # Units: tests/api/test_client.py.
def test_commands_keep_working_while_the_leader_changes(start: Start, place: Path) -> None:
    run = start("three.py", options=NAMED, standbys=1)
    run.running("second job")
    for _ in range(2):
        os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
        listed = json.loads(command(place, "list", "--json").stdout)["applications"]

        assert ["RUNNING"] == [one["status"] for one in listed]
        run.wait("takeover")
    run.release()

    assert 0 == run.finish()


@pytest.mark.long  # Units: tests/api/test_client.py.
@pytest.mark.parametrize(
    ("whom", "number"),
    list(product(["application", "job"], [signal.SIGKILL, signal.SIGTERM])),
)
def test_cancel_waits_for_the_next_leader(
    start: Start, place: Path, number: signal.Signals, whom: str
) -> None:
    """The launcher is stopped meanwhile: it would start another JobManager at once."""
    run = start("three.py", options=[*NAMED, *harness.impatient()])
    ids = {"job": run.running("second job")["job_id"]}
    ids["application"] = run.of("application-status")[0]["application_id"]
    leader = run.leader()
    pids = [leader["guardian_pid"], leader["pid"]]
    run.process.send_signal(signal.SIGSTOP)
    for pid in pids if number == signal.SIGKILL else pids[1:]:
        os.kill(pid, number)
    listed = json.loads(command(place, "list", "--json").stdout)["applications"]
    waiting = subprocess.Popen(
        [*harness.COMMAND, "cancel", ids[whom]],
        cwd=place,
        env=harness.environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stderr is not None
    said = waiting.stderr.readline()
    run.process.send_signal(signal.SIGCONT)
    told, rest = waiting.communicate(timeout=harness.PATIENCE_S)
    assert 0 == waiting.returncode, said + rest
    run.finish()

    assert ["RUNNING"] == [one["status"] for one in listed]
    assert "waiting for a leader, up to rest.await-leader-timeout (30 s)" in said
    assert "" == rest
    assert f"{ids[whom]} is being cancelled" in told


def test_rest_answers_in_flinks_shapes_on_every_jobmanager(start: Start) -> None:
    run = start("three.py", standbys=1)
    job = run.running("second job")
    status = run.standby_is_ready()
    application = run.of("application-status")[0]["application_id"]
    run.until("/ha/cleanup", lambda answer: answer == {"open": []})
    for base in (status["leader"]["rest"], status["standbys"][0]["rest"]):
        _check_rest(run, base, application, job["job_id"])
    run.release()

    assert 0 == run.finish()


def _check_rest(run: harness.Run, base: str, application: str, job: str) -> None:
    overview = run.get("/overview", base)
    applications = run.get("/applications/overview", base)["applications"]
    detail = run.get(f"/v1/applications/{application}", base)
    jobs = run.get("/jobs/overview", base)["jobs"]
    result = run.get(f"/jobs/{detail['jobs'][0]['jid']}/execution-result", base)
    managers = run.get("/taskmanagers", base)["taskmanagers"]
    slots = managers[0]["slots"]

    assert (1, 2, 1) == (
        overview["taskmanagers"],
        overview["slots-total"],
        overview["jobs-finished"],
    )
    assert {"FINISHED": 1, "RUNNING": 1} == applications[0]["jobs"]
    assert ("RUNNING", -1) == (detail["status"], detail["end-time"])
    assert ["FINISHED", "RUNNING"] == [one["state"] for one in jobs]
    assert ("COMPLETED", "dirty") == (result["status"]["id"], result["cleanup"])
    assert "SUCCEEDED" == result["job-execution-result"]["application-status"]
    assert "RUNNING" == run.get(f"/jobs/{job}", base)["state"]
    assert [] == run.get(f"/jobs/{job}/exceptions", base)["exceptionHistory"]["entries"]
    assert job == next(slot["job_id"] for slot in slots if slot["state"] == "busy")
    assert {"open": []} == run.get("/ha/cleanup", base)
    assert 404 == _status(f"{base}/jobs/{'0' * 32}")
    assert 404 == _status(f"{base}/applications/{'0' * 32}")
    assert 404 == _status(f"{base}/nowhere")


@pytest.mark.long  # Units: tests/api/test_failures.py.
def test_a_failed_attempt_is_told_in_the_exceptions(start: Start) -> None:
    run = start("mains.py", "caught", "wait", options=("-D", "restart-strategy.type=none"))
    failed = run.wait("job-status", name="fail", status="FAILED")
    answer: Any = run.get(f"/jobs/{failed['job_id']}/exceptions")
    run.release()
    code = run.finish()

    entry = answer["exceptionHistory"]["entries"][0]
    assert 0 == code
    assert "ValueError" == entry["exceptionName"]
    assert "no luck today" in entry["stacktrace"]


@pytest.mark.long
def test_nobody_leading_is_503_with_retry_after(start: Start) -> None:
    run = start("three.py", options=harness.impatient(), standbys=1)
    run.running("second job")
    status = run.standby_is_ready()
    standby = status["standbys"][0]["rest"]
    os.kill(status["leader"]["guardian_pid"], signal.SIGSTOP)
    os.kill(status["leader"]["pid"], signal.SIGSTOP)
    time.sleep(0.2)
    try:
        with urllib.request.urlopen(standby + "/overview", timeout=30) as answer:
            found: tuple[int, str | None] = (answer.status, None)
    except urllib.error.HTTPError as error:
        found = (error.code, error.headers["Retry-After"])
    harness.kill([status["leader"]["guardian_pid"], status["leader"]["pid"]])
    run.wait("takeover")
    run.release()

    assert 0 == run.finish()
    assert found in {(503, "1"), (200, None)}  # 200 where it took over before it answered.


def test_logs_can_be_followed(start: Start, place: Path) -> None:
    run = start("mains.py", "slow-main", options=NAMED)
    run.wait("job-status", name="say", status="FINISHED")
    application = run.of("application-status")[0]["application_id"]
    printed = command(place, "logs", application, code=None).stdout
    run.release()

    assert 0 == run.finish()
    assert "[understudy]" in printed or printed == ""


def test_version(place: Path) -> None:
    assert command(place, "--version").stdout.strip()


@pytest.mark.parametrize(
    "name",
    quickly(["run-application", "jobmanager", "taskmanager", "list", "info", "cancel"], ["cancel"]),
)
def test_help(place: Path, name: str) -> None:
    assert "Usage" in command(place, name, "--help").stdout


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    "verb",
    quickly([["list"], ["info", "3f1c"], ["destroy", "--yes", *NAMED]], [["list"]]),
)
def test_a_quorum_that_does_not_answer_is_named(place: Path, verb: list[str]) -> None:
    chosen = [
        "-D",
        "high-availability.type=zookeeper",
        "-D",
        "high-availability.zookeeper.quorum=127.0.0.1:9",
        "-D",
        "high-availability.zookeeper.client.connection-timeout=1s",
    ]
    done = command(place, verb[0], *chosen, *verb[1:], code=1)

    assert "ZooKeeper quorum 127.0.0.1:9 accepts a session" in done.stderr
    assert "refused" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.filesystem
def test_a_start_is_refused_without_its_quorum(place: Path) -> None:
    (place / "app.py").touch()
    quorum = "high-availability.zookeeper.quorum=127.0.0.1:9"
    patience = "high-availability.zookeeper.client.connection-timeout=100ms"
    chosen = ["-D", "high-availability.type=zookeeper", "-D", quorum, "-D", patience]
    done = command(place, "run-application", *chosen, *NAMED, "app.py", code=2)

    assert "the register cannot be used" in done.stderr
    assert "ZooKeeper quorum 127.0.0.1:9 accepts a session" in done.stderr


@pytest.mark.filesystem
def test_a_quorum_without_its_type_is_refused(place: Path) -> None:
    quorum = "high-availability.zookeeper.quorum=127.0.0.1:9"
    done = command(place, "run-application", "-D", quorum, "app.py", code=2)

    assert "high-availability.type is not: set it to zookeeper" in done.stderr
