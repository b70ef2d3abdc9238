"""What to tell people about an attempt that failed: which retry follows, and when, or why none.

Derived from one step of `core.job`, so that telling never changes what is decided.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from understudy.config.option import INFINITE
from understudy.core.job import Command, Ended, Event, JobState, Looked, Pause, Phase, RecordResult
from understudy.core.restart import FAILURE_RATE, LOSSES_PER_ATTEMPT, Strategy
from understudy.model import JobStatus, Restarts

NEVER = "not restarted: another attempt would raise it, too; see restart-strategy.no-retry"

TIMEOUT = "not restarted: a job that exceeds its timeout is not retried"


class Failed(Struct, frozen=True):
    """The end of an attempt that failed, and what follows.

    Attributes:
        attempt: the number of the attempt, from 1.
        lost: why its process was lost; empty if its function raised an exception.
        retry: how many retries count against the limit, with the one that follows; 0 if none does.
        retries: the limit; None if there is none, or if no retry follows.
        delay_s: the pause before the retry; None while ``main`` has not reached the job.
        reason: why no retry follows; empty if one does.
    """

    attempt: int
    lost: str = ""
    retry: int = 0
    retries: int | None = None
    delay_s: float | None = None
    reason: str = ""


def failed(
    before: JobState, event: Event, after: JobState, commands: Sequence[Command], strategy: Strategy
) -> Failed | None:
    """Return what a step of a job says about a failed attempt; None if no attempt failed.

    An attempt that was stopped on request has not failed, whatever its function raised meanwhile.
    """
    end = event.found if isinstance(event, Looked) else event
    if not isinstance(end, Ended) and not isinstance(event, Looked):
        return None
    if after.phase is before.phase or after.cancelled or after.displaced or after.ends_as:
        return None
    lost = "" if isinstance(end, Ended) else after.lost
    if after.phase in {Phase.BACKING_OFF, Phase.IDLE}:
        retry, retries = _count(strategy, after.restarts, lost=bool(lost))
        pauses = [one.delay_s for one in commands if isinstance(one, Pause)]
        return Failed(after.attempt, lost, retry, retries, pauses[0] if pauses else None)
    recorded = [one for one in commands if isinstance(one, RecordResult)]
    if recorded and recorded[0].status is JobStatus.FAILED:
        reason = recorded[0].reason.removeprefix(f"{lost}; ")
        return Failed(after.attempt, lost, reason=reason or NEVER)
    return None


def _count(strategy: Strategy, restarts: Restarts, *, lost: bool) -> tuple[int, int | None]:
    """Return how many retries count against the limit, and the limit."""
    limit = strategy.attempts if strategy.attempts < INFINITE else None
    if strategy.retries is not None and not lost:
        return restarts.failures, strategy.retries
    if strategy.kind == FAILURE_RATE:
        return len(restarts.ages), limit
    if strategy.kind == "fixed-delay":
        counted = restarts.failures if strategy.retries is None else 0
        return counted + restarts.losses, limit
    if not lost:
        return restarts.failures, limit
    return restarts.losses, limit and limit * LOSSES_PER_ATTEMPT
