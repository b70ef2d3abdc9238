"""What was asked of an API server, as its audit log has it: who counts requests reads them here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLICY = json.dumps(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        # One line for each request: when it is answered, a watch when it begins.
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
            {"level": "Metadata", "verbs": ["watch"], "omitStages": ["ResponseComplete"]},
            {"level": "Metadata"},
        ],
    }
)

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class Request:
    """One request, with the words that RBAC has for it."""

    user: str
    verb: str
    resource: str
    """With its subresource, as in ``pods/status``; for other requests the path."""
    namespace: str
    name: str
    code: int
    agent: str

    @property
    def is_write(self) -> bool:
        """Say whether it was to change something, done or refused."""
        return self.verb in WRITES

    def __str__(self) -> str:
        """Return a short form for people and for counting."""
        return f"{self.verb} {self.resource}" + (f" {self.name}" if self.name else "")


class Audit:
    """The audit log of one API server, through all its restarts."""

    def __init__(self, log: Path) -> None:
        self.path = log
        self._offset = 0

    def begin(self) -> None:
        """Leave out of the next `requests` what has been asked until now."""
        self._offset = self.path.stat().st_size if self.path.exists() else 0

    def requests(self, user: str | None = None, namespace: str | None = None) -> list[Request]:
        """Return the requests since `begin`, all or those of a user or in a namespace."""
        return [
            one
            for one in self._read()
            if (user is None or one.user == user) and namespace in (None, one.namespace)
        ]

    def counted(self, user: str | None = None, namespace: str | None = None) -> Counter[str]:
        """Return how often each was asked since `begin`, as ``{"update leases leader": 3}``."""
        return Counter(map(str, self.requests(user, namespace)))

    def _read(self) -> Iterator[Request]:
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file.read().splitlines(keepends=True):
                if line.endswith(b"\n"):  # the last one may still be written
                    yield _request(json.loads(line))


def _request(event: dict[str, Any]) -> Request:
    reference = event.get("objectRef", {})
    resource = reference.get("resource", event["requestURI"])
    if subresource := reference.get("subresource"):
        resource = f"{resource}/{subresource}"
    return Request(
        user=event["user"].get("username", ""),
        verb=event["verb"],
        resource=resource,
        namespace=reference.get("namespace", ""),
        name=reference.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        agent=event.get("userAgent", ""),
    )
