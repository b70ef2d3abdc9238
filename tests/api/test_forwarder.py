"""A request through a standby: what the leader is told of it, and what the standby holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.api import serving
from tests.api.test_bounds import run
from tests.api.test_metrics import manager
from understudy.api import endpoint, forwarder, own_headers, server
from understudy.clock import SystemClock
from understudy.core.ids import is_hex32
from understudy.model import Incarnation, LeaderRecord

LEADER = "the-leader"
PIECE = b"x" * (1 << 20)


async def _told(request: Request) -> Response:
    """Answer with what arrived."""
    body = (await request.body()).decode()
    headers = {key: request.headers.get(key) for key in ("content-type", "origin", "host")}
    target = f"{request.scope['raw_path'].decode()}?{request.scope['query_string'].decode()}"
    told = {"body": body, "target": target, **headers}
    return JSONResponse(told, headers={own_headers.GIVEN_BY: LEADER})


async def _endless(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield PIECE
            await asyncio.sleep(0)

    return StreamingResponse(pieces(), headers={own_headers.GIVEN_BY: LEADER})


async def _dripping(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.05)

    return StreamingResponse(pieces(), headers={own_headers.GIVEN_BY: LEADER})


def through_a_standby(path: str, answer: Any, **asked: Any) -> httpx.Response:
    """Ask a standby, whose leader answers with this."""

    async def story() -> httpx.Response:
        listening = endpoint.bind("127.0.0.1", (0,))
        url = endpoint.url_of(listening, "127.0.0.1")
        routes = [Route(path, answer, methods=["GET", "POST", "PATCH"])]
        leading = server.server(Starlette(routes=routes), None)
        task = asyncio.create_task(leading.serve(sockets=[listening]))
        one = manager({}, serving.services(), SystemClock())
        one.leader = LeaderRecord(holder=Incarnation(LEADER), term=3, session="", rest=url)
        try:
            async with (
                serving.endpoint(one=one) as port,
                httpx.AsyncClient(trust_env=False, timeout=serving.PATIENCE_S) as client,
            ):
                target = asked.pop("target", path)
                return await client.request(
                    asked.pop("method", "GET"), f"http://127.0.0.1:{port}{target}", **asked
                )
        finally:
            leading.should_exit = leading.force_exit = True
            await task

    found: httpx.Response = run(story())
    return found


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"json": {"a": 1}}, {"body": '{"a":1}', "content-type": "application/json"}),
        ({}, {"body": "", "content-type": None}),
    ],
)
def test_a_change_is_handed_on_as_what_it_is(
    asked: dict[str, Any], expected: dict[str, str | None]
) -> None:
    told = through_a_standby("/savepoint-disposal", _told, method="POST", **asked).json()

    assert expected.items() <= told.items()


@pytest.mark.parametrize("name", ["%00", "a%3Fb", "a%23b", "%2e%2e", "%ff", "a%20b"])
def test_the_leader_is_asked_for_what_the_standby_was_asked_for(name: str) -> None:
    target = f"/jobs/{name}?maxExceptions=1&a=%26"
    answer = through_a_standby("/jobs/{job_id}", _told, target=target)

    assert 200 == answer.status_code
    assert target == answer.json()["target"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"host": "evil.example"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/json", "content-length": "1000000"}, 413),
    ],
)
def test_what_a_leader_would_refuse_is_not_handed_on(headers: dict[str, str], status: int) -> None:
    asked = {"method": "POST", "headers": headers, "content": b"{}"}
    if status == 413:
        asked["content"] = b"x" * 1_000_000

    assert status == through_a_standby("/savepoint-disposal", _told, **asked).status_code


@pytest.mark.parametrize("answer", [_endless, _dripping])
def test_an_answer_without_end_is_not_held(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "HELD_BYTES_MAX", 8 << 20)
    monkeypatch.setattr(forwarder, "FORWARD_S", 2.0)

    assert 503 == through_a_standby("/overview", answer).status_code


@pytest.mark.parametrize("given", [{}, {own_headers.ID: "0123456789abcdef" * 2}])
def test_the_leader_is_told_which_id_the_standby_has_chosen_for_what_is_submitted(
    given: dict[str, str],
) -> None:
    async def told(request: Request) -> Response:
        return JSONResponse(request.headers[own_headers.ID], headers={own_headers.GIVEN_BY: LEADER})

    path = "/artifacts/0_etl.py/run-application"
    answer = through_a_standby(path, told, method="POST", headers=given)

    assert is_hex32(answer.json())
    assert given.get(own_headers.ID, answer.json()) == answer.json()
