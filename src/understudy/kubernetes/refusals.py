"""What the API server answers other than success, as exceptions; each is an ``OSError``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from understudy.kubernetes.kinds import Resource

SHOWN_CHARS_MAX = 300
"""Longest part of a server's message that ours repeat."""


class ApiRefusal(OSError):  # noqa: N818 -- an answer
    """The API server has answered with an error."""

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class NotThere(ApiRefusal):
    """404: the object does not exist."""


class Contested(ApiRefusal):
    """409: the object has another version, or exists already; nothing was written."""


class Outdated(ApiRefusal):
    """410: the server no longer knows the version that a list or watch continues from."""


class Invalid(ApiRefusal):
    """422: the server does not accept the object; a retry does not help."""


class Forbidden(ApiRefusal, PermissionError):  # noqa: N818
    """401 or 403: the server does not know us, or we lack a right."""


class Throttled(ApiRefusal):
    """429: the server asks to come back later; nothing was done."""


_BY_STATUS: Mapping[int, type[ApiRefusal]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotThere,
    409: Contested,
    410: Outdated,
    422: Invalid,
    429: Throttled,
}


_NO_RIGHT = " cannot "
"""`User "x" cannot patch resource "leases"`. Others refuse with 403 too: a quota, an admission
webhook, a namespace that is being terminated."""

_ONLY_KUBERNETES = {404, 409, 410, 422}
"""What these mean is known only if Kubernetes says it, and not a proxy."""


def rule(kind: Resource, *verbs: str) -> str:
    """Return the rule of a Role that gives rights, as one line of YAML."""
    return (
        f'{{apiGroups: ["{kind.group}"], resources: ["{kind.plural}"], verbs: {json.dumps(verbs)}}}'
    )


def judged(
    asked: tuple[str, Resource, str], namespace: str, status: int, body: bytes
) -> ApiRefusal:
    """Return the exception for an answer; ``asked``: verb, kind and the object's name."""
    verb, kind, name = asked
    what = f"{verb} {kind.plural}{f' {name!r}' if name else ''} in namespace {namespace}"
    said = _status_of(body)
    if (said is None and status in _ONLY_KUBERNETES) or (
        status == 404 and not _is_about(said, name)
    ):
        # Another server's page: whether the object exists is not known.
        status = 502
    reason = str(said.get("reason", "")) if said else ""
    message = str(said.get("message", ""))[:SHOWN_CHARS_MAX] if said else _no_status(body)
    refusal = _BY_STATUS.get(status, ApiRefusal)
    if status == 401:
        text = f"the API server does not know us (401): {message}; renew the token or certificate"
    elif status == 403 and _NO_RIGHT in message:
        text = (
            f"we may not {what}: {message}; add to the Role of our service account: "
            f"{rule(kind, verb)}"
        )
    else:
        text = f"the API server answers {status} to {what}: {message}"
    return refusal(text, status, reason)


def _status_of(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("kind") == "Status" else None


def _is_about(said: dict[str, Any] | None, name: str) -> bool:
    """Return whether a refusal is about the object that was asked for, if one was."""
    details = (said or {}).get("details") or {}
    return not name or details.get("name") == name


def _no_status(body: bytes) -> str:
    shown = " ".join(body[:SHOWN_CHARS_MAX].decode(errors="replace").split())
    return f"no answer of Kubernetes, something between us and it answers: {shown}"
