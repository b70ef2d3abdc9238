"""Who has been silent too long, and until when one may act without a word from the other side.

A TaskManager may let its drivers run until ``orphan_s`` after it *sent* the heartbeat that a
leader answered last. A leader may take a silent TaskManager's attempts for dead ``grace_s`` after
it last answered one (or was granted its term): since it answered after the TaskManager had sent,
and ``grace > orphan × 1.05 + kill margin``, the drivers are dead by then.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from understudy.model import Incarnation


def orphan_deadline(answered_request_sent_at: float, orphan_s: float) -> float:
    """Return until when a TaskManager's drivers may run."""
    return answered_request_sent_at + orphan_s


def leader_hold(deadline: float, lease_s: float, renew_deadline_s: float) -> float:
    """Return when a leader's guardian must kill it: after its own deadline, before the lease's.

    The leader steps down by itself at ``deadline``; the guardian acts only if it could not.
    """
    return deadline + (lease_s - renew_deadline_s) / 2


class Silence(Struct, frozen=True):
    """When each TaskManager was last answered, by a leader's own clock."""

    grace_s: float
    answered: Mapping[Incarnation, float] = field(default_factory=dict)


def answered(silence: Silence, taskmanager: Incarnation, now: float) -> Silence:
    """Note that a TaskManager was answered, or that a new leader begins to wait for it."""
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
    """Return when to look again; None while nobody is awaited."""
    return min(silence.answered.values()) + silence.grace_s if silence.answered else None
