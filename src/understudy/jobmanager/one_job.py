"""Waiting for the job of an application that has to have exactly one.

Whether ``main`` will submit a second one is not known before it ends. A second one ends the
application (`job_requests`), whenever it comes; whoever waits here learns it where it comes soon.
"""

from __future__ import annotations

import asyncio

from understudy.errors import LeadershipLost
from understudy.jobmanager.linked_application import LinkedApplication
from understudy.model import JobId

SOON_S = 2.0
"""How long it is watched whether ``main`` submits a second job, once ``main`` waits for the first.
"""


async def job_of(linked: LinkedApplication) -> JobId | None:
    """Return the one job once it is there; None once the application is over that had no such job.

    Raises `LeadershipLost` where this term ends before that.
    """
    over = asyncio.ensure_future(linked.over.wait())
    settled = asyncio.ensure_future(_settled(linked))
    try:
        await asyncio.wait({over, settled}, return_when=asyncio.FIRST_COMPLETED)
        if not over.done() and not settled.result():
            await asyncio.wait({over}, timeout=SOON_S)
    finally:
        over.cancel()
        settled.cancel()
    first = next(iter(linked.jobs), None)
    if first and not _has_second(linked):
        return first
    await linked.over.wait()
    if linked.tombstone is None:
        raise LeadershipLost("this term ended before the application had its job")
    return None


async def _settled(linked: LinkedApplication) -> bool:
    """Wait until ``main`` waits for its job, or has ended; return whether no other can follow."""
    await linked.executed.wait()
    application = linked.application
    assert application is not None
    await application.requests.settled.wait()
    return application.record.as_job


def _has_second(linked: LinkedApplication) -> bool:
    return bool(linked.application and linked.application.requests.has_refused)
