"""What ``main`` may do, and what becomes of the application."""

from __future__ import annotations

import json
import os
import signal
import urllib.request

import pytest

from tests.journeys.conftest import Start
from tests.journeys.harness import Run, command
from tests.support.sampling import quickly

ENDS = [
    ("exit-0", 0, "FINISHED"),
    ("exit-3", 1, "FAILED"),
    ("raise", 1, "FAILED"),
    ("uncaught", 1, "FAILED"),
    ("unawaited", 1, "FAILED"),
]
"""How it ends, the exit code, and the application's status."""

QUICK = ("-D", "restart-strategy.exponential-delay.initial-backoff=50ms")


@pytest.mark.long
def test_a_main_without_jobs_is_finished(start: Start) -> None:
    run = start("mains.py", "no-jobs")

    assert run.finish() == 0
    assert run.of("application-finished")[0]["jobs"] == []


@pytest.mark.parametrize(("how", "code", "status"), quickly(ENDS, ENDS[:1]))
def test_how_main_ends_is_how_the_application_ends(
    start: Start, how: str, code: int, status: str
) -> None:
    run = start("mains.py", how, options=QUICK)

    assert code == run.finish()
    assert status == run.of("application-finished")[0]["status"]
    assert ["x"] * len(run.lines("main.txt")) == ["x"] * 1


@pytest.mark.long  # test_crash_loops.py has one that kills its guardian.
def test_a_main_that_dies_by_a_signal_is_executed_again(start: Start) -> None:
    run = start("mains.py", "die-once")

    assert run.finish() == 0
    assert len(run.lines("main.txt")) == 2
    assert run.lines("jobs.txt") == ["one 1"]


def test_a_plain_script_that_runs_as_main_runs_again_when_it_died(start: Start) -> None:
    run = start("plain.py", options=("--as", "main"))

    assert run.finish() == 0
    assert len(run.lines("seen.txt")) == 2
    assert "[main] second time lucky" in run.log.read_text()


def test_two_jobs_of_one_name_are_two_jobs(start: Start) -> None:
    run = start("mains.py", "same-name")

    assert run.finish() == 0
    assert run.lines("jobs.txt") == ["one 1", "two 1"]
    assert "two jobs are named 'twin'" in run.log.read_text()


@pytest.mark.long  # test_crash_loops.py has such a job.
def test_a_job_that_always_fails_is_tried_again_and_then_caught(start: Start) -> None:
    run = start("mains.py", "caught", options=QUICK)

    assert run.finish() == 0
    assert [f"luck {attempt}" for attempt in (1, 2, 3, 4)] + ["after 1"] == run.lines("jobs.txt")
    assert run.lines("caught.txt") == ["ValueError True"]


@pytest.mark.long  # test_unclean.py has such a job.
def test_a_job_may_call_sys_exit(start: Start) -> None:
    run = start("mains.py", "job-exits", options=("-D", "restart-strategy.type=none"))

    assert run.finish() == 0
    assert run.lines("caught.txt") == ["None", "SystemExit"]


def test_a_job_whose_process_dies_runs_again(start: Start) -> None:
    run = start("mains.py", "crash-once")

    assert run.finish() == 0
    assert run.lines("jobs.txt") == ["crash 1", "crash 2"]
    assert run.lines("caught.txt") == ["2"]


@pytest.mark.long
def test_main_cancels_a_job(start: Start) -> None:
    run = start("mains.py", "cancel")

    assert run.finish() == 0
    assert run.lines("caught.txt") == ["CANCELED"]


@pytest.mark.long
def test_a_cancelled_job_that_main_does_not_catch_cancels_the_application_and_is_no_failure(
    start: Start,
) -> None:
    run = start("mains.py", "cancelled", options=("-D", "taskmanager.driver.cancel-grace=10min"))
    run.grown("stubborn.txt", 1)
    job = run.running("victim")["job_id"]
    application = run.of("application-status")[0]["application_id"]
    request = urllib.request.Request(f"{run.rest}/jobs/{job}", method="PATCH")
    with urllib.request.urlopen(request) as answer:
        assert 202 == answer.status
    run.wait("application-status", status="CANCELING")
    asked = [f"/applications/{application}", f"/jobs/{job}"]
    asked += [f"/jobs/{one['jid']}" for one in run.get("/jobs/overview")["jobs"]]
    meanwhile = [run.get(f"{one}/exceptions")["exceptionHistory"]["entries"] for one in asked]
    run.release()
    code = run.finish()

    assert [[], [], [], []] == meanwhile
    assert 3 == code
    ended = run.of("application-finished")[0]
    assert ("CANCELED", None) == (ended["status"], ended["failure"])
    assert [] == run.of("application-status", status="FAILING")


@pytest.mark.long  # Units: tests/core/test_values.py.
def test_a_value_that_is_not_json_is_refused_with_its_path(start: Start) -> None:
    run = start("mains.py", "bad-value")

    assert run.finish() == 0
    assert "$.rows[1]: nan is not JSON" in run.lines("caught.txt")[0]


def test_two_jobs_run_at_once(start: Start) -> None:
    run = start("mains.py", "two-at-once")
    run.grown("jobs.txt", 2)
    run.release()

    assert run.finish() == 0
    assert sorted(run.lines("jobs.txt")) == ["left 1", "right 1"]


@pytest.mark.parametrize("slots", quickly(["1", "2"], ["2"]))
def test_a_job_gives_way_when_main_takes_another_path(start: Start, slots: str) -> None:
    run = start(
        "mains.py",
        "branch",
        options=(
            "-D",
            "high-availability.cluster-id=branch",
            "--slots",
            slots,
            "-D",
            "execution.recovery.unreached-grace=1s",
        ),
        standbys=1,
    )
    run.running("job 1")
    run.grown("jobs.txt", 1)
    _kill_leader(run)
    finished = run.wait("application-finished")

    assert run.finish() == 0
    told = json.loads(command(run.place, "info", finished["run_id"], "--json").stdout)["jobs"]
    gone = next(job for job in told if job["name"] == "job 1")
    assert (False, True) == (gone["reached"], gone["displaced"]), "also after the end"
    assert "displaced, as main took another path" in gone["reason"]
    assert run.lines("jobs.txt") == ["one 1", "two 1"]
    assert {job["name"]: job["status"] for job in finished["jobs"]} == {
        "job 1": "CANCELED",
        "job 2": "FINISHED",
    }
    assert run.of("takeover")[0]["displaced"] == ["job 1"]


@pytest.mark.long
def test_an_attempt_waits_for_a_main_that_is_late(start: Start) -> None:
    run = start("mains.py", "late", standbys=1)
    run.running("job 1")
    _kill_leader(run)
    takeover = run.wait("takeover")
    run.release()

    assert run.finish() == 0
    assert takeover["adopted"] == ["job 1"]
    assert run.lines("jobs.txt") == ["one 1"]


@pytest.mark.long  # Worlds: tests/sim/test_worlds.py.
def test_a_job_that_ends_while_nobody_leads_is_not_run_again(start: Start) -> None:
    run = start("mains.py", "late", standbys=1)
    run.running("job 1")
    leader = run.standby_is_ready()["leader"]
    os.kill(leader["pid"], signal.SIGSTOP)  # It does not hear how the job ends.
    run.release()
    os.kill(leader["pid"], signal.SIGKILL)

    assert run.finish() == 0
    assert run.lines("jobs.txt") == ["one 1"]
    assert len(run.lines("main.txt")) == 2


@pytest.mark.long
@pytest.mark.parametrize("name", quickly(["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"], ["SIGTERM"]))
def test_a_signal_to_main_is_its_loss_and_the_job_is_adopted(start: Start, name: str) -> None:
    run = start("three.py")
    run.running("second job")
    os.kill(run.main_pid(), signal.Signals[name])
    run.grown("main.txt", 2)
    run.release()

    assert run.finish() == 0
    assert run.lines("jobs.txt") == ["first 1", "long 1", "third 1"]


@pytest.mark.long  # Units: tests/application/test_main_signals.py.
def test_main_may_be_interrupted_between_two_jobs(start: Start) -> None:
    run = start("mains.py", "slow-main", standbys=1)
    run.wait("job-status", name="say", status="FINISHED")
    _kill_leader(run)
    run.grown("main.txt", 2)
    run.release()

    assert run.finish() == 0
    assert run.lines("jobs.txt") == ["one 1", "two 1"]
    assert run.of("takeover")[0]["skipped"] == ["say"]


def _kill_leader(run: Run) -> None:
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
