"""A route: a method, a path, and the handler that answers while this JobManager leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]
Routes = list[tuple[str, str, Handler]]
