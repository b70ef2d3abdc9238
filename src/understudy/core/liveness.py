"""Liveness deadlines: who has been silent too long, and how long to act without an answer.

A TaskManager lets its drivers run until ``orphan_s`` after it *sent* the last heartbeat that a
leader answered. A leader declares a silent TaskManager's attempts dead ``grace_s`` after its last
answer to that TaskManager (or after the grant of its term): the answer came after the sending, and
``grace > orphan × 1.05 + kill margin``, so the drivers are dead by then.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from understudy.model import Incarnation


def orphan_deadline(answered_request_sent_at: float, orphan_s: float) -> float:
    """Return the time until which a TaskManager's drivers may run."""
    return answered_request_sent_at + orphan_s


def leader_hold(deadline: float, lease_s: float, renew_deadline_s: float) -> float:
    """Return when a leader's guardian must kill it: after its deadline, before the lease expires.

    The leader steps down by itself at ``deadline``; the guardian acts only if that failed.
    """
    return deadline + (lease_s - renew_deadline_s) / 2


class Silence(Struct, frozen=True):
    """When this leader last answered each TaskManager, by its own clock."""

    grace_s: float
    answered: Mapping[Incarnation, float] = field(default_factory=dict)


def answered(silence: Silence, taskmanager: Incarnation, now: float) -> Silence:
    """Record an answer to a TaskManager, or that a new leader begins to wait for it."""
    return replace(silence, answered={**silence.answered, taskmanager: now})


def forget(silence: Silence, taskmanager: Incarnation) -> Silence:
    """Stop waiting for a TaskManager that is proved dead."""
    left = {known: at for known, at in silence.answered.items() if known != taskmanager}
    return replace(silence, answered=left)


def expired(silence: Silence, now: float) -> tuple[Incarnation, ...]:
    """Return the TaskManagers whose drivers must be dead by now."""
    return tuple(
        taskmanager for taskmanager, at in silence.answered.items() if now >= at + silence.grace_s
    )


def next_expiry(silence: Silence) -> float | None:
    """Return when the next TaskManager expires; None if there is none."""
    return min(silence.answered.values()) + silence.grace_s if silence.answered else None
