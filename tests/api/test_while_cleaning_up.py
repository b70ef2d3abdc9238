"""What REST tells while results are on their way from their files into the tombstone's."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from tests.support.memory_storage import MemoryStorage
from understudy.api.directory import Directory
from understudy.api.leading import Leading
from understudy.api.rest import Rest
from understudy.api.views import ApplicationFacts
from understudy.clock import SystemClock
from understudy.errors import LeadershipLost
from understudy.ha import layout
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.format import digest
from understudy.ha.services import HighAvailabilityServices, Locations
from understudy.ha.storage import InlineStorage
from understudy.jobmanager.retention import RESULT_LOST, tombstones
from understudy.model import (
    ApplicationId,
    ApplicationRecord,
    ApplicationResult,
    ApplicationStatus,
    Incarnation,
    JobEntry,
    JobId,
    JobRecord,
    JobResultEntry,
    JobStatus,
    LeaderRecord,
    Pointer,
    RunId,
    Tombstone,
    TombstoneFile,
)

GONE = Pointer(path="gone", digest="sha256:0", size=0)
JOB, RUN = JobId("j"), RunId("r")


@pytest.mark.parametrize("buried", [False, True])
def test_a_result_whose_file_is_cleaned_up_is_told_from_the_tombstones_file(
    *, buried: bool
) -> None:
    outcome, missing = _told(note="", buried=buried)

    assert ("7", "") == (outcome, missing)


def test_a_tombstones_file_to_which_nobody_points_tells_nothing() -> None:
    outcome, missing = _told(note="", pointed=False)

    assert outcome is None
    assert "removed or altered" in missing


def test_a_result_that_was_lost_before_is_not_told_as_null() -> None:
    outcome, missing = _told(note=f"{RESULT_LOST}: gone")

    assert outcome is None
    assert "removed or altered" in missing


def test_a_register_that_does_not_answer_is_no_error_of_the_server() -> None:
    assert 503 == _answered(OSError("no route to host"))
    assert 503 == _answered(TimeoutError())


def test_a_request_to_who_leads_no_more_is_not_an_error_of_the_server() -> None:
    assert 503 == _answered(LeadershipLost("term 2 is newer than 1"))


def _told(note: str, *, buried: bool = False, pointed: bool = True) -> tuple[str | None, str]:
    return asyncio.run(_looked_at(note, buried=buried, pointed=pointed))


async def _looked_at(note: str, *, buried: bool, pointed: bool) -> tuple[str | None, str]:
    storage = MemoryStorage()
    services = HighAvailabilityServices(
        EmbeddedRegister(), InlineStorage(storage, 5.0), "c", Locations("c", "jobs", "apps")
    )
    value = msgspec.Raw(b"null" if note else b"7")
    record = JobRecord(
        job_id=JOB, name="load", status=JobStatus.FINISHED, attempt=1, start_time=1, end_time=2,
        value=value, note=note,
    )  # fmt: skip
    result = ApplicationResult(
        application_id=ApplicationId("a"), application_name="app", run_id=RUN,
        status=ApplicationStatus.FINISHED, start_time=1, end_time=2,
    )  # fmt: skip
    file = TombstoneFile(result=result, jobs=(record,))
    path, data = layout.tombstone_path("c", RUN, 3), tombstones.dump(file)
    storage.publish(path, data)
    pointer = Pointer(path=path, digest=digest(data), size=len(data))
    committed = JobResultEntry(status=JobStatus.FINISHED, attempt=1, source=GONE)
    entry = JobEntry(
        job_id=JOB, name="load", occurrence=0, plan=GONE, submitted_at=1, result=committed
    )
    submitted = ApplicationRecord(
        application_id=result.application_id, run_id=RUN, name="app", target="", script="",
        submitted_at=1,
    )  # fmt: skip
    await services.registry.claim(3, ephemeral=False)
    stored = await services.applications.put(3, submitted, "d")
    before = stored.body  # As it was looked at: the leader has gone on since.
    if pointed:
        await stored.update(3, lambda body: replace(body, tombstone=pointer))
    if buried:
        stone = Tombstone(
            application_id=result.application_id, run_id=RUN, name="app", status=result.status,
            started_at=1, ended_at=2, file=pointer,
        )  # fmt: skip
        await services.registry.bury(3, result.application_id, stone)
        await stored.delete(3)
    facts = ApplicationFacts(before, {JOB: entry}, ApplicationStatus.FINISHED, 3.0)
    directory = Directory(services, SystemClock())
    outcome, missing = await directory.outcome(facts, JOB)
    return (bytes(outcome.value).decode() if outcome else None), missing


def _answered(error: Exception) -> int:
    class Led:
        term = SimpleNamespace(serves=True)
        leader = None
        waits_for_run = False
        me = LeaderRecord(holder=Incarnation("me"), term=1, session="")

    async def handler(request: Request) -> Response:
        raise error

    rest = Rest.__new__(Rest)
    led: Any = Led()
    rest._leading, rest._manager = Leading.__new__(Leading), led
    request = Request({"type": "http", "method": "GET", "path": "/jobs", "headers": []})
    return asyncio.run(rest._endpoint(handler)(request)).status_code  # type: ignore[arg-type]
