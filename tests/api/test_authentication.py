"""REST with a secret: who is answered, and who is told to show the token."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from understudy.api.authentication import OPEN, RestSecurity, token_of
from understudy.api.gate import Doorkeeper
from understudy.api.tokens import Tokens

SECRET = b"a secret of this test"
TOKEN = token_of(SECRET)


async def _hello(_: Request) -> Response:
    return PlainTextResponse("hello")


def answer(headers: list[tuple[str, str]], path: str = "/") -> httpx.Response:
    app = Doorkeeper(Starlette(routes=[Route("/", _hello)]), Tokens(TOKEN), "me")

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


def test_the_token_follows_from_the_secret_and_does_not_show_it() -> None:
    expected = hmac.new(SECRET, b"understudy rest", hashlib.sha256).hexdigest()

    assert expected == TOKEN
    assert SECRET.decode() not in TOKEN
    assert TOKEN not in repr(RestSecurity(TOKEN))


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_who_shows_the_token_is_answered(scheme: str) -> None:
    assert "hello" == answer([("authorization", f"{scheme} {TOKEN}")]).text
    assert 404 == answer([("authorization", f"{scheme} {TOKEN}")], "/nowhere").status_code


@pytest.mark.parametrize(
    "shown",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        [TOKEN],
        [f"Basic {TOKEN}"],
        [f"Bearer {TOKEN[:-1]}"],
        [f"Bearer {TOKEN}0"],
        [f"Bearer {TOKEN.upper()}"],
        [f"Bearer {SECRET.decode()}"],
        [f"Bearer {TOKEN}, Bearer {TOKEN}"],
        [f"Bearer {TOKEN}", "Bearer other"],
        ["Bearer other", f"Bearer {TOKEN}"],
        ["Bearer \xe9"],
    ],
)
@pytest.mark.parametrize("path", ["/", "/nowhere", "/metrics"])
def test_nobody_else_learns_anything(shown: list[str], path: str) -> None:
    given = answer([("authorization", one.encode("latin-1")) for one in shown], path)  # type: ignore[misc]

    assert 401 == given.status_code
    assert "Bearer" == given.headers["www-authenticate"]
    assert "me" == given.headers["x-understudy-by"]
    (said,) = json.loads(given.text)["errors"]
    assert "`understudy token` prints the token" in said
    assert TOKEN not in given.text


def test_a_client_of_the_cluster_shows_the_token_and_one_without_a_secret_shows_nothing() -> None:
    async def story() -> None:
        for security, expected in ((RestSecurity(TOKEN), f"Bearer {TOKEN}"), (OPEN, None)):
            async with security.client(1.0) as client:
                assert expected == client.headers.get("authorization")

    asyncio.run(story())
