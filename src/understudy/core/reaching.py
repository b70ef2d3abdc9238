"""Which jobs wait, and which give way, while a re-executed ``main`` has not reached all jobs.

After a failover the attempts of the last execution keep running, and ``main`` may take another
path. A job that ``main`` reaches is held back in two cases: it finds no slot, or the last execution
had not submitted it, so that the path may have changed. It waits a grace period for ``main`` to
reach the running attempts; then these give way: the leader stops them, and the held jobs begin once
the attempts are proved dead.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from understudy.model import JobId


class ReachingState(Struct, frozen=True):
    """The unreached jobs that run, the jobs that wait for them, and the deadline."""

    grace_s: float
    unreached: frozenset[JobId] = frozenset()
    giving_way: frozenset[JobId] = frozenset()
    held: tuple[JobId, ...] = ()
    slotless: frozenset[JobId] = frozenset()
    """Reached jobs that found no slot while unreached ones ran."""
    deadline: float | None = None


class BeginJobs(Struct, frozen=True):
    """Start these jobs: nothing holds them back any longer."""

    jobs: tuple[JobId, ...]


class GiveWay(Struct, frozen=True):
    """Stop these unreached jobs, and prove their attempts dead."""

    jobs: tuple[JobId, ...]


Command = BeginJobs | GiveWay

Step = tuple[ReachingState, list[Command]]


def main_started(state: ReachingState, running: frozenset[JobId]) -> ReachingState:
    """Apply that ``main`` is executed again while these jobs run."""
    return replace(state, unreached=running, held=(), slotless=frozenset(), deadline=None)


def holds_back_new(state: ReachingState) -> bool:
    """Return whether a job that the last execution had not submitted must wait."""
    return bool(state.unreached or state.giving_way)


def reached(state: ReachingState, job_id: JobId, *, known: bool, now: float) -> Step:
    """Apply that ``main`` reached a job; ``known`` if the last execution had submitted the job."""
    state = replace(state, unreached=state.unreached - {job_id})
    if known or not holds_back_new(state):
        settled, commands = _settle(state)
        return settled, [BeginJobs((job_id,)), *commands]
    state = replace(state, held=(*state.held, job_id))
    return _arm(state, now), []


def no_slot(state: ReachingState, job_id: JobId, now: float) -> ReachingState:
    """Apply that a reached job found no slot."""
    if not state.unreached:
        return state
    return _arm(replace(state, slotless=state.slotless | {job_id}), now)


def found_slot(state: ReachingState, job_id: JobId) -> ReachingState:
    """Apply that a job got a slot after all, or no longer wants one."""
    return _disarm(replace(state, slotless=state.slotless - {job_id}))


def stopped(state: ReachingState, job_id: JobId) -> Step:
    """Apply that a job's attempt is dead or the job has ended: it neither blocks nor waits."""
    return _settle(
        replace(
            state,
            unreached=state.unreached - {job_id},
            giving_way=state.giving_way - {job_id},
            held=tuple(held for held in state.held if held != job_id),
            slotless=state.slotless - {job_id},
        )
    )


def expired(state: ReachingState, now: float) -> Step:
    """Make the unreached jobs give way if the grace period is over."""
    if state.deadline is None or now < state.deadline or not state.unreached:
        return state, []
    leaving = tuple(sorted(state.unreached))
    state = replace(
        state,
        unreached=frozenset(),
        giving_way=state.giving_way | set(leaving),
        slotless=frozenset(),
        deadline=None,
    )
    return state, [GiveWay(leaving)]


def _arm(state: ReachingState, now: float) -> ReachingState:
    if state.deadline is not None or not state.unreached:
        return state
    return replace(state, deadline=now + state.grace_s)


def _disarm(state: ReachingState) -> ReachingState:
    """Clear the deadline if no job waits any longer, or no unreached job runs."""
    if not state.unreached:
        return replace(state, slotless=frozenset(), deadline=None)
    return state if state.held or state.slotless else replace(state, deadline=None)


def _settle(state: ReachingState) -> Step:
    state = _disarm(state)
    if state.unreached or state.giving_way or not state.held:
        return state, []
    return replace(state, held=()), [BeginJobs(state.held)]
