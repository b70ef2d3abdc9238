"""Tokens in files: two roles, changes without a restart, and who is named in the audit log."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from understudy.api import audit, own_headers, tokens
from understudy.api.authentication import RestSecurity
from understudy.api.gate import Doorkeeper
from understudy.api.tokens import ANYONE, MEMBER, NOBODY, Caller, Role, TokenFile, Tokens
from understudy.config import Configuration
from understudy.errors import ConfigurationError

OWN = "o" * 64
ALICE, BOB = "a" * 32, "b" * 32


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "AGAIN_S", 0.0)


def written(place: Path, text: str, name: str = "viewers", mode: int = 0o600) -> Path:
    """Replace a file as a person should: whole."""
    path = place / name
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.chmod(mode)
    return draft.rename(path)


def of(*files: tuple[Path, Role]) -> Tokens:
    return Tokens(
        OWN, tuple(TokenFile("security.rest.x-file", str(path), role) for path, role in files)
    )


def caller(found: Tokens, token: str) -> Caller:
    return asyncio.run(found.caller(token.encode()))


def test_each_token_has_the_role_of_its_file(tmp_path: Path) -> None:
    viewers = written(tmp_path, f"# who may look\n\n alice {ALICE}\n")
    admins = written(tmp_path, f"bob\t{BOB}\r\n", "admins")
    found = of((admins, Role.ADMIN), (viewers, Role.VIEWER))

    assert Caller("alice", Role.VIEWER) == caller(found, ALICE)
    assert Caller("bob", Role.ADMIN) == caller(found, BOB)
    assert MEMBER == caller(found, OWN)
    for other in ("", "alice", ALICE[:-1], f"{ALICE}a", ALICE.upper(), f"alice {ALICE}"):
        assert NOBODY == caller(found, other)


@pytest.mark.parametrize("order", [1, -1])
def test_a_token_in_both_files_is_an_admins(tmp_path: Path, order: int) -> None:
    both = [
        (written(tmp_path, f"alice {ALICE}", "a"), Role.ADMIN),
        (written(tmp_path, f"alice {ALICE}", "v"), Role.VIEWER),
    ]

    assert Caller("alice", Role.ADMIN) == caller(of(*both[::order]), ALICE)


def test_a_change_takes_effect_without_a_restart(tmp_path: Path) -> None:
    path = written(tmp_path, f"alice {ALICE}")
    found = of((path, Role.VIEWER))
    before = caller(found, ALICE)
    written(tmp_path, f"alice {BOB}")

    assert Caller("alice", Role.VIEWER) == before
    assert NOBODY == caller(found, ALICE)
    assert Caller("alice", Role.VIEWER) == caller(found, BOB)


def test_both_tokens_count_while_one_replaces_the_other(tmp_path: Path) -> None:
    found = of((written(tmp_path, f"alice {ALICE}\nalice {BOB}"), Role.VIEWER))

    assert caller(found, ALICE) == caller(found, BOB) == Caller("alice", Role.VIEWER)


BAD = {
    "alice": "line 1 is not a name and a token",
    f"{ALICE}": "line 1 is not a name and a token",
    f"a b {ALICE}": "line 1 is not a name and a token",
    f"\nalice {'a' * 15}": "line 2 is not a name and a token",
    f"cluster {ALICE}": "line 1 is not a name and a token",
    f"<b> {ALICE}": "line 1 is not a name and a token",
    "alice tökentökentöken": "line 1 is not a name and a token",
}


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_is_not_understood_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        TokenFile("security.rest.viewers-file", str(path), Role.VIEWER).read()

    assert f"security.rest.viewers-file: {path}: {BAD[text]}" in str(caught.value)
    assert ALICE not in str(caught.value)


def test_a_file_of_too_many_tokens_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "TOKENS_MAX", 1)
    path = written(tmp_path, f"alice {ALICE}\nbob {BOB}")
    with pytest.raises(ConfigurationError, match="holds 2 tokens: at most 1"):
        TokenFile("security.rest.viewers-file", str(path), Role.VIEWER).read()


@pytest.mark.parametrize("damage", ["gone", "mode", "nonsense", "directory"])
def test_a_file_that_cannot_be_used_any_more_lets_nobody_in_and_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    path = written(tmp_path, f"alice {ALICE}")
    found = of((path, Role.VIEWER))
    assert caller(found, ALICE).name == "alice"
    match damage:
        case "gone":
            path.unlink()
        case "mode":
            path.chmod(0o644)
        case "nonsense":
            written(tmp_path, "nonsense")
        case "directory":
            path.unlink()
            path.mkdir()

    assert [NOBODY, NOBODY, NOBODY] == [caller(found, ALICE) for _ in range(3)]
    assert MEMBER == caller(found, OWN)
    assert 1 == len(caplog.records), caplog.text
    assert str(path) in caplog.text
    if damage == "directory":
        path.rmdir()
    written(tmp_path, f"alice {ALICE}")

    assert Caller("alice", Role.VIEWER) == caller(found, ALICE)


def test_a_file_that_does_not_answer_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "PATIENCE_S", 0.05)
    path = written(tmp_path, f"alice {ALICE}")
    answers = threading.Event()
    found = of((path, Role.VIEWER))

    async def story() -> tuple[Caller, Caller, int]:
        before = await found.caller(ALICE.encode())
        threads, asked = threading.active_count(), []
        monkeypatch.setattr(TokenFile, "refresh", lambda _: asked.append(answers.wait(60)))
        later = [await found.caller(ALICE.encode()) for _ in range(3)]
        threads = threading.active_count() - threads
        answers.set()
        return before, later[-1], threads

    before, later, threads = asyncio.run(story())

    assert Caller("alice", Role.VIEWER) == before == later
    assert threads < 3, "one thread waits, not one for each request"


# --- roles ----------------------------------------------------------------------------------------


async def _who(request: Request) -> Response:
    found, place = audit.asking(request.scope)
    return JSONResponse([found.name, found.role.value, place])


def asked(
    found: Tokens, method: str, token: str, headers: dict[str, str] | None = None
) -> httpx.Response:
    routes = [Route("/x", _who, methods=["GET", "POST", "PATCH", "DELETE", "PUT"])]
    app = Doorkeeper(Starlette(routes=routes), found, "me")

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, client=("10.0.0.7", 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            shown = {"authorization": f"Bearer {token}", **(headers or {})}
            return await client.request(method, "/x?a=1", headers=shown)

    return asyncio.run(ask())


@pytest.fixture
def found(tmp_path: Path) -> Tokens:
    return of(
        (written(tmp_path, f"alice {ALICE}", "v"), Role.VIEWER),
        (written(tmp_path, f"bob {BOB}", "a"), Role.ADMIN),
    )


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_viewer_reads(found: Tokens, method: str) -> None:
    assert 200 == asked(found, method, ALICE).status_code


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE", "PUT"])
def test_a_viewer_changes_nothing_and_an_admin_does(
    found: Tokens, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = asked(found, method, ALICE)

    assert (403, "forbidden") == (refused.status_code, refused.json()["code"])
    assert "me" == refused.headers[own_headers.GIVEN_BY]
    assert f'who=alice role=viewer from=10.0.0.7 do="{method} /x" status=403' in caplog.text
    assert ["bob", "admin", "10.0.0.7"] == asked(found, method, BOB).json()
    assert 200 == asked(found, method, OWN).status_code


def test_who_shows_no_token_is_in_the_audit_log_a_few_times_a_minute(
    found: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(40):
        assert 401 == asked(found, "POST", "x" * 64).status_code

    asked(found, "POST", ALICE)
    lines = [one.getMessage() for one in caplog.records if "status=401" in one.getMessage()]
    assert 1 <= len(lines) <= 10
    assert "x" * 64 not in caplog.text
    assert "who=alice" in caplog.records[-1].getMessage(), "strangers hide nobody"


def test_a_standby_says_who_has_asked_and_nobody_else_is_believed(found: Tokens) -> None:
    said = {own_headers.ASKED_BY: "carol viewer", own_headers.ASKED_FROM: "192.0.2.1"}

    assert ["carol", "viewer", "192.0.2.1"] == asked(found, "GET", OWN, said).json()
    assert ["alice", "viewer", "10.0.0.7"] == asked(found, "GET", ALICE, said).json()
    assert ["cluster", "admin", "10.0.0.7"] == asked(found, "GET", OWN).json()


def test_where_no_token_is_needed_anyone_asks() -> None:
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": []}

    assert (ANYONE, "") == audit.asking(scope)


def test_no_line_of_the_audit_log_can_be_forged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/x",
        "raw_path": b'/x"%0a status=200\nwho=eve',
        "headers": [],
        "client": ("10.0.0.7", 1),
    }
    request = Request(scope)
    audit.about(request, 'a"\nwho=eve \x1b[2J')
    audit.answered(request, 202)
    (line,) = [one.getMessage() for one in caplog.records]

    assert line.isprintable()
    assert line.startswith("who=anyone role=admin from=10.0.0.7 do=")
    assert line.endswith('about="a\\"\\nwho=eve \\u001b[2J" status=202')


# --- configuration --------------------------------------------------------------------------------


def test_files_are_configured_and_checked_at_the_start(tmp_path: Path) -> None:
    secret = written(tmp_path, "a secret of this test", "secret")
    viewers = written(tmp_path, f"alice {ALICE}", "v")
    settings = {
        "security.secret-file": str(secret),
        "security.rest.viewers-file": str(viewers),
        "security.rest.admins-file": str(tmp_path / "none"),
    }
    security = RestSecurity.of(Configuration(settings))
    accepted = security.tokens()
    assert accepted is not None

    assert Caller("alice", Role.VIEWER) == caller(accepted, ALICE)
    security.check(serves=False)
    with pytest.raises(
        ConfigurationError, match=r"security.rest.admins-file: .*none does not exist"
    ):
        security.check(serves=True)


@pytest.mark.parametrize("key", ["security.rest.viewers-file", "security.rest.admins-file"])
def test_a_file_of_tokens_needs_a_secret(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{key} is set, but security.secret-file is not"):
        Configuration({key: os.devnull})
