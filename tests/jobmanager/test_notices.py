"""What people are shown of a cluster: who leads, why that ended, and what a takeover did."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from understudy.errors import LeadershipLost
from understudy.ha.election import Leadership
from understudy.ha.register import Notice
from understudy.jobmanager import notices
from understudy.jobmanager.effort import CleanupView
from understudy.model import Incarnation, LeaderRecord

VACANT = LeaderRecord(holder=Incarnation(""), term=2, session="")


def leadership(end: str = "") -> Leadership:
    found = Leadership(3, "s", VACANT, None, "it died")
    found.end = end
    return found


def test_a_grant_names_leader_term_and_the_end_of_the_last_one() -> None:
    assert Notice(
        "LeaderElected", "jm-1 is the leader, with term 3 (the last leader: it died)"
    ) == notices.granted("jm-1", leadership())


@pytest.mark.parametrize(
    ("end", "error", "reason", "words"),
    [
        (
            "the lease was not renewed in time",
            asyncio.CancelledError(),
            "LeadershipLost",
            "in time",
        ),
        ("", LeadershipLost("term 4 is newer"), "LeadershipLost", "term 4 is newer"),
        ("", asyncio.CancelledError(), "LeadershipEnded", "it closes"),
        ("", None, "LeadershipEnded", "its work is done"),
    ],
)
def test_an_end_says_why(end: str, error: BaseException | None, reason: str, words: str) -> None:
    notice = notices.ended("jm-1", leadership(end), error)

    assert reason == notice.reason
    assert notice.message.startswith("jm-1 no longer leads, with term 3: ")
    assert notice.message.endswith(words)
    assert notice.warning is (reason == "LeadershipLost")


def test_a_takeover_counts_the_jobs_by_fate() -> None:
    fields: dict[str, Any] = {key: [] for key in notices.FATES} | {"term": 3, "seconds": 0.0432}

    assert "term 3 took over in 0.0 s; jobs: none" == notices.taken_over(fields).message
    fields |= {"adopted": ["a", "b"], "skipped": ["c"]}
    assert (
        "term 3 took over in 0.0 s; jobs: 2 adopted, 1 skipped"
        == notices.taken_over(fields).message
    )


def test_a_failing_cleanup_names_task_and_error() -> None:
    view = CleanupView("app-1", "job load", error="[Errno 5] no disk")

    assert Notice(
        "CleanupFailing", "application app-1: cannot job load: [Errno 5] no disk", True
    ) == notices.cleanup_fails(view)
