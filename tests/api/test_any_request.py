"""Any request to a leader with an unfinished application and a buried one: whatever it holds, the
answer is one that the OpenAPI document allows, and never an error of the server."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from urllib.parse import quote

import httpx
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.api.conftest import same
from tests.api.test_bodies import FILE, RECORD, STONE
from tests.api.test_metrics import manager
from tests.ha import ground
from tests.support.faulty_register import Durable
from understudy.api import bodies
from understudy.api.answers import Operation
from understudy.api.rest import Rest
from understudy.clock import SystemClock
from understudy.ha import layout
from understudy.ha.format import digest
from understudy.jobmanager.retention import tombstones
from understudy.model import ApplicationId, JobId, Pointer, RunId

BURIED, GONE = RunId("run-0"), JobId("f" * 32)
KNOWN = (
    *(ground.APPLICATION, ground.RUN, BURIED, ground.job(1).job_id, ground.job(2).job_id, GONE),
    *("1" * 32, "1", "a", "0", "9" * 20),
)
"""What stands in paths and bodies, some of it known to the leader."""

texts = some.text(max_size=40) | some.sampled_from(KNOWN)
named = some.sampled_from(KNOWN) | texts
values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | texts,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
KEYS = (
    *("target-directory", "cancel-job", "triggerId", "targetDirectory", "drain"),
    *("savepoint-path", "trigger-id"),
)
objects = some.dictionaries(some.sampled_from(KEYS), values, max_size=4).map(json.dumps)
contents = (
    objects.map(str.encode) | some.binary(max_size=60) | values.map(json.dumps).map(str.encode)
)
queries = some.dictionaries(
    some.sampled_from(("maxExceptions", "offset", "mode", "unless")) | texts, texts, max_size=3
)


async def leading() -> Rest:
    """Return the REST of a leader of a cluster with some of everything."""
    stores = ground.services(Durable())
    plans = await ground.opened(stores)
    for number in (1, 2):
        await plans.add(1, ground.job(number))
    stone = msgspec.structs.replace(STONE, run_id=BURIED, application_id=ApplicationId("b" * 32))
    path = layout.tombstone_path(ground.CLUSTER, BURIED, 1)
    record = msgspec.structs.replace(RECORD, job_id=GONE)
    data = tombstones.dump(msgspec.structs.replace(FILE, jobs=(record,)))
    await stores.storage.publish(path, data)
    pointer = Pointer(path=path, digest=digest(data), size=len(data))
    await stores.registry.bury(
        1, stone.application_id, msgspec.structs.replace(stone, file=pointer)
    )
    one = manager({"execution.shutdown-on-application-finish": "false"}, stores, SystemClock())
    one.lead(1)
    assert one.term is not None
    one.term.leadership.addresses = ("http://me", "")
    return Rest(cast("Any", one))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=some.data())
def test_any_request_is_answered_as_documented(data: some.DataObject) -> None:
    asyncio.run(asked(data))


async def asked(data: some.DataObject) -> None:
    """Ask once, for whatever is drawn; `conftest` compares the answer with its type."""
    rest = await leading()
    _, request = drawn(data, rest.operations())
    transport = httpx.ASGITransport(app=rest.application())
    async with httpx.AsyncClient(transport=transport) as client:
        answer = await client.send(request)
    assert answer.status_code < 500, answer.text
    assert not answer.is_redirect
    if answer.status_code >= 400:
        same(bodies.Error, answer.content)


def drawn(
    data: some.DataObject,
    operations: list[Operation],
    names: some.SearchStrategy[str] = named,
    base: str = "http://localhost",
) -> tuple[Operation, httpx.Request]:
    """Return any operation, and any request for it; ``names``: what stands in its path."""
    one = data.draw(some.sampled_from(operations), "operation")
    path = one.path
    while "{" in path:
        before, _, rest_of_it = path.partition("{")
        filled = quote(data.draw(names, "in the path"), safe="")
        path = f"{before}{filled}{rest_of_it.partition('}')[2]}"
    kind = "multipart/form-data; boundary=x" if one.takes_file else "application/json"
    content = data.draw(contents, "content") if one.method != "GET" else b""
    return one, httpx.Request(
        one.method,
        f"{base}{path}",
        params=data.draw(queries, "query"),
        content=content,
        headers={"content-type": kind} if content or one.takes_file else {},
    )
