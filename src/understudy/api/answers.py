"""What all routes share: their type, parts of answers (JSON, text, errors), numbers in a query.

A route is a method, a path, and the handler that answers while this JobManager leads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from understudy.api import views
from understudy.errors import UsageError

Handler = Callable[[Request], Awaitable[Response]]
Routes = list[tuple[str, str, Handler]]


RETRY_AFTER_S = 1
"""Pause that a 503 asks for; an election on one host takes less."""

ELECTION = "Service temporarily unavailable due to an ongoing leader election. Please refresh."
"""Flink's wording."""

NO_RUN = (
    "Nobody leads: this JobManager was started without an application, and stands by until another "
    "one brings a run."
)

DIGITS_MAX = 15
"""Most digits of a number in a query: more than any log has bytes, and quick to parse."""


def as_json(body: object, term: int, status: int = 200) -> Response:
    """Return an answer of the leader of this term."""
    return Response(
        views.encode(body),
        status,
        {"content-type": "application/json", "x-understudy-term": str(term)},
    )


def as_text(data: bytes, headers: Mapping[str, str]) -> Response:
    """Return text that users wrote, marked so that no browser takes it for a page."""
    fixed = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}
    return Response(data, headers={**fixed, **headers})


def error(status: int, message: str, **more: object) -> Response:
    """Return a refusal in Flink's shape, with the keys of ``more`` added."""
    return Response(
        views.encode({"errors": [message], **more}), status, {"content-type": "application/json"}
    )


def unavailable(message: str = ELECTION, **more: object) -> Response:
    """Return the 503 for times without a known leader: the client should ask again."""
    response = error(503, message, **more)
    response.headers["retry-after"] = str(RETRY_AFTER_S)
    return response


def whole_number(request: Request, name: str, default: int) -> int:
    """Return a number of the query; raises `UsageError`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX:
        raise UsageError(f"{name} is {text[:100]!r}: expected a whole number that is not negative")
    return int(text)
