"""Results that ``main`` comes by again after a takeover: several are read at once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual
from understudy.ha.format import digest
from understudy.ha.result_store import ResultStore, outcomes
from understudy.ha.storage import InlineStorage
from understudy.jobmanager.job_requests import AHEAD, read_past
from understudy.model import (
    JobEntry,
    JobId,
    JobResultEntry,
    JobStatus,
    Outcome,
    Pointer,
    RunId,
)

PLAN = Pointer(path="plan", digest="", size=0)
JOBS = 2 * AHEAD


class CountingStorage(InlineStorage):
    calls = 0

    async def run(self, function, *args, **kwargs):  # type: ignore[no-untyped-def]
        self.calls += 1
        return await super().run(function, *args, **kwargs)


def going_on(job_id: JobId) -> JobEntry:
    return JobEntry(job_id=job_id, name=job_id, occurrence=0, plan=PLAN, submitted_at=0.0)


class Ground:
    """Jobs that have ended, with their outcomes where the cleanup has left them."""

    def __init__(self) -> None:
        self.files = Durable().storage
        self.storage = CountingStorage(self.files)
        self.entries: dict[JobId, JobEntry] = {}
        for number in range(JOBS):
            self.add(JobId(f"job-{number}"), number)
        self.results = ResultStore(self.storage, "results")

    async def read_past(self, first: JobId) -> dict[JobId, Outcome]:
        return await read_past(self.results, self.entries, first)

    def add(self, job_id: JobId, number: int, status: JobStatus = JobStatus.FINISHED) -> None:
        outcome = Outcome(
            job_id=job_id,
            job_name=job_id,
            application_id="a",  # type: ignore[arg-type]
            run_id=RunId("run"),
            status=status,
            attempt=1,
            start_time=float(number),
            end_time=float(number),
        )
        data = outcomes.dump(outcome, pretty=True)
        self.files.publish(f"results/{job_id}_DIRTY.json", data)
        source = Pointer(path=f"staged/{job_id}", digest=digest(data), size=len(data))
        result = JobResultEntry(status=status, attempt=1, source=source)
        self.entries[job_id] = replace(going_on(job_id), result=result)

    def read(self, number: int) -> dict[JobId, float]:
        found = run_virtual(self.read_past(JobId(f"job-{number}")))
        return {job_id: outcome.start_time for job_id, outcome in found.items()}


def told(*numbers: int) -> dict[JobId, float]:
    return {JobId(f"job-{number}"): float(number) for number in numbers}


def test_a_job_and_the_next_ones_are_read_in_one_go() -> None:
    ground = Ground()

    assert told(*range(3, 3 + AHEAD)) == ground.read(3)
    assert 1 == ground.storage.calls


def test_those_after_the_last_one_are_not_there() -> None:
    assert told(JOBS - 2, JOBS - 1) == Ground().read(JOBS - 2)


@pytest.mark.parametrize("how", ["removed", "altered"])
def test_a_result_that_is_gone_is_told_by_whoever_awaits_it(how: str) -> None:
    ground = Ground()
    if how == "removed":
        ground.files.delete("results/job-1_DIRTY.json")
    else:
        ground.files.publish("results/job-1_DIRTY.json", b"{}")

    assert told(0, *range(2, AHEAD)) == ground.read(0)
    assert {} == ground.read(1)


def test_the_failure_of_a_job_is_delivered_only_when_main_asks_for_it() -> None:
    ground = Ground()
    ground.add(JobId("job-1"), 1, JobStatus.FAILED)

    assert told(0, *range(2, AHEAD)) == ground.read(0)
    assert {} == ground.read(1)


def test_a_job_that_goes_on_has_no_result() -> None:
    ground = Ground()
    ground.entries[JobId("job-1")] = going_on(JobId("job-1"))

    assert {} == ground.read(1)
    assert 0 == ground.storage.calls
