"""The endpoint of a process that waits for its rights: it lives, it is not ready, and says why."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from understudy.api import answers, probes
from understudy.api import server as api_server
from understudy.api.authentication import RestSecurity


def application(why: Callable[[], str], status: Callable[[], Mapping[str, object]]) -> Starlette:
    """Return the ASGI application; ``status`` is the register's, for ``/ha/status``."""

    async def ha_status(request: Request) -> Response:
        return answers.unavailable(why(), register=dict(status()))

    async def other(request: Request) -> Response:
        return answers.unavailable(why())

    return Starlette(
        routes=[
            *(Route(one.path, one.handler) for one in probes.routes(why)),
            Route("/ha/status", ha_status),
            Route("/v1/ha/status", ha_status),
            Route("/{path:path}", other, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]
    )


@contextlib.asynccontextmanager
async def serving(
    listening: socket.socket,
    security: RestSecurity,
    why: Callable[[], str],
    status: Callable[[], Mapping[str, object]],
) -> AsyncIterator[None]:
    """Serve on a bound socket during the block."""
    # Who has no token learns what is missing, and not how the register is doing.
    shown = status if security.token is None else dict
    async with api_server.server(application(why, shown), security.server()).serving(listening):
        yield
