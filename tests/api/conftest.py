"""In each test of this folder, every answer of a route is one that the OpenAPI document allows."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from understudy.api import audit
from understudy.api.answers import Operation
from understudy.api.bodies import Error
from understudy.api.rest import ROOMS
from understudy.rpc.complaints import Bounded


@pytest.fixture(autouse=True)
def _refusals_are_counted_for_each_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit._refusals, "filters", [Bounded()])


@pytest.fixture(autouse=True)
def _code_is_laid_out_for_each_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture(autouse=True)
def _answers_are_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in ROOMS:
        monkeypatch.setattr(room, "routes", _checked(room.routes))


def _checked(routes: Any) -> Any:
    @functools.wraps(routes)
    def checked(self: Any) -> list[Operation]:
        return [_with_check(one) for one in routes(self)]

    return checked


def _with_check(one: Operation) -> Operation:
    async def handler(request: Request) -> Response:
        answer = await one.handler(request)
        check(one, answer)
        return answer

    return dataclasses.replace(one, handler=handler)


def check(one: Operation, answer: Response) -> None:
    """Fail unless an answer has the status and the type that are documented, and nothing else."""
    if answer.status_code >= 400:
        same(Error, bytes(answer.body))
        return
    assert one.status == answer.status_code, one.path
    if isinstance(one.answer, str):
        assert one.answer == answer.headers["content-type"]
        return
    same(one.answer, bytes(answer.body))


def same(kind: Any, body: bytes) -> None:
    """Fail unless JSON is of this type: converted to it and back, nothing is lost."""
    expected = msgspec.json.decode(body)
    typed = msgspec.convert(expected, kind, str_keys=True)

    assert expected == msgspec.to_builtins(typed, str_keys=True)
