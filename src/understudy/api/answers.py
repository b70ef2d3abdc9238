"""What REST answers are made of: JSON, text, errors; and what may stand in a query."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from understudy.api import views
from understudy.errors import UsageError

RETRY_AFTER_S = 1
"""An election among the processes of one host is over in less."""

ELECTION = "Service temporarily unavailable due to an ongoing leader election. Please refresh."
"""Flink's words."""

NO_RUN = (
    "Nobody leads: this JobManager was started without an application, and stands by until another "
    "one brings a run."
)

DIGITS_MAX = 15
"""More than any log has bytes, and quick to read."""


def as_json(body: object, term: int, status: int = 200) -> Response:
    """Return an answer of the leader of this term."""
    return Response(
        views.encode(body),
        status,
        {"content-type": "application/json", "x-understudy-term": str(term)},
    )


def as_text(data: bytes, headers: Mapping[str, str]) -> Response:
    """Return text that users wrote: never to be taken for a page."""
    fixed = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}
    return Response(data, headers={**fixed, **headers})


def error(status: int, message: str, **more: object) -> Response:
    """Return a refusal in Flink's shape; ``more`` stands beside it."""
    return Response(
        views.encode({"errors": [message], **more}), status, {"content-type": "application/json"}
    )


def unavailable(message: str = ELECTION, **more: object) -> Response:
    """Return what is said while nobody leads, or nobody can tell: ask again."""
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
