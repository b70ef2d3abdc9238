"""What clients of Flink send, and whose idempotency keys are whose."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from tests.api.test_many_applications import Led
from tests.api.test_runs import CONVERTED, ID, OTHER, record, run, told, upload
from understudy.api import audit, rest_runs
from understudy.api.tokens import Caller, Role


def test_arguments_in_the_query_are_taken_as_flink_takes_them() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        path = f"/jars/{artifact}/run-application?programArg=--year,2013&programArg=c"
        for one, said in ((ID, {}), (OTHER, {"programArgsList": ["body"]})):
            answer = await leader.client.post(path, json={"applicationId": one, **said})
            assert 202 == answer.status_code, answer.text
        return [(await record(leader, one)).args for one in (ID, OTHER)]

    assert [("--year", "2013", "c"), ("body",)] == told(story)


def test_what_is_said_of_a_savepoint_that_is_not_named_has_no_meaning() -> None:
    """Flink's operator and its pages send both of them always."""

    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        said = {"applicationId": ID, "allowNonRestoredState": True, "claimMode": "CLAIM"}
        answer = await run(leader, artifact, {**said, "savepointPath": ""})
        return answer.status_code, (await record(leader)).savepoints

    assert (202, ()) == told(story)


def test_an_idempotency_key_is_its_callers_own() -> None:
    def id_for(name: str, key: str) -> str:
        headers = [(b"idempotency-key", key.encode())]
        scope = {"type": "http", "headers": headers, audit.CALLER: Caller(name, Role.ADMIN)}
        return rest_runs.minted(Request(scope))

    ids = [id_for("alice", "one"), id_for("bob", "one"), id_for("alice", "one")]

    assert ids[0] == ids[2] != ids[1]
