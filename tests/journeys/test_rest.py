"""REST of real processes: configuration, exceptions and logs, of what runs and what has ended."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import COMMAND, SESSION_LESS, Event, Run, command
from understudy.model import ApplicationStatus

QUICK = (
    *("-D", "restart-strategy.type=fixed-delay"),
    *("-D", "restart-strategy.fixed-delay.attempts=1"),
    *("-D", "restart-strategy.fixed-delay.delay=10ms"),
)
NOBODY = "0" * 32
SETTINGS = (
    "high-availability.cluster-id=told",
    "restart-strategy.type=fixed-delay",
    "restart-strategy.fixed-delay.attempts=1",
    "restart-strategy.fixed-delay.delay=10ms",
    "security.redaction.additional-keys=pin",
)
ANSWERED = (
    "exceptions",
    "jobmanager/config",
    "log",
)


class Receiver:
    """Who is told what happens, by ``notify.url``."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        events = self.events

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                events.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hooks/told-by-token"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@dataclass(frozen=True)
class Answer:
    """What REST answers."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(url: str) -> Answer:
    """Ask once, whatever the answer is."""
    try:
        with urllib.request.urlopen(url, timeout=harness.PATIENCE_S) as answer:
            return Answer(answer.status, answer.read(), _lower(answer.headers))
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read(), _lower(error.headers))


def _lower(headers: Any) -> dict[str, str]:
    return {key.lower(): text for key, text in headers.items()}


@dataclass
class Told:
    """One run, which most tests of this module ask; then one ends it."""

    run: Run
    receiver: Receiver
    application: str
    bases: tuple[str, str]
    """Of the leader, and of a standby."""
    jobs: dict[str, str]

    @property
    def log(self) -> Path:
        (path,) = (self.run.place / "state").rglob(f"*{self.application}.log")
        return path

    @property
    def one(self) -> str:
        return f"{self.bases[0]}/applications/{self.application}"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    place = tmp_path_factory.mktemp("told")
    receiver = Receiver()
    script = harness.put_app(place, "told.py")
    settings = [*SETTINGS, f"notify.url={receiver.url}"]
    secrets = ["spark.hadoop.fs.s3a.secret.key=hush", "spark.my.pin=1234", "spark.shown=yes"]
    options = [word for setting in settings for word in ("-D", setting)]
    options += [word for setting in secrets for word in ("--conf", setting)]
    line = [*COMMAND, "run-application", "--json", *SESSION_LESS, *options, str(script)]
    run = Run(line, place, place / "stderr.log")
    try:
        run.running("wait")
        status = run.standby_is_ready()
        application = run.of("application-status")[0]["application_id"]
        jobs = {job["name"]: job["jid"] for job in run.get(f"/applications/{application}")["jobs"]}
        bases = (status["leader"]["rest"], status["standbys"][0]["rest"])
        yield Told(run, receiver, application, bases, jobs)
    finally:
        harness.end(run)
        receiver.server.shutdown()


def settings_of(answer: Answer) -> dict[str, str]:
    assert 200 == answer.status, answer.text
    assert all({"key", "value"} == set(entry) for entry in answer.json)
    return {entry["key"]: entry["value"] for entry in answer.json}


@pytest.mark.parametrize("base", [0, 1], ids=["leader", "standby"])
@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_the_jobmanagers_configuration_is_shown_without_secrets(
    told: Told, base: int, prefix: str
) -> None:
    shown = settings_of(ask(f"{told.bases[base]}{prefix}/jobmanager/config"))

    assert "told" == shown["high-availability.cluster-id"]
    assert shown["notify.url"].startswith("http://127.0.0.1:")
    assert shown["notify.url"].endswith("/******")


def test_an_applications_configuration_is_what_it_was_submitted_with(told: Told) -> None:
    shown = settings_of(ask(f"{told.one}/jobmanager/config"))

    assert {
        "spark.hadoop.fs.s3a.secret.key": "******",
        "spark.my.pin": "******",
        "spark.shown": "yes",
        "restart-strategy.type": "fixed-delay",
    }.items() <= shown.items()
    assert "token" not in json.dumps(shown)


def test_a_jobs_configuration_is_that_of_its_application(told: Told) -> None:
    expected = settings_of(ask(f"{told.one}/jobmanager/config"))

    actual = settings_of(ask(f"{told.bases[0]}/jobs/{told.jobs['wait']}/jobmanager/config"))

    assert expected == actual


def test_what_a_running_application_has_survived_stands_with_its_jobs_only(told: Told) -> None:
    jobs = f"{told.bases[0]}/jobs"
    of_application = ask(f"{told.one}/exceptions").json["exceptionHistory"]
    unlucky = ask(f"{jobs}/{told.jobs['unlucky']}/exceptions").json["exceptionHistory"]
    crashed = ask(f"{jobs}/{told.jobs['crash_once']}/exceptions").json["exceptionHistory"]

    assert {"entries": [], "truncated": False} == of_application
    assert {"ValueError"} == {one["exceptionName"] for one in unlucky["entries"]}
    assert ["AttemptLost"] == [one["exceptionName"] for one in crashed["entries"]]
    times = [one["timestamp"] for one in unlucky["entries"]]
    assert sorted(times, reverse=True) == times
    assert all(time_ms > 1_600_000_000_000 for time_ms in times)


@pytest.mark.parametrize(("maximum", "count"), [("0", 0), ("1", 1), ("000002", 2)])
def test_no_more_exceptions_are_told_than_wanted(told: Told, maximum: str, count: int) -> None:
    job = f"{told.bases[0]}/jobs/{told.jobs['unlucky']}"
    answer = ask(f"{job}/exceptions?maxExceptions={maximum}").json["exceptionHistory"]

    assert count == len(answer["entries"])
    assert (count < 2) == answer["truncated"]


def test_a_running_application_starts_when_it_runs(told: Told) -> None:
    detail = ask(told.one).json
    times = detail["timestamps"]

    assert {one.value for one in ApplicationStatus} == set(times)
    assert 0 < times["CREATED"] <= times["RUNNING"] == detail["start-time"]
    assert {0} == {times[one] for one in times if one not in {"CREATED", "RUNNING"}}


@pytest.mark.parametrize("mode", ["stop", "", "kill"])
def test_an_unknown_way_to_end_a_job_is_refused(told: Told, mode: str) -> None:
    url = f"{told.bases[0]}/jobs/{told.jobs['wait']}?mode={mode}"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, method="PATCH"))

    assert 400 == refused.value.code
    assert "expected cancel" in refused.value.read().decode()


@pytest.mark.parametrize("base", [0, 1], ids=["leader", "standby"])
@pytest.mark.parametrize("text", ["", "-1", "many", "1.5", "%D9%A3", "1_0", "9" * 30])
@pytest.mark.parametrize("what", ["exceptions?maxExceptions", "log?offset"])
def test_a_bad_number_is_refused_with_400(told: Told, base: int, text: str, what: str) -> None:
    answer = ask(f"{told.bases[base]}/applications/{told.application}/{what}={text}")

    assert 400 == answer.status
    assert "expected a whole number" in answer.json["errors"][0]


@pytest.mark.parametrize("what", ANSWERED)
def test_an_unknown_application_is_404(told: Told, what: str) -> None:
    answer = ask(f"{told.bases[0]}/applications/{NOBODY}/{what}")

    assert 404 == answer.status
    assert answer.json["errors"]


@pytest.mark.parametrize("what", ["exceptions", "jobmanager/config"])
def test_an_unknown_job_is_404(told: Told, what: str) -> None:
    assert 404 == ask(f"{told.bases[0]}/jobs/{NOBODY}/{what}").status


@pytest.mark.parametrize("base", [0, 1], ids=["leader", "standby"])
def test_a_log_is_read_and_followed_on_from_its_offset(told: Told, base: int) -> None:
    url = f"{told.bases[base]}/applications/{told.application}/log"
    whole = ask(url)
    offset = int(whole.headers["x-understudy-next-offset"])
    before = ask(f"{url}?offset={offset - 10}")

    assert whole.headers["content-type"].startswith("text/plain")
    assert "nosniff" == whole.headers["x-content-type-options"]
    assert "[main] main speaks: café [red]" in whole.text
    assert "[understudy]" in whole.text
    assert len(whole.body) == offset
    assert before.body.startswith(whole.body[-10:])


def test_the_jobmanagers_log_is_what_the_processes_logged(told: Told) -> None:
    lines = ask(f"{told.bases[0]}/jobmanager/log").text.splitlines()

    assert any("granted term 1" in line for line in lines)
    assert all(re.match(r"\S+ \[understudy\] ", line) for line in lines)


@pytest.mark.long
def test_a_wrong_address_is_refused_at_start(place: Path) -> None:
    (place / "app.py").write_text("print('ran')")
    for url in ("ftp://host/hook", "somebody@example", "http://", "https://u:hush@:x/"):
        done = command(place, "run-application", "-D", f"notify.url={url}", "app.py", code=2)

        assert "notify.url is" in done.stderr
        assert "http or https" in done.stderr
        assert "hush" not in done.stderr
        assert not (place / "state").exists()


def test_each_event_was_posted_in_its_order(told: Told) -> None:
    """It ends the shared run: what was printed was posted, and nothing else."""
    told.run.release()

    assert 0 == told.run.finish()
    assert told.run.events == told.receiver.events
    assert "application-finished" == told.receiver.events[-1]["event"]


@pytest.mark.long  # Units: tests/api/test_bodies.py.
def test_what_has_ended_is_told_while_another_run_goes_on(told: Told) -> None:
    """After the end of the shared run, of which the tombstone and the log remain."""
    place = told.run.place
    script = harness.put_app(place, "mains.py")
    (place / "go").unlink()
    line = [*COMMAND, "run-application", "--json", *SESSION_LESS, "-D", SETTINGS[0]]
    run = Run([*line, str(script), "slow-main"], place, place / "again.log")
    try:
        run.wait("job-status", name="say", status="FINISHED")
        history = run.get(f"/applications/{told.application}/exceptions")
        job = f"/jobs/{told.jobs['unlucky']}"
        config = settings_of(ask(f"{run.rest}/applications/{told.application}/jobmanager/config"))
        of_job = settings_of(ask(f"{run.rest}{job}/jobmanager/config"))
        log = ask(f"{run.rest}/applications/{told.application}/log").text
        own_log = ask(f"{run.rest}/jobmanager/log").text
        failures = run.get(f"{job}/exceptions")
        detail, one = run.get(f"/applications/{told.application}"), run.get(job)
        listed = run.get("/applications/overview")["applications"]
        jobs = {each["jid"] for each in run.get("/jobs/overview")["jobs"]}
        overview = run.get("/overview")
        told.log.unlink()
        removed = ask(f"{run.rest}/applications/{told.application}/log")
        run.release()
        code = run.finish()
    finally:
        harness.end(run)

    assert 0 == code
    assert "fixed-delay" == config["restart-strategy.type"]
    assert "******" == config["spark.my.pin"]
    assert config == of_job
    assert [] == history["exceptionHistory"]["entries"], "it has finished"
    assert detail["timestamps"]["RUNNING"] == detail["start-time"] > 0
    assert detail["timestamps"]["FINISHED"] == detail["end-time"]
    assert {"FINISHED": 2, "FAILED": 1} == next(
        each["jobs"] for each in listed if each["id"] == told.application
    )
    assert set(told.jobs.values()) < jobs
    assert (1, 3, 1) == (
        overview["applications-finished"],
        overview["jobs-finished"],
        overview["jobs-failed"],
    )
    assert (True, False) == (one["reached"], one["displaced"])
    assert {"now", "vertices", "plan", "status-counts"} <= set(one)
    assert 0 < one["timestamps"]["CREATED"] <= one["timestamps"]["RUNNING"]
    assert one["end-time"] == one["timestamps"]["FAILED"]
    assert "no luck in attempt 2" in failures["root-exception"]
    assert [(2, "ValueError"), (1, "ValueError")] == [
        (one["attempt"], one["exceptionName"]) for one in failures["exceptionHistory"]["entries"]
    ]
    assert "main speaks" in log
    assert "main speaks" not in own_log
    assert 404 == removed.status
    assert "env.log.max" in removed.json["errors"][0]


def test_a_cluster_that_outlives_its_application_tells_the_one_cause_of_its_failure(
    start: Start,
) -> None:
    stay = ("-D", "execution.shutdown-on-application-finish=false")
    run = start("mains.py", "uncaught", options=(*stay, *QUICK), standbys=1)
    run.wait("application-finished", status="FAILED")
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    run.wait("leader", term=2)
    (application,) = run.get("/applications/overview")["applications"]
    (job,) = run.get("/jobs/overview")["jobs"]
    detail = run.get(f"/applications/{application['id']}")
    causes = run.get(f"/applications/{application['id']}/exceptions")["exceptionHistory"]["entries"]
    of_job = run.get(f"/jobs/{job['jid']}/exceptions")["exceptionHistory"]["entries"]
    run.standby_is_ready()  # Who was killed has been replaced.
    run.process.send_signal(signal.SIGTERM)
    code = run.finish()

    assert 1 == code
    assert ("FAILED", {"FAILED": 1}) == (application["status"], application["jobs"])
    assert [job["jid"]] == [one["jobId"] for one in causes]
    assert "JobFailed" in causes[0]["exceptionName"]
    assert "ValueError" == of_job[0]["exceptionName"]
    assert 0 < detail["timestamps"]["FAILING"] <= detail["timestamps"]["FAILED"]
    assert "JobFailed" in detail["failure"]["class"]
    assert 1 == len(run.lines("main.txt"))


@pytest.mark.long
def test_why_an_attempt_was_lost_is_told_by_the_next_leader_and_after_the_end(
    start: Start,
) -> None:
    stay = ("-D", "execution.shutdown-on-application-finish=false")
    run = start("three.py", options=(*stay, *harness.LASTING, *harness.impatient()), standbys=1)
    run.at_work()
    _, slot = run.busy()
    os.kill(slot["driver_pid"], signal.SIGKILL)
    run.grown("jobs.txt", 3)
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    run.wait("leader", term=2)
    jobs = run.until("/jobs/overview", lambda told: len(told["jobs"]) == 2)["jobs"]
    job = next(one["jid"] for one in jobs if one["name"] == "second job")
    led = run.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
    run.release()
    run.wait("application-finished", status="FINISHED")
    ended = run.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
    run.process.send_signal(signal.SIGTERM)
    code = run.finish()

    assert 0 == code, run.story()
    assert [(1, "AttemptLost")] == [(one["attempt"], one["exceptionName"]) for one in led]
    assert "killed by signal 9" in led[0]["stacktrace"]
    assert led == ended


@pytest.mark.long  # Units: tests/cli/test_notify.py.
def test_a_jobmanager_in_the_foreground_posts_its_own_events(place: Path) -> None:
    receiver = Receiver()
    script = harness.put_app(place, "mains.py")
    options = ["-D", f"notify.url={receiver.url}", *SESSION_LESS]
    command(place, "jobmanager", *options, str(script), "no-jobs", code=0)
    kinds = [event["event"] for event in receiver.events]
    receiver.server.shutdown()

    assert {"jobmanager-started", "leader", "application-status", "application-finished"} <= set(
        kinds
    )
    assert list(range(1, len(kinds) + 1)) == [event["seq"] for event in receiver.events]


@pytest.mark.long  # Units: tests/cli/test_notify.py.
def test_nobody_listening_does_not_keep_a_run_from_its_end(place: Path) -> None:
    script = harness.put_app(place, "mains.py")
    options = ["-D", "notify.url=http://127.0.0.1:9/hook", *SESSION_LESS]
    done = command(place, "run-application", "--json", *options, str(script), "no-jobs", code=0)
    events = [json.loads(line) for line in done.stdout.splitlines()]

    assert "FINISHED" == events[-1]["status"]
    assert re.search(rf"notify\.url: {len(events)} events were not delivered", done.stderr)
    assert 1 == done.stderr.count("the run continues")
