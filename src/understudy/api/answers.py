"""What all routes share: their type, parts of answers (JSON, text, errors), numbers in a query.

A route is an `Operation`: what it does, and the handler that answers while this JobManager leads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from understudy.api import bodies, views
from understudy.errors import UnderstudyError, UsageError

Handler = Callable[[Request], Awaitable[Response]]

TEXT = "text/plain; charset=utf-8"


DIGITS_MAX = 15
"""Most digits of a number in a query: more than any log has bytes, and quick to parse."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=10**DIGITS_MAX)]
"""A number in a query or a path; see `whole_number`."""


@dataclass(frozen=True)
class Query:
    """A parameter of a query, or a header, which may be left out."""

    name: str
    meaning: str
    type: Any = str


@dataclass(frozen=True)
class Operation:
    """A method on a path (OpenAPI's word), which the OpenAPI document describes."""

    method: str
    path: str
    handler: Handler
    summary: str
    """What it does, in one sentence."""
    answer: Any = bodies.Nothing
    """Type of the answer's JSON; a text for the ``Content-Type`` of another answer."""
    status: int = 200
    body: Any = None
    """Type of the request's JSON, which may be left out; None if nothing is taken."""
    query: tuple[Query, ...] = ()
    headers: tuple[Query, ...] = ()
    takes_file: bool = False
    """The request's body is one file, as a form sends it, and is read as it arrives."""


Routes = list[Operation]


RETRY_AFTER_S = 1
"""Pause that a 503 asks for; an election on one host takes less."""

ELECTION = "Service temporarily unavailable due to an ongoing leader election. Please refresh."
"""Flink's wording."""

NO_RUN = (
    "Nobody leads: this JobManager was started without an application, and stands by until another "
    "one brings a run."
)

CODES = {
    400: "usage",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "request-timeout",
    409: "conflict",
    412: "precondition-failed",
    413: "too-large",
    415: "unsupported-media-type",
    421: "misdirected",
    500: "internal",
    503: "unavailable",
}
"""The code of a refusal that no error of `understudy.errors` has caused, by its status."""


def as_json(body: object, term: int, status: int = 200) -> Response:
    """Return an answer of the leader of this term."""
    return Response(
        views.encode(body),
        status,
        {"content-type": "application/json", "x-understudy-term": str(term)},
    )


def as_text(data: bytes, headers: Mapping[str, str]) -> Response:
    """Return text that users wrote, marked so that no browser takes it for a page."""
    fixed = {"content-type": TEXT, "x-content-type-options": "nosniff"}
    return Response(data, headers={**fixed, **headers})


def error(
    status: int, message: str, code: str = "", more: Mapping[str, object] | None = None
) -> Response:
    """Return a refusal: Flink's ``errors``, our ``code`` for programs, and the keys of ``more``.

    Without a ``code``, the status has one.
    """
    body = {"errors": [message], "code": code or CODES[status], **(more or {})}
    return Response(views.encode(body), status, {"content-type": "application/json"})


def refused(status: int, cause: UnderstudyError) -> Response:
    """Return the refusal that an error has caused, with the error's own code."""
    return error(status, str(cause), cause.code)


def unavailable(message: str = ELECTION, **more: object) -> Response:
    """Return the 503 for times without a known leader: the client should ask again."""
    response = error(503, message, more=more)
    response.headers["retry-after"] = str(RETRY_AFTER_S)
    return response


async def _not_found(request: Request, _: Exception) -> Response:
    return error(404, f"Not found: {request.url.path}")


async def _not_allowed(request: Request, _: Exception) -> Response:
    """Refuse a method, and name those of all routes with this path."""
    routes: list[Route] = [one for one in request.app.routes if isinstance(one, Route)]
    found = [one.methods for one in routes if one.matches(request.scope)[0] is not Match.NONE]
    refusal = error(405, f"{request.method} is not allowed here")
    refusal.headers["allow"] = ", ".join(sorted(set().union(*(one or () for one in found))))
    return refusal


WITHOUT_A_ROUTE: dict[Any, Any] = {404: _not_found, 405: _not_allowed}
"""Starlette's handlers of what no route takes."""


def whole_number(request: Request, name: str, default: int) -> int:
    """Return a number of the query; raises `UsageError`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX:
        raise UsageError(f"{name} is {text[:100]!r}: expected a whole number that is not negative")
    return int(text)
