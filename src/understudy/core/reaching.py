"""What waits for what while a re-executed ``main`` has not reached all that still runs.

After a failover the attempts of the last execution run on, and ``main`` may take another path. A
job it reaches first is held back in two cases: it finds no slot, or the last execution had not
submitted it, so that the path may have changed. It waits a grace for the unreached attempts to be
reached; then they give way: they are stopped, and the held jobs begin once they are proved dead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from understudy.model import JobId


@dataclass(frozen=True, slots=True)
class State:
    """Who runs unreached, who waits for that, and since when somebody waits."""

    grace_s: float
    unreached: frozenset[JobId] = frozenset()
    giving_way: frozenset[JobId] = frozenset()
    held: tuple[JobId, ...] = ()
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """Nothing holds these jobs back any longer."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class GiveWay:
    """Stop these unreached jobs, with proof of death."""

    jobs: tuple[JobId, ...]


Command = Begin | GiveWay

Step = tuple[State, list[Command]]


def main_started(state: State, running: frozenset[JobId]) -> State:
    """``main`` is executed again while these jobs run."""
    return replace(state, unreached=running, held=(), deadline=None)


def reached(state: State, job_id: JobId, *, known: bool, now: float) -> Step:
    """``main`` reached a job; ``known`` says that the last execution had submitted it."""
    state = replace(state, unreached=state.unreached - {job_id})
    if known or not (state.unreached or state.giving_way):
        settled, commands = _settle(state)
        return settled, [Begin((job_id,)), *commands]
    state = replace(state, held=(*state.held, job_id))
    return _arm(state, now), []


def no_slot(state: State, now: float) -> State:
    """A reached job found no slot."""
    return _arm(state, now) if state.unreached else state


def stopped(state: State, job_id: JobId) -> Step:
    """A job's attempt is dead, or the job has ended."""
    return _settle(
        replace(
            state,
            unreached=state.unreached - {job_id},
            giving_way=state.giving_way - {job_id},
        )
    )


def expired(state: State, now: float) -> Step:
    """Look whether the grace is over."""
    if state.deadline is None or now < state.deadline or not state.unreached:
        return state, []
    leaving = tuple(sorted(state.unreached))
    state = replace(
        state,
        unreached=frozenset(),
        giving_way=state.giving_way | set(leaving),
        deadline=None,
    )
    return state, [GiveWay(leaving)]


def _arm(state: State, now: float) -> State:
    if state.deadline is not None or not state.unreached:
        return state
    return replace(state, deadline=now + state.grace_s)


def _settle(state: State) -> Step:
    if state.unreached or state.giving_way:
        return state, []
    state = replace(state, deadline=None)
    if not state.held:
        return state, []
    return replace(state, held=()), [Begin(state.held)]
