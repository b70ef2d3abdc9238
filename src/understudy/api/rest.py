"""The REST endpoint of a JobManager.

The leader answers. A standby forwards each request to the leader, and answers 503 with
``Retry-After`` without one. A request is forwarded at most once. In a cluster with a secret, only
requests with its token are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from understudy.api import answers, audit, metrics_jobmanager, openapi, own_headers, probes
from understudy.api import server as api_server
from understudy.api.answers import Handler, Routes
from understudy.api.authentication import OPEN, RestSecurity
from understudy.api.bounds import Bounds
from understudy.api.gate import Doorkeeper, Gate
from understudy.api.leading import Leading
from understudy.api.rest_applications import ApplicationRoutes
from understudy.api.rest_artifacts import ArtifactRoutes
from understudy.api.rest_cleanup import CleanupRoutes
from understudy.api.rest_cluster import HA_STATUS, ClusterRoutes
from understudy.api.rest_jobs import CheckpointRoutes, JobRoutes
from understudy.api.rest_runs import RunRoutes, minted
from understudy.api.rest_savepoints import SavepointRoutes
from understudy.errors import (
    ArtifactInUse,
    LeadershipLost,
    NotFoundError,
    TooLargeError,
    UnderstudyError,
    UnreadableApplication,
    UsageError,
)
from understudy.jobmanager.job_manager import JobManager
from understudy.process.closing import Closing

if TYPE_CHECKING:
    from understudy.api.forwarder import Forwarder

HANDED_ON = "x-understudy-handed-on"
HANDED_BACK = ("content-type", "retry-after", "x-content-type-options")
"""Headers of the leader's answer that a standby returns, beside our own ones."""

ROOMS = (
    *(ClusterRoutes, ApplicationRoutes, JobRoutes),
    *(CheckpointRoutes, SavepointRoutes, CleanupRoutes, ArtifactRoutes, RunRoutes),
)
"""Who answers while this JobManager leads."""

_NO_STORES = "The register or the storage does not answer just now ({}). Please try again."

_NO_ANSWER = (
    "The leader ({}) does not answer just now: it is slow, or an election follows. What was asked "
    "for may have happened. Please try again."
)

_INTERNAL = "The request failed unexpectedly; the log of this JobManager says why."

_log = logging.getLogger(__name__)


class Rest:
    """The routes of one JobManager."""

    def __init__(self, manager: JobManager, security: RestSecurity = OPEN) -> None:
        self._manager = manager
        self._security = security
        self._leading = Leading(manager)
        self._forwarder: Forwarder | None = None

    def application(self) -> Starlette:
        """Return the ASGI application."""
        found = [
            Route(
                prefix + one.path,
                self._endpoint(one.handler, is_upload=one.takes_file),
                methods=[one.method],
            )
            for one in self.operations()
            for prefix in openapi.PREFIXES
        ]
        here = metrics_jobmanager.routes(self._leading) + probes.routes(self._unready)
        found += [Route(one.path, one.handler, methods=[one.method]) for one in here]
        is_secured = self._security.token is not None
        found += openapi.routes(openapi.document(self.operations(), here, is_secured=is_secured))
        holder = self._manager.me.holder
        hosts = self._leading.settings.hosts
        uploads = frozenset(
            prefix + one.path
            for one in self.operations()
            for prefix in openapi.PREFIXES
            if one.takes_file
        )
        middleware = [Middleware(Gate, hosts=hosts, given_by=holder, uploads=uploads)]
        if tokens := self._security.tokens():
            middleware.append(Middleware(Doorkeeper, tokens=tokens, given_by=holder))
        size_max = self._leading.settings.artifacts.size_max
        middleware.append(Middleware(Bounds, given_by=holder, uploads=uploads, size_max=size_max))
        application = Starlette(
            routes=found,
            middleware=middleware,
            exception_handlers=answers.WITHOUT_A_ROUTE,
        )
        # Else a path that ends with a slash is answered by a redirect, without a body.
        application.router.redirect_slashes = False
        return application

    def operations(self) -> Routes:
        """Return what the leader answers, under each of `openapi.PREFIXES`."""
        return [one for room in ROOMS for one in room(self._leading).routes()]

    def _unready(self) -> str:
        """Return why this JobManager neither leads nor could lead at once; empty if it can."""
        term = self._manager.term
        if (term is not None and term.serves) or self._manager.around.mains.ready:
            return ""
        return "the process of main is not started yet"

    async def close(self) -> None:
        """Close the connections to leaders."""
        if self._forwarder:
            await self._forwarder.close()

    def _endpoint(self, handler: Handler, *, is_upload: bool = False) -> Handler:
        """Answer here while leading, else forward; refuse requests for another JobManager."""

        async def endpoint(request: Request) -> Response:
            me = self._manager.me.holder
            if request.headers.get(own_headers.MEANT_FOR, me) != me:
                return answers.error(421, "This is another JobManager than the one that is meant.")
            response = await answer(request)
            response.headers.setdefault(own_headers.GIVEN_BY, me)
            return response

        async def answer(request: Request) -> Response:
            term = self._manager.term
            if term is None or not term.serves:
                return await self._hand_on(request, is_upload=is_upload)
            with self._leading.answering(term):
                response = await self._answer(handler, request)
            if response is not None:
                audit.answered(request, response.status_code)
            refused = response is None or response.status_code >= HTTPStatus.BAD_REQUEST
            if response is None or (refused and self._manager.term is not term):
                # A term that has ended refuses what the next one may grant.
                if is_upload:  # It has been read: the client sends it again.
                    return self._unavailable(request)
                return await self._hand_on(request)
            return response

        return endpoint

    async def _answer(self, handler: Handler, request: Request) -> Response | None:
        """Return a route's answer under the request's term; None if that term has ended."""
        try:
            return await handler(request)
        except UsageError as error:
            return answers.refused(400, error)
        except NotFoundError as error:
            return answers.refused(404, error)
        except (OSError, TimeoutError) as error:
            return self._unavailable(request, _NO_STORES.format(str(error) or "timeout"))
        except (ArtifactInUse, UnreadableApplication) as error:
            return answers.refused(409, error)
        except TooLargeError as error:
            return answers.refused(413, error)
        except ClientDisconnect:
            return answers.error(408, "The upload was broken off.")
        except LeadershipLost as error:
            _log.info("a request is handed on: %s", error)
            return None
        except UnderstudyError as error:
            return answers.refused(500, error)
        except Exception:
            _log.exception("a request failed: %s %s", request.method, request.url.path)
            return answers.error(500, _INTERNAL)

    def _unavailable(self, request: Request, message: str = answers.ELECTION) -> Response:
        """Return 503 for a time without a leader; ``/ha/status`` adds the register's status."""
        if request.url.path.removeprefix("/v1") == HA_STATUS:
            return answers.unavailable(message, register=self._leading.register())
        return answers.unavailable(message)

    async def _hand_on(self, request: Request, *, is_upload: bool = False) -> Response:
        leader = self._manager.leader
        if leader is None and self._manager.waits_for_run:
            return self._unavailable(request, answers.NO_RUN)
        mine = leader is not None and leader.holder == self._manager.me.holder
        if leader is None or mine or HANDED_ON in request.headers:
            return self._unavailable(request)
        if self._forwarder is None:
            # Imported only to forward, and not in the event loop: it takes a quarter of a second.
            module = await asyncio.to_thread(importlib.import_module, "understudy.api.forwarder")
            self._forwarder = self._forwarder or module.Forwarder(
                self._security.client(module.FORWARD_S)
            )
        answer = await self._forwarder.ask(
            request,
            leader.rest,
            {
                HANDED_ON: self._manager.me.name,
                own_headers.MEANT_FOR: leader.holder,
                own_headers.ID: minted(request),
                **audit.passed_on(request.scope),
            },
            is_upload=is_upload,
        )
        if answer is None:
            return self._unavailable(request, _NO_ANSWER.format(leader.rest))
        if answer.headers.get(own_headers.GIVEN_BY) != leader.holder:
            return self._unavailable(request)
        headers = {
            name: text
            for name, text in answer.headers.items()
            if name in HANDED_BACK or name.startswith("x-understudy-")
        }
        return Response(answer.content, answer.status_code, headers)


@contextlib.asynccontextmanager
async def serving(
    manager: JobManager, listening: socket.socket, security: RestSecurity = OPEN
) -> AsyncIterator[None]:
    """Serve REST on a bound socket during the block."""
    rest = Rest(manager, security)
    server = api_server.server(rest.application(), security.server())
    try:
        async with server.serving(listening):
            yield
    finally:
        with Closing("REST") as closing, closing.step("its connections to a leader"):
            await rest.close()
