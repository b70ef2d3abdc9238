"""What a leader has the backend show to people, where the backend can: the cluster's story."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.ha.election import Leadership
from understudy.ha.register import Notice
from understudy.jobmanager.effort import CleanupView

FATES = ("adopted", "restarted", "skipped", "displaced")
"""What a takeover does with a job."""


def granted(name: str, leadership: Leadership) -> Notice:
    """Return that a JobManager is the leader."""
    return Notice(
        "LeaderElected",
        f"{name} is the leader, with term {leadership.term} (the last leader: {leadership.reason})",
    )


def ended(name: str, leadership: Leadership, error: BaseException | None) -> Notice:
    """Return that a JobManager no longer leads: it has lost the term, failed, or given it up."""
    why = leadership.end
    if not why and isinstance(error, Exception):
        why = str(error) or type(error).__name__
    message = f"{name} no longer leads, with term {leadership.term}: "
    if why:
        return Notice("LeadershipLost", message + why, warning=True)
    return Notice("LeadershipEnded", message + ("it closes" if error else "its work is done"))


def taken_over(fields: Mapping[str, Any]) -> Notice:
    """Return what a takeover has done; ``fields`` are those of its event."""
    counts = ", ".join(f"{len(fields[fate])} {fate}" for fate in FATES if fields[fate])
    seconds = f"{fields['seconds']:.1f} s"
    return Notice(
        "TakenOver", f"term {fields['term']} took over in {seconds}; jobs: {counts or 'none'}"
    )


def parked(why: str) -> Notice:
    """Return that an application waits, with the reason."""
    return Notice("ApplicationParked", why, warning=True)


def cleanup_fails(view: CleanupView) -> Notice:
    """Return that a task of a cleanup has failed."""
    return Notice(
        "CleanupFailing",
        f"application {view.application_id}: cannot {view.label}: {view.error}",
        warning=True,
    )
