"""What the tests of an application's life say over and over."""

from __future__ import annotations

from understudy.core import application as life
from understudy.core.application import (
    ApplicationState,
    Command,
    Conclude,
    Event,
    JobEnded,
    JobView,
    MainLost,
    MainRaised,
)
from understudy.core.restart import Strategy
from understudy.model import ApplicationStatus, Failure, JobId, JobStatus

A, B = JobId("A"), JobId("B")
OOPS = Failure(type="ValueError", message="oops")
EXIT = Failure(type="SystemExit", message="3")
DIED = Failure(type="MainLost", message="the process of main was killed", time=7.0)
BAD = Failure(type="KeyError", message="bad job")
ANY_JOB = Failure(type="JobFailed", message="a job failed")

FINISHED, FAILED, CANCELED = (
    ApplicationStatus.FINISHED,
    ApplicationStatus.FAILED,
    ApplicationStatus.CANCELED,
)
STOPPED = MainRaised(EXIT)
"""What is heard of a ``main`` that was told to end."""
LEFT = ApplicationState(jobs={A: JobView(reached=False), B: JobView(reached=False)})


def live(
    state: ApplicationState,
    *events: Event,
    policy: bool | None = None,
    strategy: Strategy | None = None,
) -> tuple[ApplicationState, list[list[Command]]]:
    said = []
    for event in events:
        state, commands = life.step(state, event, strategy or Strategy(), policy, 0.5)
        said.append(commands)
    return state, said


def last(*events: Event, policy: bool | None = None) -> list[Command]:
    return live(ApplicationState(), *events, policy=policy)[1][-1]


def end(job_id: JobId, status: JobStatus = JobStatus.FINISHED) -> JobEnded:
    return JobEnded(job_id, status, BAD if status is JobStatus.FAILED else None)


def fail(job_id: JobId) -> JobEnded:
    return end(job_id, JobStatus.FAILED)


def cancel(job_id: JobId) -> JobEnded:
    return end(job_id, JobStatus.CANCELED)


def concluded(status: ApplicationStatus, failure: Failure | None = None) -> list[Command]:
    return [Conclude(status, failure)]


def lost(ran_s: float = 60.0) -> MainLost:
    return MainLost(DIED, ran_s)
