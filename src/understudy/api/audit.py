"""The audit log: one line for each request that changes something, and for each that is refused.

``who=alice role=admin from=10.0.0.7 do="POST /artifacts/upload" about=3f…_etl.py status=200``

The JobManager that answers writes the line: the leader, also for a request that came through a
standby. What clients choose is quoted, so that no line can be forged.
"""

from __future__ import annotations

import json
import logging

from starlette.requests import Request
from starlette.types import Scope

from understudy.api import own_headers
from understudy.api.tokens import ANYONE, Caller, Role, is_name
from understudy.rpc.complaints import Bounded

SHOWN_CHARS_MAX = 300

CALLER = "understudy.caller"
"""Key of a request's scope: who asks, where a token says so."""

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing here; all others do."""

_log = logging.getLogger("understudy.audit")
_refusals = logging.getLogger("understudy.audit.refused")
_refusals.addFilter(Bounded())


def about(request: Request, subject: str) -> None:
    """Note what a request is about, where its path does not say so."""
    request.state.about = subject


def answered(request: Request, status: int) -> None:
    """Log a request that may have changed something, and what was answered."""
    if request.method not in SAFE:
        subject = getattr(request.state, "about", "")
        _log.info("%s %s status=%d", _who(request.scope), _line(request.scope, subject), status)


def refused(scope: Scope, status: int) -> None:
    """Log a request that shows no token, or one that does not suffice; a few of them a minute."""
    # The number of lines is bounded for each caller: a stranger hides nobody.
    _refusals.warning(f"{_who(scope)} %s status={status}", _line(scope))


def asking(scope: Scope) -> tuple[Caller, str]:
    """Return who asks, and from where; of a standby's request, who asked the standby."""
    client = scope.get("client")
    caller, place = scope.get(CALLER, ANYONE), str(client[0]) if client else ""
    if caller.is_member:
        headers = Request(scope).headers
        name, _, role = headers.get(own_headers.ASKED_BY, "").partition(" ")
        place = headers.get(own_headers.ASKED_FROM, place)
        if is_name(name) and role in {one.value for one in Role}:
            caller = Caller(name, Role(role))
    return caller, place


def passed_on(scope: Scope) -> dict[str, str]:
    """Return the headers by which a standby says who asked."""
    caller, place = asking(scope)
    return {
        own_headers.ASKED_BY: f"{caller.name} {caller.role.value}",
        own_headers.ASKED_FROM: place,
    }


def _who(scope: Scope) -> str:
    caller, _ = asking(scope)
    return f"who={caller.name} role={caller.role.value}"


def _line(scope: Scope, subject: str = "") -> str:
    """Return where a request comes from, what it asks for, and what it is about."""
    path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
    what = _quoted(f"{scope['method']} {path}")
    line = f"from={_quoted(asking(scope)[1])} do={what}"
    return f"{line} about={_quoted(subject)}" if subject else line


def _quoted(text: str) -> str:
    """Return an address as it is, and any other text in quotation marks, cut if it is long."""
    plain = text.replace(".", "").replace(":", "").replace("-", "").replace("_", "").isalnum()
    return text if plain and text.isascii() else json.dumps(text[:SHOWN_CHARS_MAX])
