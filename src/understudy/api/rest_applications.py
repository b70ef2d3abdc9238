"""Routes about applications; paths and shapes are Flink's, logs are ours."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from understudy.api import answers, bodies, ended, logs, views
from understudy.api.answers import Count, Operation, Query, Routes
from understudy.api.leading import Leading
from understudy.errors import UnreadableApplication
from understudy.model import ApplicationStatus, Tombstone
from understudy.process.reporter import log_name

UNLESS, RECORDED = "unless", "recorded"
"""``/cancel?unless=recorded`` answers 412, and cancels nothing, where checkpoints are recorded."""


OFFSET = Query("offset", "Where the piece begins, in bytes; answers name the next.", Count)

MAX_EXCEPTIONS = Query("maxExceptions", "Most failures to list.", Count)


class ApplicationRoutes:
    """Everything below ``/applications``."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading

    def routes(self) -> Routes:
        """Return method, path and handler of each."""
        one = "/applications/{application_id}"
        return [
            Operation(
                *("GET", "/applications/overview", self._overview),
                "All applications.",
                bodies.ApplicationList,
            ),
            Operation("GET", one, self._detail, "One application.", bodies.ApplicationDetail),
            Operation(
                *("POST", f"{one}/cancel", self._cancel),
                "Cancel an application.",
                status=202,
                query=(
                    Query(
                        UNLESS, f"{RECORDED}: not if checkpoints are recorded.", Literal["recorded"]
                    ),
                ),
            ),
            Operation(
                *("GET", f"{one}/exceptions", self._exceptions),
                "The cause of an application's failure.",
                bodies.ApplicationExceptions,
                query=(MAX_EXCEPTIONS,),
            ),
            Operation(
                *("GET", f"{one}/jobmanager/config", self._config),
                "The configuration of an application.",
                list[bodies.Setting],
            ),
            Operation(
                *("GET", f"{one}/log", self._log),
                "A piece of an application's log.",
                answers.TEXT,
                query=(OFFSET,),
            ),
            Operation(
                *("GET", f"{one}/logs", self._logs),
                "The log files of an application.",
                bodies.LogList,
            ),
            Operation(
                *("GET", f"{one}/logs/{{name}}", self._named_log),
                "A piece of a log file of an application.",
                answers.TEXT,
                query=(OFFSET,),
            ),
        ]

    async def _overview(self, request: Request) -> Response:
        facts, tombstones = await self._leading.facts()
        listed = [views.application_overview(one) for one in facts]
        listed += await self._leading.unreadable()
        listed += [ended.buried_overview(stone) for stone in tombstones.values()]
        return self._leading.json({"applications": listed})

    async def _detail(self, request: Request) -> Response:
        try:
            found = await self._leading.application(_id(request))
        except UnreadableApplication:
            if one := await self._leading.find_unreadable(_id(request)):
                return self._leading.json(one)
            raise  # Repaired just now: the next request is answered.
        if isinstance(found, Tombstone):
            return self._leading.json(await self._leading.directory.buried_detail(found))
        known = await self._leading.directory.with_cause(found)
        return self._leading.json(views.application_detail(known))

    async def _cancel(self, request: Request) -> Response:
        found = await self._leading.application(_id(request))
        if found.status is ApplicationStatus.CANCELED:
            return self._leading.json({}, 202)
        if found.status.is_terminal or isinstance(found, Tombstone):
            return answers.error(409, f"The application is {found.status.value} already.")
        dispatcher = self._leading.term.dispatcher
        application = dispatcher.application(found.body.application_id)
        if application is None:
            why = dispatcher.attention.get(found.body.application_id, "it is being recovered")
            return answers.error(409, f"The application cannot be cancelled just now: {why}")
        unless = request.query_params.get(UNLESS, "")
        if unless not in {"", RECORDED}:
            return answers.error(400, f"{UNLESS}={unless}: expected {UNLESS}={RECORDED}")
        if not await application.cancel(unless_recorded=bool(unless)):
            return answers.error(412, "The application has recorded checkpoints.")
        return self._leading.json({}, 202)

    async def _exceptions(self, request: Request) -> Response:
        maximum = answers.whole_number(request, "maxExceptions", views.MAXIMUM_DEFAULT)
        found = await self._leading.application(_id(request))
        known = self._leading.directory
        if isinstance(found, Tombstone):
            failure = (await known.buried(found)).result.failure
        else:
            failure = await known.application_failure(found)
        return self._leading.json(views.of_application(failure, maximum))

    async def _config(self, request: Request) -> Response:
        found = await self._leading.application(_id(request))
        settings = await self._leading.configuration(found)
        return self._leading.json(views.configuration(settings))

    async def _logs(self, request: Request) -> Response:
        found = await self._leading.application(_id(request))
        path = log_of(self._leading, found)
        return self._leading.json({"logs": await asyncio.to_thread(logs.listed, path)})

    async def _named_log(self, request: Request) -> Response:
        offset = answers.whole_number(request, "offset", 0)
        found = await self._leading.application(_id(request))
        path = logs.named([log_of(self._leading, found)], str(request.path_params["name"]))
        piece = await asyncio.to_thread(logs.read, path, offset, ended=True)
        return answers.as_text(piece.data, piece.headers)

    async def _log(self, request: Request) -> Response:
        offset = answers.whole_number(request, "offset", 0)
        found = await self._leading.application(_id(request))
        piece = await read_log(self._leading, found, offset)
        return answers.as_text(piece.data, piece.headers)


async def read_log(
    leading: Leading, found: views.ApplicationFacts | Tombstone, offset: int
) -> logs.Piece:
    """Read a piece of an application's log; raises `NotFoundError` if the log was removed."""
    ended = found.status.is_terminal
    return await asyncio.to_thread(logs.read, log_of(leading, found), offset, ended=ended)


def log_of(leading: Leading, found: views.ApplicationFacts | Tombstone) -> Path:
    """Return the place of an application's log on this host."""
    identity = found if isinstance(found, Tombstone) else found.body
    name = log_name(identity.run_id, identity.application_id)
    return leading.settings.log_files.path(name)


def _id(request: Request) -> str:
    return str(request.path_params["application_id"])
