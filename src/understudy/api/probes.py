"""Probes of a process, as a kubelet asks for them: without a token, and without a secret answer.

``/healthz`` says that the process answers. ``/readyz`` says that it can do its work, and else why
not: a standby is ready once it could lead at once.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from understudy.api.answers import TEXT, Operation, Routes

HEALTH, READY = "/healthz", "/readyz"
PATHS = (HEALTH, READY)


def routes(unready: Callable[[], str]) -> Routes:
    """Return the routes of both probes; ``unready``: why it is not ready, empty if it is."""

    async def health(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        why = unready()
        return PlainTextResponse(f"{why or 'ok'}\n", 503 if why else 200)

    return [
        Operation("GET", HEALTH, health, "200 while this process answers; needs no token.", TEXT),
        Operation(
            "GET",
            READY,
            ready,
            "200 once this process can do its work, else 503 with the reason; needs no token.",
            TEXT,
        ),
    ]
