"""A job's own options: a limit on retries, a timeout, and the end of a parallel block."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.journeys.conftest import Start

OPTIONS = (
    *("-D", "restart-strategy.exponential-delay.initial-backoff=10ms"),
    *("-D", "taskmanager.driver.cancel-grace=300ms"),
)


@pytest.mark.long  # Units: tests/jobmanager/test_submitted_with.py.
def test_a_failover_keeps_a_jobs_limits_and_a_timeout_ends_what_does_not_end(
    start: Start, nothing_left: Callable[[], None]
) -> None:
    run = start("limits.py", options=OPTIONS, standbys=1)
    run.grown("jobs.txt", 2)
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    run.wait("takeover")
    run.release()
    code = run.finish()
    failed = {event["name"]: event for event in run.of("attempt-failed")}
    ends = {event["name"]: event["status"] for event in run.of("job-status")}

    assert 0 == code, run.story()
    assert ["luckless: ValueError", "does not end: understudy.errors.JobTimedOut"] == run.lines(
        "main.txt"
    )
    assert ["luckless 1", "luckless 2", "stubborn 1", "stubborn is interrupted"] == run.lines(
        "jobs.txt"
    )[:4]
    assert "stubborn 2" not in run.lines("jobs.txt")
    assert "not restarted: the job allows one restart (retries=1)" == failed["luckless"]["reason"]
    assert (
        "not restarted: a job that exceeds its timeout is not retried"
        == (failed["does not end"]["reason"])
    )
    assert {"endless": "CANCELED", "luckless": "FAILED", "does not end": "FAILED"} == ends
    nothing_left()
