"""Routes about cleanup: unfinished tasks, and a person's two choices, retry and abandon."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.requests import Request
from starlette.responses import Response

from understudy.api import answers, bodies
from understudy.api.answers import Operation, Routes
from understudy.api.leading import Leading
from understudy.api.views import Json
from understudy.errors import LeadershipLost
from understudy.jobmanager.cleanup import Cleanup
from understudy.jobmanager.effort import CleanupView
from understudy.model import Tombstone
from understudy.process.persist import persist

ANSWER_S = 5.0
"""Longest wait of an answer for the list of leftovers: half of a standby's timeout."""


class CleanupRoutes:
    """Everything below ``/ha/cleanup``."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading

    def routes(self) -> Routes:
        """Return method, path and handler of each."""
        one = "/ha/cleanup/{application_id}"
        return [
            Operation(
                *("GET", "/ha/cleanup", self._open),
                "What is still to be cleaned up.",
                bodies.OpenCleanupList,
            ),
            Operation(
                *("POST", f"{one}/retry", self._retry),
                "Try a failed cleanup again now.",
                bodies.CleanupChoice,
                status=202,
            ),
            Operation(
                *("POST", f"{one}/abandon", self._abandon),
                "Leave behind what cannot be cleaned up.",
                bodies.CleanupChoice,
                status=202,
            ),
        ]

    async def _open(self, request: Request) -> Response:
        now = asyncio.get_running_loop().time()
        linked = self._leading.term.dispatcher.applications.values()
        cleanups = [one.cleanup for one in linked if one.cleanup]
        views = [_shown(view, now) for cleanup in cleanups for view in cleanup.open.values()]
        return self._leading.json({"open": views})

    async def _retry(self, request: Request) -> Response:
        cleanup = await self._failing(request)
        if cleanup is None:
            return _nothing_fails()
        answer = _answer(cleanup, cleanup.failing)
        cleanup.retry()
        return self._leading.json(answer, 202)

    async def _abandon(self, request: Request) -> Response:
        """Answer with the storage paths that are left behind so far."""
        cleanup = await self._failing(request)
        if cleanup is None:
            return _nothing_fails()
        failing = cleanup.failing
        try:
            await persist("note that a cleanup is abandoned", cleanup.abandon)
        except LeadershipLost:
            return answers.unavailable()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await asyncio.gather(*(view.done.wait() for view in failing))
        return self._leading.json(_answer(cleanup, failing), 202)

    async def _failing(self, request: Request) -> Cleanup | None:
        """Return the cleanup of this application if it fails; raises `NotFoundError`."""
        found = await self._leading.application(str(request.path_params["application_id"]))
        if isinstance(found, Tombstone):
            return None
        linked = self._leading.term.dispatcher.applications.get(found.body.application_id)
        cleanup = linked.cleanup if linked else None
        return cleanup if cleanup and cleanup.failing else None


def _shown(view: CleanupView, now: float) -> Json:
    wait_s = None if view.next_try is None else round(max(0.0, view.next_try - now), 3)
    return {
        "application_id": view.application_id,
        "task": view.label,
        "failures": view.failures,
        "error": view.error or None,
        "given_up": view.given_up,
        "next_try_seconds": wait_s,
    }


def _answer(cleanup: Cleanup, failing: list[CleanupView]) -> Json:
    return {
        "application_id": cleanup.application_id,
        "tasks": [view.label for view in failing],
        "left-behind": list(cleanup.left_behind),
    }


def _nothing_fails() -> Response:
    return answers.error(409, "Nothing that is to be cleaned up fails.")
