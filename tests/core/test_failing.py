"""What is told of an attempt that failed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.job_words import MIDDLE, J, P, failed, finished, lost, raised
from understudy.core import failing, job
from understudy.core.failing import NEVER, Failed
from understudy.core.job import Event, JobState, Phase
from understudy.core.restart import Strategy
from understudy.model import JobStatus, Restarts

RUNS = JobState(J, Phase.RUNNING, attempt=2, placement=P, reached=True)
CHECKS = JobState(J, Phase.CHECKING, attempt=2, reached=True, lost="killed")
NOTHING = job.Looked(None)
FIXED = Strategy("fixed-delay", 2, 5.0, 5.0, 1.0, 0.0, float("inf"))
OWN = Strategy("fixed-delay", 2, 5.0, 5.0, 1.0, 0.0, float("inf"), retries=4)
RATE = Strategy("failure-rate", 2, 1.0, 1.0, 1.0, 0.0, float("inf"), 60.0)
ENDLESS = Strategy(attempts=2**31 - 1)


def told(state: JobState, event: Event, strategy: Strategy | None = None) -> Failed | None:
    strategy = strategy or Strategy()
    after, commands = job.step(state, event, strategy, MIDDLE)
    return failing.failed(state, event, after, commands, strategy)


def with_(state: JobState, **changes: object) -> JobState:
    return replace(state, **changes)


@pytest.mark.parametrize(
    ("state", "event", "strategy", "expected"),
    [
        (RUNS, raised(2), Strategy(), Failed(2, "", 1, 3, 1.0)),
        (with_(RUNS, restarts=Restarts(failures=1)), raised(2), FIXED, Failed(2, "", 2, 2, 5.0)),
        (RUNS, raised(2), RATE, Failed(2, "", 1, 2, 1.0)),
        (RUNS, raised(2), Strategy(retries=5), Failed(2, "", 1, 5, 1.0)),
        (with_(RUNS, restarts=Restarts(failures=2)), raised(2), OWN, Failed(2, "", 3, 4, 5.0)),
        (
            with_(CHECKS, restarts=Restarts(failures=4)),
            NOTHING,
            OWN,
            Failed(2, "killed", 1, 2, 0.0),
        ),
        (RUNS, raised(2), ENDLESS, Failed(2, "", 1, None, 1.0)),
        (CHECKS, job.Looked(raised(2)), Strategy(), Failed(2, "", 1, 3, 1.0)),
        (CHECKS, NOTHING, Strategy(), Failed(2, "killed", 1, 30, 0.0)),
        (CHECKS, NOTHING, ENDLESS, Failed(2, "killed", 1, None, 0.0)),
        (with_(RUNS, reached=False), raised(2), Strategy(), Failed(2, "", 1, 3, None)),
    ],
)
def test_the_retry_that_follows_is_counted(
    state: JobState, event: Event, strategy: Strategy, expected: Failed
) -> None:
    assert expected == told(state, event, strategy)


@pytest.mark.parametrize(
    ("state", "event", "expected"),
    [
        (RUNS, failed(2), Failed(2, reason=NEVER)),
        (
            with_(RUNS, restarts=Restarts(failures=3)),
            raised(2),
            Failed(2, reason="not restarted: the restart strategy allows 3 restarts"),
        ),
        (
            with_(CHECKS, restarts=Restarts(losses=30)),
            NOTHING,
            Failed(2, "killed", reason="not restarted: its process was lost 31 times in a row"),
        ),
    ],
)
def test_why_no_retry_follows_is_said(state: JobState, event: Event, expected: Failed) -> None:
    assert expected == told(state, event)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (RUNS, finished(2)),
        (RUNS, raised(1)),
        (RUNS, job.Ended(2, JobStatus.FAILED, True, raised(2).source, 0.5, dead=False)),
        (RUNS, lost(2)),
        (RUNS, job.Cancel()),
        (CHECKS, job.Looked(finished(2))),
        (with_(RUNS, phase=Phase.STOPPING, cancelled=True), raised(2)),
        (with_(RUNS, phase=Phase.STOPPING, displaced=True), raised(2)),
        (with_(RUNS, phase=Phase.STOPPING, ends_as=JobStatus.FINISHED), raised(2)),
        (with_(CHECKS, cancelled=True), NOTHING),
    ],
)
def test_what_has_not_failed_is_not_told(state: JobState, event: Event) -> None:
    assert told(state, event) is None
