"""Any request to a running session, its leader or its standby: answered as documented."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from starlette.responses import Response

from tests.api.conftest import check
from tests.api.test_any_request import drawn, named
from tests.api.test_openapi import rest
from tests.journeys import harness
from tests.journeys.harness import command
from tests.journeys.members import until
from tests.journeys.sessions import ENDED, Session, applications, leader_of, session
from understudy.api.client import ClusterClient

__all__ = ["session"]

CASES = 10_000
ANSWER_S = 60.0
ENDS_ALL = ("DELETE", "/cluster")
"""What does as it is asked ends the processes that are to answer the next request."""


async def submitted(session: Session, client: ClusterClient) -> list[str]:
    """Let one application end and one wait; return the ids of all that a path may name."""
    script = harness.put_app(session.place, "awaits.py")
    artifact = (await client.upload(script))["id"]
    ids = [artifact, "awaits.py"]
    for name, awaited in (("ended", []), ("waits", ["never"])):
        body = {"runId": name, "programArgsList": [str(session.place), name, *awaited]}
        ids += [name, await client.run_application(artifact, body)]
    async with asyncio.timeout(harness.PATIENCE_S):
        while not ENDED & {*(await applications(client)).values()}:
            await asyncio.sleep(0.1)
    told: dict[str, Any] = await client.get("/jobs/overview")
    return [*ids, *(one["jid"] for one in told["jobs"])]


@pytest.mark.long
def test_any_request_over_http_is_answered_as_documented(session: Session, place: Path) -> None:
    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            command(place, "session", "status", "--json", code=None).stdout
        )
        return found

    until(lambda: any(one["ready"] for one in status()["standbys"]))
    known = asyncio.run(session.ask(lambda client: submitted(session, client)))
    bases = [status()["leader"]["rest"], status()["standbys"][0]["rest"]]
    names = some.sampled_from(known) | named
    operations = [one for one in rest().operations() if (one.method, one.path) != ENDS_ALL]
    leader = asyncio.run(session.ask(leader_of))
    codes: Counter[int] = Counter()

    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(some.data())
    def ask(data: some.DataObject) -> None:
        one, request = drawn(data, operations, names, data.draw(some.sampled_from(bases)))
        answer = client.send(request)
        codes[answer.status_code] += 1

        assert answer.status_code < 500, answer.text
        assert not answer.is_redirect
        headers = {"content-type": answer.headers.get("content-type", "")}
        check(one, Response(answer.content, answer.status_code, headers))

    with httpx.Client(timeout=ANSWER_S) as client:
        ask()
    print(sum(codes.values()), "requests:", dict(codes))

    assert {200, 202, 400, 404} <= codes.keys()
    assert leader == asyncio.run(session.ask(leader_of)), "no request ends the leader"
