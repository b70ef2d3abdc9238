"""Routes about the cluster and its processes: Flink's, and our own below ``/ha``."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from understudy.api import answers, bodies, directory, logs, views
from understudy.api.answers import Operation, Routes
from understudy.api.leading import Leading
from understudy.api.rest_applications import OFFSET, log_of, read_log
from understudy.config import options
from understudy.errors import NotFoundError
from understudy.ha.registry import Shutdown
from understudy.model import Tombstone
from understudy.version import VERSION

HA_STATUS = "/ha/status"

REFRESH_MS = 3_000
"""How often Flink's pages ask again; Flink's default."""


class Last(Response):
    """An answer after which this JobManager ends."""

    def __init__(self, answer: Response, shutdown: Shutdown) -> None:
        super().__init__(answer.body, answer.status_code, answer.headers)
        self._shutdown = shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; end, also if the client has left."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._shutdown.asked.set()


class ClusterRoutes:
    """Everything that is not about one application or job."""

    def __init__(self, leading: Leading) -> None:
        self._leading = leading

    def routes(self) -> Routes:
        """Return method, path and handler of each."""
        return [
            Operation("GET", "/overview", self._overview, "The cluster.", bodies.Overview),
            Operation(
                *("GET", "/config", self._page_settings),
                "What Flink's pages ask for first.",
                bodies.PageSettings,
            ),
            Operation(
                *("GET", "/jobmanager/logs", self._logs),
                "The log files of the cluster: those of its applications hold the lines of all "
                "its processes.",
                bodies.LogList,
            ),
            Operation(
                *("GET", "/taskmanagers/{taskmanager_id}/logs", self._taskmanager_logs),
                "The log files that hold the lines of a TaskManager.",
                bodies.LogList,
            ),
            *(
                Operation(
                    *("GET", f"{base}/logs/{{name}}", handler),
                    "A piece of one of these log files.",
                    answers.TEXT,
                    query=(OFFSET,),
                )
                for base, handler in (
                    ("/jobmanager", self._named_log),
                    ("/taskmanagers/{taskmanager_id}", self._taskmanager_log),
                )
            ),
            Operation(
                *("GET", "/taskmanagers", self._taskmanagers),
                "All TaskManagers, with their slots and drivers.",
                bodies.TaskManagerList,
            ),
            Operation(
                *("GET", "/jobmanager/config", self._config),
                "The configuration of the JobManager.",
                list[bodies.Setting],
            ),
            Operation(
                *("GET", "/jobmanager/log", self._log),
                "A piece of the log of the cluster's processes.",
                answers.TEXT,
                query=(OFFSET,),
            ),
            Operation(
                *("DELETE", "/cluster", self._shut_down),
                "Shut the cluster down: all its processes end, and all data is kept.",
                status=202,
            ),
            Operation(
                *("GET", HA_STATUS, self._ha_status),
                "Who leads, who stands by, and what needs a person.",
                bodies.HaStatus,
            ),
        ]

    async def _overview(self, request: Request) -> Response:
        facts, tombstones = await self._leading.facts()
        managers = self._taskmanager_views()
        slots = sum(one["slotsNumber"] for one in managers)
        free = sum(one["freeSlots"] for one in managers)
        return self._leading.json(
            {
                **directory.overview(facts, tombstones.values(), slots, free, len(managers)),
                "understudy-version": VERSION,
                "flink-version": VERSION,
                "flink-commit": "",
            }
        )

    async def _page_settings(self, request: Request) -> Response:
        features = {
            "web-submit": self._leading.settings.artifacts.are_taken,
            "web-cancel": True,
            "web-rescale": False,
            "web-history": False,
        }
        return self._leading.json(
            {
                "refresh-interval": REFRESH_MS,
                "timezone-name": "UTC",
                "timezone-offset": 0,
                "flink-version": VERSION,
                "flink-revision": "",
                "features": features,
            }
        )

    async def _logs(self, request: Request) -> Response:
        return self._leading.json({"logs": await self._all_logs()})

    async def _taskmanager_logs(self, request: Request) -> Response:
        self._check_taskmanager(request)
        return self._leading.json({"logs": await self._all_logs()})

    async def _taskmanager_log(self, request: Request) -> Response:
        self._check_taskmanager(request)
        return await self._named_log(request)

    async def _named_log(self, request: Request) -> Response:
        offset = answers.whole_number(request, "offset", 0)
        path = logs.named(await self._log_paths(), str(request.path_params["name"]))
        piece = await asyncio.to_thread(logs.read, path, offset, ended=True)
        return answers.as_text(piece.data, piece.headers)

    def _check_taskmanager(self, request: Request) -> None:
        """Raise `NotFoundError` for a TaskManager that is not there."""
        wanted = str(request.path_params["taskmanager_id"])
        known = self._leading.term.resources.taskmanagers.values()
        if not any(wanted in {one.registration.name, one.incarnation} for one in known):
            raise NotFoundError(f"there is no TaskManager {wanted[:100]!r} here")

    async def _log_paths(self) -> list[Path]:
        facts, tombstones = await self._leading.facts()
        known: list[views.ApplicationFacts | Tombstone] = [*facts, *tombstones.values()]
        return [log_of(self._leading, one) for one in known]

    async def _all_logs(self) -> list[views.Json]:
        paths = await self._log_paths()

        def listed() -> list[views.Json]:
            return [log for path in paths for log in logs.listed(path)]

        found = await asyncio.to_thread(listed)
        return sorted(found, key=lambda one: (one["mtime"], one["name"]), reverse=True)

    async def _config(self, request: Request) -> Response:
        return self._leading.json(views.configuration(self._leading.settings.shown))

    async def _log(self, request: Request) -> Response:
        """Answer with the log lines of the cluster's processes, from the application's log.

        Processes in the foreground log only to their own stderr.
        """
        offset = answers.whole_number(request, "offset", 0)
        facts, tombstones = await self._leading.facts()
        known: list[views.ApplicationFacts | Tombstone] = [*facts]
        if not known and tombstones:
            known = [max(tombstones.values(), key=lambda stone: stone.ended_at)]
        if not known:
            raise NotFoundError("nothing is kept: no application was executed here")
        piece = logs.of_cluster(await read_log(self._leading, known[-1], offset))
        return answers.as_text(piece.data, piece.headers)

    async def _shut_down(self, request: Request) -> Response:
        if self._leading.settings.is_standalone:
            return answers.error(
                409,
                f"With {options.HA_TYPE.key} NONE, standbys and TaskManagers cannot learn of a "
                "shutdown: stop the processes, as `understudy cluster stop` does.",
            )
        await self._leading.term.dispatcher.shut_down()
        return Last(self._leading.json({}, 202), self._leading.manager.shutdown)

    async def _taskmanagers(self, request: Request) -> Response:
        return self._leading.json({"taskmanagers": self._taskmanager_views()})

    def _taskmanager_views(self) -> list[views.Json]:
        return [
            {
                **views.taskmanager(
                    one.registration.name,
                    one.incarnation,
                    one.registration.pid,
                    one.registration.guardian_pid,
                    one.registration.slots,
                    [views.driver(report) for report in one.drivers],
                ),
                "connected": one.link is not None,
                "host": one.registration.host,
                "metrics": one.registration.metrics or None,
            }
            for one in self._leading.term.resources.taskmanagers.values()
        ]

    async def _ha_status(self, request: Request) -> Response:
        manager = self._leading.manager
        leadership = self._leading.term.leadership
        registry, problems, age_s = await self._leading.known()
        me = manager.me
        leader = {
            "id": me.name,
            "pid": me.pid,
            "guardian_pid": me.guardian_pid,
            "rest": me.rest,
            "term": leadership.term,
            "session": leadership.session,
            "since": next(
                (
                    span.granted_at
                    for span in (registry.history if registry else ())
                    if span.term == leadership.term
                ),
                None,
            ),
        }
        standbys = [
            {
                "id": one.attend.name,
                "pid": one.attend.pid,
                "guardian_pid": one.attend.guardian_pid,
                "rest": one.attend.rest,
                "ready": one.attend.ready,
            }
            for one in manager.standbys.values()
        ]
        return self._leading.json(
            {
                "cluster_id": manager.around.services.cluster_id,
                "leader": leader,
                "standbys": standbys,
                "history": [views.span(item) for item in (registry.history if registry else ())],
                "attention": views.attention(problems),
                "register": self._leading.register(),
                "age_seconds": age_s,
            }
        )
