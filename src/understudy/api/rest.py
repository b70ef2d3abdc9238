"""The REST endpoint of a JobManager.

The leader answers; a standby hands every request on to the leader, and answers 503 with
``Retry-After`` while nobody leads. A request is handed on once at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from understudy.api import directory, views
from understudy.api.directory import Directory
from understudy.api.views import ApplicationFacts, Json
from understudy.errors import ConfigurationError, DataError, NotFoundError
from understudy.model import ApplicationStatus, JobId, JobRecord, Tombstone
from understudy.runtime.job_manager import JobManager
from understudy.version import VERSION

FORWARD_S = 10.0
"""How long a standby waits for the leader's answer."""

RETRY_AFTER_S = 1
"""An election among the processes of one host is over in less."""

HANDED_ON = "x-understudy-handed-on"

_log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


class Rest:
    """The routes of one JobManager."""

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager
        self._directory = Directory(manager.around.services, manager.around.clock)
        self._client = httpx.AsyncClient(timeout=FORWARD_S, trust_env=False)

    def application(self) -> Starlette:
        """Return the ASGI application."""
        routes: list[tuple[str, str, Handler]] = [
            ("GET", "/overview", self._overview),
            ("GET", "/applications/overview", self._applications),
            ("GET", "/applications/{application_id}", self._application),
            ("POST", "/applications/{application_id}/cancel", self._cancel),
            ("GET", "/jobs", self._jobs),
            ("GET", "/jobs/overview", self._jobs),
            ("GET", "/jobs/{job_id}", self._job),
            ("PATCH", "/jobs/{job_id}", self._cancel_job),
            ("GET", "/jobs/{job_id}/exceptions", self._exceptions),
            ("GET", "/jobs/{job_id}/execution-result", self._result),
            ("GET", "/taskmanagers", self._taskmanagers),
            ("GET", "/ha/status", self._ha_status),
            ("GET", "/ha/cleanup", self._ha_cleanup),
        ]
        found = []
        for method, path, handler in routes:
            for prefix in ("", "/v1"):
                found.append(Route(prefix + path, self._leading(handler), methods=[method]))
        return Starlette(routes=found, exception_handlers={404: _not_found, 405: _not_allowed})

    async def close(self) -> None:
        """Close the connections to leaders."""
        await self._client.aclose()

    def _leading(self, handler: Handler) -> Handler:
        """Answer here while leading; else hand the request on."""

        async def endpoint(request: Request) -> Response:
            if self._serves():
                try:
                    return await handler(request)
                except NotFoundError as error:
                    return _error(404, str(error))
                except DataError as error:
                    return _error(500, str(error))
                except AttributeError:
                    # Leadership ended in the middle of the answer.
                    if self._serves():
                        raise
            return await self._hand_on(request)

        return endpoint

    def _serves(self) -> bool:
        manager = self._manager
        return bool(
            manager.dispatcher
            and manager.resources
            and manager.leadership
            and manager.leadership.addresses[0]
        )

    async def _hand_on(self, request: Request) -> Response:
        leader = self._manager.leader
        mine = leader is not None and leader.holder == self._manager.me.holder
        if leader is None or mine or HANDED_ON in request.headers:
            return _unavailable()
        url = leader.rest + request.url.path
        try:
            answer = await self._client.request(
                request.method,
                url,
                params=dict(request.query_params),
                content=await request.body(),
                headers={HANDED_ON: self._manager.me.name},
            )
        except httpx.HTTPError:
            return _unavailable()
        headers = {
            name: answer.headers[name]
            for name in ("content-type", "retry-after", "x-understudy-term")
            if name in answer.headers
        }
        return Response(answer.content, answer.status_code, headers)

    def _json(self, body: object, status: int = 200) -> Response:
        term = self._manager.leadership.term if self._manager.leadership else 0
        return Response(
            views.encode(body),
            status,
            {"content-type": "application/json", "x-understudy-term": str(term)},
        )

    # --- facts ------------------------------------------------------------------------------------

    async def _facts(self) -> tuple[list[ApplicationFacts], dict[str, Tombstone]]:
        dispatcher = self._manager.dispatcher
        registry = await self._directory.registry()
        buried = registry.tombstones if registry else {}
        tombstones = {str(run): stone for run, stone in buried.items()}
        if dispatcher and dispatcher.application:
            live = self._directory.live(dispatcher.application)
            if live.body.run_id in tombstones:
                return [], tombstones
            return [live], tombstones
        return (await self._directory.stored(registry) if registry else []), tombstones

    async def _find_job(self, request: Request) -> tuple[ApplicationFacts, JobId]:
        facts, _ = await self._facts()
        found = directory.find_job(request.path_params["job_id"], facts)
        if found is None:
            raise NotFoundError(f"Job {request.path_params['job_id']} not found")
        return found

    # --- handlers ---------------------------------------------------------------------------------

    async def _overview(self, request: Request) -> Response:
        facts, _ = await self._facts()
        managers = self._taskmanager_views()
        slots = sum(one["slotsNumber"] for one in managers)
        free = sum(one["freeSlots"] for one in managers)
        return self._json(
            {
                **directory.overview(facts, slots, free, len(managers)),
                "understudy-version": VERSION,
            }
        )

    async def _applications(self, request: Request) -> Response:
        facts, tombstones = await self._facts()
        listed = [views.application_overview(one) for one in facts]
        listed += [views.buried_overview(stone) for stone in tombstones.values()]
        return self._json({"applications": listed})

    async def _application(self, request: Request) -> Response:
        facts, tombstones = await self._facts()
        found = directory.find_application(request.path_params["application_id"], facts, tombstones)
        if isinstance(found, Tombstone):
            return self._json(views.buried_detail(found, await self._directory.buried(found)))
        return self._json(views.application_detail(found))

    async def _cancel(self, request: Request) -> Response:
        facts, tombstones = await self._facts()
        found = directory.find_application(request.path_params["application_id"], facts, tombstones)
        status = found.status
        if status is ApplicationStatus.CANCELED:
            return self._json({}, 202)
        dispatcher = self._manager.dispatcher
        if status.is_terminal or dispatcher is None or dispatcher.application is None:
            return _error(409, f"The application is {status.value} already.")
        await dispatcher.application.cancel()
        return self._json({}, 202)

    async def _jobs(self, request: Request) -> Response:
        facts, _ = await self._facts()
        listed = [views.job_details(one, job_id) for one in facts for job_id in one.entries]
        if request.url.path.endswith("/jobs"):
            listed = [{"id": one["jid"], "status": one["state"]} for one in listed]
        return self._json({"jobs": listed})

    async def _job(self, request: Request) -> Response:
        facts, tombstones = await self._facts()
        wanted = request.path_params["job_id"]
        if found := directory.find_job(wanted, facts):
            return self._json(views.job_detail(*found))
        for stone in tombstones.values():
            for record in await self._recorded(stone):
                if record.job_id == wanted:
                    return self._json(views.recorded_job(record, stone))
        raise NotFoundError(f"Job {wanted} not found")

    async def _cancel_job(self, request: Request) -> Response:
        facts, job_id = await self._find_job(request)
        dispatcher = self._manager.dispatcher
        if facts.entries[job_id].result or not dispatcher or not dispatcher.application:
            return _error(409, "The job has ended already.")
        await dispatcher.application.jobs.cancel_job(job_id)
        return self._json({}, 202)

    async def _exceptions(self, request: Request) -> Response:
        facts, job_id = await self._find_job(request)
        return self._json(views.exceptions(await self._directory.failures(facts, job_id)))

    async def _result(self, request: Request) -> Response:
        facts, tombstones = await self._facts()
        wanted = request.path_params["job_id"]
        if found := directory.find_job(wanted, facts):
            one, job_id = found
            outcome, missing = await self._directory.outcome(one, job_id)
            return self._json(views.execution_result(one, job_id, outcome, missing))
        for stone in tombstones.values():
            for record in await self._recorded(stone):
                if record.job_id == wanted:
                    return self._json(views.recorded_result(record))
        raise NotFoundError(f"Job {wanted} not found")

    async def _recorded(self, stone: Tombstone) -> tuple[JobRecord, ...]:
        with contextlib.suppress(NotFoundError, DataError):
            return (await self._directory.buried(stone)).jobs
        return ()

    async def _taskmanagers(self, request: Request) -> Response:
        return self._json({"taskmanagers": self._taskmanager_views()})

    def _taskmanager_views(self) -> list[Json]:
        resources = self._manager.resources
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
            }
            for one in (resources.taskmanagers.values() if resources else ())
        ]

    async def _ha_status(self, request: Request) -> Response:
        manager = self._manager
        leadership, dispatcher = manager.leadership, manager.dispatcher
        assert leadership is not None
        assert dispatcher is not None
        registry = await self._directory.registry()
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
        return self._json(
            {
                "cluster_id": manager.around.services.cluster_id,
                "leader": leader,
                "standbys": standbys,
                "history": [views.span(item) for item in (registry.history if registry else ())],
                "attention": [
                    {"id": key, "problem": why} for key, why in dispatcher.attention.items()
                ],
            }
        )

    async def _ha_cleanup(self, request: Request) -> Response:
        dispatcher = self._manager.dispatcher
        cleanup = dispatcher.cleanup if dispatcher else None
        return self._json(
            {
                "open": [
                    {
                        "application_id": task.application_id,
                        "task": task.label,
                        "failures": task.failures,
                        "error": task.error or None,
                        "given_up": task.given_up,
                    }
                    for task in (cleanup.open.values() if cleanup else ())
                ]
            }
        )


def bind(address: str, ports: tuple[int, ...]) -> socket.socket:
    """Return a socket bound to the first free port, or raise `ConfigurationError`."""
    if address not in {"127.0.0.1", "::1", "localhost"}:
        raise ConfigurationError(
            f"rest.bind-address is {address!r}: there is no authentication yet, so only loopback "
            "(127.0.0.1) is allowed"
        )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in ports:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address, port))
            listening.listen(128)
        except OSError:
            listening.close()
            continue
        return listening
    raise ConfigurationError(
        f"rest.bind-port: none of {ports[0]}-{ports[-1]} on {address} is free: give others"
    )


def url_of(listening: socket.socket) -> str:
    """Return the address that clients use."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.asynccontextmanager
async def serving(manager: JobManager, listening: socket.socket) -> AsyncIterator[None]:
    """Serve REST on a bound socket as long as the block lasts."""
    rest = Rest(manager)
    config = uvicorn.Config(
        rest.application(), log_level="warning", access_log=False, lifespan="off", ws="none"
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        server.force_exit = True
        await asyncio.gather(task, return_exceptions=True)
        await rest.close()


class _Server(uvicorn.Server):
    """A server that leaves the process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing: signals are the JobManager's."""
        yield


def _error(status: int, message: str) -> Response:
    return Response(
        views.encode({"errors": [message]}), status, {"content-type": "application/json"}
    )


def _unavailable() -> Response:
    response = _error(
        503, "Service temporarily unavailable due to an ongoing leader election. Please refresh."
    )
    response.headers["retry-after"] = str(RETRY_AFTER_S)
    return response


async def _not_found(request: Request, error: Exception) -> Response:
    return _error(404, f"Not found: {request.url.path}")


async def _not_allowed(request: Request, error: Exception) -> Response:
    return _error(405, f"{request.method} is not allowed here")
