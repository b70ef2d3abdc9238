"""The leader is lost, in every way; the job in flight does not notice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.journeys import harness
from tests.journeys.conftest import Start
from tests.journeys.harness import BY_PROOF_S, LASTING, impatient
from tests.support.sampling import quickly

KILLS = 4


@pytest.mark.parametrize("number", quickly([signal.SIGKILL, signal.SIGTERM], [signal.SIGKILL]))
def test_a_job_runs_on_while_its_leader_is_lost_again_and_again(
    start: Start, nothing_left: Callable[[], None], number: signal.Signals
) -> None:
    run = start("three.py", standbys=1)
    run.running("second job")
    driver = run.busy()[1]["driver_pid"]
    seconds = []
    for _ in range(KILLS):
        status = run.standby_is_ready()
        os.kill(status["leader"]["pid"], number)
        seconds.append(run.wait("takeover")["seconds"])
    same_driver = run.busy()[1]["driver_pid"] == driver
    run.release()
    finished = run.wait("application-finished")
    code = run.finish()

    assert (code, finished["status"]) == (0, "FINISHED")
    assert same_driver
    assert run.lines("jobs.txt") == ["first 1", "long 1", "third 1"]
    assert len(run.lines("main.txt")) == KILLS + 1
    assert max(seconds) < BY_PROOF_S, seconds
    assert [event["adopted"] for event in run.of("takeover")] == [["second job"]] * KILLS
    nothing_left()


def test_guardian_and_worker_of_the_leader_are_killed_together(start: Start) -> None:
    run = start("three.py", standbys=1)
    run.running("second job")
    leader = run.standby_is_ready()["leader"]
    harness.kill([leader["guardian_pid"], leader["pid"]])
    takeover = run.wait("takeover")
    run.release()

    assert run.finish() == 0
    assert takeover["adopted"] == ["second job"]
    assert run.lines("jobs.txt") == ["first 1", "long 1", "third 1"]


@pytest.mark.parametrize(
    "whom", quickly(["worker", "guardian and worker"], ["guardian and worker"])
)
def test_a_frozen_leader_is_deposed_and_its_main_is_dead_before_the_next_one_runs(
    start: Start, nothing_left: Callable[[], None], whom: str
) -> None:
    run = start("three.py", options=[*impatient(), *LASTING], standbys=1)
    run.running("second job")
    leader = run.standby_is_ready()["leader"]
    old_main = run.main_pid()
    pids = [leader["pid"]] if whom == "worker" else [leader["guardian_pid"], leader["pid"]]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    run.wait("leader")
    main_lines = run.grown("main.txt", 2)
    old_main_lives = os.path.exists(f"/proc/{old_main}")  # noqa: PTH110
    takeover = run.wait("takeover")
    time.sleep(1.0)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue
    time.sleep(1.0)
    leads = run.leader()
    run.release()

    assert run.finish() == 0
    assert not old_main_lives
    assert len(main_lines) == 2
    assert takeover["adopted"] == ["second job"]
    assert leads["term"] == 2
    assert run.lines("jobs.txt") == ["first 1", "long 1", "third 1"]
    nothing_left()


def test_a_leader_without_a_standby_is_replaced_and_goes_on(start: Start) -> None:
    run = start("three.py")
    run.running("second job")
    os.kill(run.leader()["pid"], signal.SIGKILL)
    takeover = run.wait("takeover")
    run.release()

    assert run.finish() == 0
    assert takeover["adopted"] == ["second job"]
    assert run.lines("jobs.txt") == ["first 1", "long 1", "third 1"]


@pytest.mark.long  # Units: tests/guardian/test_guarded.py.
def test_a_frozen_guardian_harms_nobody(start: Start) -> None:
    run = start("three.py", options=impatient(), standbys=1)
    run.running("second job")
    leader = run.standby_is_ready()["leader"]
    os.kill(leader["guardian_pid"], signal.SIGSTOP)
    time.sleep(3.0)
    os.kill(leader["guardian_pid"], signal.SIGCONT)
    time.sleep(1.0)
    same = run.leader()["pid"] == leader["pid"]
    run.release()

    assert run.finish() == 0
    assert same
    assert len(run.lines("main.txt")) == 1


@pytest.mark.long  # Units: tests/ha/test_registry.py.
def test_the_history_tells_who_led_and_why_it_ended(start: Start) -> None:
    run = start("three.py", standbys=1)
    run.running("second job")
    first = run.standby_is_ready()["leader"]
    os.kill(first["pid"], signal.SIGKILL)
    run.wait("takeover")
    status = run.until(
        "/ha/status", lambda answer: answer["history"][-1]["takeover_seconds"] is not None
    )
    run.release()
    run.finish()

    before, now = status["history"]
    assert (1, first["id"], "it died") == (before["term"], before["holder"], before["reason"])
    assert before["lost_at"] >= before["granted_at"]
    assert (2, status["leader"]["id"]) == (now["term"], now["holder"])
    assert now["takeover_seconds"] == pytest.approx(run.of("takeover")[0]["seconds"], abs=0.01)
