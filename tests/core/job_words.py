"""What the tests of a job's life say over and over."""

from __future__ import annotations

from understudy.core import job
from understudy.core.job import Command, Event, JobState, Phase
from understudy.core.restart import Strategy
from understudy.core.slots import Placement
from understudy.model import Incarnation, JobId, JobStatus, Pointer

J = JobId("J")
P = Placement(Incarnation("tm1"), Incarnation("tm1/1"))
Q = Placement(Incarnation("tm2"), Incarnation("tm2/1"))
MIDDLE = 0.5
"""The draw of the jitter that changes nothing."""


def source(attempt: int) -> Pointer:
    return Pointer(path=f"staged/{attempt}", digest=f"sha256:{attempt}", size=1)


def ended(
    attempt: int, status: JobStatus, *, retryable: bool = False, dead: bool = True
) -> job.Ended:
    return job.Ended(attempt, status, retryable, source(attempt), ran_s=0.5, dead=dead)


def finished(attempt: int, *, dead: bool = True) -> job.Ended:
    return ended(attempt, JobStatus.FINISHED, dead=dead)


def raised(attempt: int) -> job.Ended:
    return ended(attempt, JobStatus.FAILED, retryable=True)


def failed(attempt: int) -> job.Ended:
    return ended(attempt, JobStatus.FAILED)


def killed(attempt: int) -> job.Ended:
    return ended(attempt, JobStatus.CANCELED)


def lost(attempt: int, ran_s: float = 0.0) -> job.Lost:
    return job.Lost(attempt, "gone", ran_s)


def kept(attempt: int) -> job.RecordResult:
    return job.RecordResult(JobStatus.FINISHED, source(attempt), "")


CANCELED = job.RecordResult(JobStatus.CANCELED, None, "cancelled")


def live(
    state: JobState, *events: Event, strategy: Strategy | None = None
) -> tuple[Phase, list[list[Command]]]:
    """Take in the events; return where the job is in the end, and what each event called for."""
    said = []
    for event in events:
        state, commands = job.step(state, event, strategy or Strategy(), MIDDLE)
        said.append(commands)
    return state.phase, said


def after(state: JobState, *events: Event, strategy: Strategy | None = None) -> JobState:
    """Take in the events; return the state in the end."""
    for event in events:
        state, _ = job.step(state, event, strategy or Strategy(), MIDDLE)
    return state
