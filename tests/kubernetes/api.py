"""A small blocking client of an API server, for tests: it neither retries nor hides an answer."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

Object = dict[str, Any]
"""A Kubernetes object, or what the API server answers in place of one."""

ANSWER_S = 10.0
PATIENCE_S = 60.0
POLL_S = 0.02

_PATCH = {"Content-Type": "application/merge-patch+json"}
_APPLY = {"Content-Type": "application/apply-patch+yaml"}

CORE = "/api/v1"
APPS = "/apis/apps/v1"
COORDINATION = "/apis/coordination.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"


class RefusedError(Exception):
    """The API server answered with an error; ``code`` is its HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


def path(group: str, kind: str, name: str = "", namespace: str | None = "default") -> str:
    """Return the path of one object, or of all of a kind; ``namespace=None`` for a cluster's."""
    middle = f"/namespaces/{namespace}" if namespace else ""
    return f"{group}{middle}/{kind}" + (f"/{name}" if name else "")


class Api:
    """Requests as one user."""

    def __init__(self, url: str, context: ssl.SSLContext, token: str = "") -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(
            base_url=url, verify=context, headers=headers, timeout=ANSWER_S, trust_env=False
        )

    def close(self) -> None:
        """Close all connections."""
        self.http.close()

    def get(self, place: str, **parameters: str) -> Object:
        """Return an object or a list."""
        return _judged(self.http.get(place, params=parameters))

    def find(self, place: str) -> Object | None:
        """Return an object; None if there is none."""
        answer = self.http.get(place)
        return None if answer.status_code == httpx.codes.NOT_FOUND else _judged(answer)

    def create(self, place: str, body: Object) -> Object:
        """Create an object."""
        return _judged(self.http.post(place, json=body))

    def replace(self, place: str, body: Object) -> Object:
        """Replace an object; with its ``resourceVersion`` only if nobody else has written it."""
        return _judged(self.http.put(place, json=body))

    def patch(self, place: str, body: Object) -> Object:
        """Merge fields into an object."""
        return _judged(self.http.patch(place, content=json.dumps(body), headers=_PATCH))

    def apply(self, place: str, body: Object) -> Object:
        """Create an object, or have it hold these fields, by server-side apply."""
        owner = {"fieldManager": "tests", "force": "true"}
        return _judged(
            self.http.patch(place, content=json.dumps(body), headers=_APPLY, params=owner)
        )

    def delete(self, place: str, **options: Any) -> Object:
        """Delete an object, with these ``DeleteOptions``."""
        return _judged(self.http.request("DELETE", place, json=options))

    def watch(
        self, place: str, timeout_s: float = PATIENCE_S, **parameters: str
    ) -> Iterator[Object]:
        """Yield what happens to a list until the server ends the stream."""
        asked = {"watch": "true", "timeoutSeconds": f"{timeout_s:.0f}", **parameters}
        wait = httpx.Timeout(ANSWER_S, read=timeout_s + ANSWER_S)
        with self.http.stream("GET", place, params=asked, timeout=wait) as answer:
            if answer.is_error:
                answer.read()
                _judged(answer)
            yield from map(json.loads, answer.iter_lines())


def await_that(what: str, holds: Callable[[], Any], timeout_s: float = PATIENCE_S) -> Any:
    """Wait until this is true, and return it; otherwise raise ``AssertionError``."""
    until = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < until, f"not in {timeout_s:.0f} s: {what}"
        time.sleep(POLL_S)
    return found


def _judged(answer: httpx.Response) -> Object:
    if answer.is_error:
        try:
            message = answer.json().get("message", answer.text)
        except ValueError:
            message = answer.text
        raise RefusedError(answer.status_code, message)
    found: Object = answer.json()
    return found
