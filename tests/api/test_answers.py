"""Every refusal has one shape, whoever refuses, and a code for programs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.api import serving
from tests.api.serving import request
from tests.api.test_bounds import run
from understudy.api import answers
from understudy.api.leading import Leading
from understudy.api.rest import Rest
from understudy.errors import (
    ConfigurationError,
    CorruptDataError,
    NotFoundError,
    UnderstudyError,
    UsageError,
)
from understudy.model import Incarnation, LeaderRecord

HOST, JSON = "Host: localhost", "Content-Type: application/json"


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "usage"),
        (request("GET", "http://x/overview", HOST), 400, "usage"),
        (request("GET", "/overview", "Host: evil.example"), 403, "forbidden"),
        (request("GET", "/nowhere", HOST), 404, "not-found"),
        (request("GET", "/overview/", HOST), 404, "not-found"),
        (request("DELETE", "/overview", HOST), 405, "method-not-allowed"),
        (
            request("POST", "/applications/a/cancel", HOST, "Content-Type: text/plain"),
            415,
            "unsupported-media-type",
        ),
        (request("GET", "/overview", HOST, "x-understudy-to: another"), 421, "misdirected"),
        (request("GET", "/overview", HOST), 503, "unavailable"),
        (
            request("POST", "/jobs/a/stop", HOST, JSON, body=b"x" * 70_000),
            413,
            "too-large",
        ),
    ],
)  # fmt: skip
def test_each_refusal_has_the_same_shape(raw: bytes, status: int, code: str) -> None:
    async def story() -> serving.Said:
        async with serving.endpoint() as port:
            return await serving.exchange(port, raw)

    said = run(story())
    body: Any = msgspec.json.decode(said.body)

    assert (status, "application/json") == (said.status, said.headers["content-type"])
    assert {"errors": [said.error], "code": code}.items() <= body.items()
    assert said.error


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/overview", {"GET", "HEAD"}), ("/v1/jobs/1", {"GET", "HEAD", "PATCH"})],
)
def test_a_method_that_is_not_allowed_is_answered_with_those_that_are(
    path: str, methods: set[str]
) -> None:
    async def story() -> serving.Said:
        async with serving.endpoint() as port:
            return await serving.exchange(port, request("TRACE", path, HOST))

    said = run(story())

    assert (405, "method-not-allowed") == (said.status, msgspec.json.decode(said.body)["code"])
    assert methods == set(said.headers["allow"].split(", "))


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UsageError("no"), 400, "usage"),
        (ConfigurationError("no"), 400, "configuration"),
        (NotFoundError("no"), 404, "not-found"),
        (CorruptDataError("no"), 500, "corrupt-data"),
        (UnderstudyError("no"), 500, "error"),
        (KeyError("no"), 500, "internal"),
        (OSError("no route"), 503, "unavailable"),
    ],
)
def test_an_error_of_a_route_keeps_its_code(error: Exception, status: int, code: str) -> None:
    async def handler(request: Request) -> Response:
        raise error

    answer = answered(handler)
    body = msgspec.json.decode(bytes(answer.body))

    assert (status, code) == (answer.status_code, body["code"])
    assert str(error) in body["errors"][0] or status == 500


def test_what_went_wrong_unexpectedly_is_in_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: Request) -> Response:
        raise KeyError("a secret of the program")

    answer = answered(handler)

    assert b"a secret" not in bytes(answer.body)
    assert "a secret of the program" in caplog.text


def test_a_code_is_given_for_each_status_that_is_answered() -> None:
    assert {400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 421, 500, 503} <= set(answers.CODES)


def answered(handler: Callable[[Request], Awaitable[Response]]) -> Response:
    """Return what an endpoint answers while it leads."""
    led: Any = SimpleNamespace(
        term=SimpleNamespace(serves=True),
        leader=None,
        waits_for_run=False,
        me=LeaderRecord(holder=Incarnation("me"), term=1, session=""),
    )
    rest = Rest.__new__(Rest)
    rest._leading, rest._manager = Leading.__new__(Leading), led
    request = Request({"type": "http", "method": "GET", "path": "/jobs", "headers": []})
    return asyncio.run(rest._endpoint(handler)(request))  # type: ignore[arg-type]
