"""Each answer is of the type that the OpenAPI document gives it: whatever there is to show."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.api.conftest import same
from tests.api.test_checkpoints import batch, body, facts
from tests.ha import ground
from understudy.api import bodies, checkpoints, ended, rest_cleanup, views
from understudy.api.views import ApplicationFacts, JobLive
from understudy.core.checkpoints import restored
from understudy.jobmanager.effort import CleanupView
from understudy.model import (
    ApplicationDocument,
    ApplicationResult,
    ApplicationResultEntry,
    ApplicationStatus,
    Failure,
    Incarnation,
    Intent,
    JobEntry,
    JobRecord,
    JobResultEntry,
    JobStatus,
    LeadershipSpan,
    Outcome,
    Pointer,
    RegistryLink,
    Savepoint,
    SparkApplication,
    Tombstone,
    TombstoneFile,
)
from understudy.rpc.messages import DriverReport, Progress

GONE = Pointer(path="gone", digest="sha256:0", size=0)
WHY = Failure(type="ValueError", message="no", time=3.0, job_id="1" * 32, attempt=2)
SPARK = SparkApplication(ui="http://spark", application_id="app-1")
JOB = ground.job(1)
INTENT = Intent(
    attempt=2,
    taskmanager=Incarnation("t"),
    driver=Incarnation("d"),
    term=1,
    staged="staged",
    placed_at=2.0,
)
RESULT = JobResultEntry(status=JobStatus.FAILED, attempt=2, source=GONE, savepoint="/s", end_time=4)
ENDED = replace(JOB, result=RESULT, intent=INTENT)
RUNS = JobLive(
    JobStatus.RUNNING,
    Progress(job_id=JOB.job_id, attempt=2, tasks_done=1, tasks_total=4),
    failures=(WHY,),
    waits="a slot",
    spark=SPARK,
)
STONE = Tombstone(
    application_id=ground.APPLICATION,
    run_id=ground.RUN,
    name="flights",
    status=ApplicationStatus.FAILED,
    started_at=1.0,
    ended_at=9.0,
    file=GONE,
    left_behind=("a/b",),
    jobs={"FAILED": 1},
)
RECORD = JobRecord(
    job_id=JOB.job_id,
    name="load",
    status=JobStatus.FAILED,
    attempt=1,
    start_time=2.0,
    end_time=3.0,
    failure=WHY,
    savepoint="/s",
)
FILE = TombstoneFile(
    result=ApplicationResult(
        application_id=ground.APPLICATION,
        application_name="flights",
        run_id=ground.RUN,
        status=ApplicationStatus.FAILED,
        start_time=1.0,
        end_time=9.0,
        failure=WHY,
        timestamps={"RUNNING": 1.5},
    ),
    jobs=(RECORD,),
)
SUBMITTED = ApplicationDocument(
    application_id=ground.APPLICATION,
    run_id=ground.RUN,
    name="flights",
    directory="d",
    record=GONE,
    status=ApplicationStatus.RUNNING,
    created_at=1.0,
)


def seen(entry: JobEntry, live: JobLive | None = None, **more: Any) -> ApplicationFacts:
    """Return an application of one job."""
    known = {entry.job_id: live} if live else {}
    return ApplicationFacts(SUBMITTED, {entry.job_id: entry}, SUBMITTED.status, 5.0, known, **more)


APPLICATIONS = {
    "stored": seen(JOB),
    "intended": seen(replace(JOB, intent=INTENT)),
    "waiting": seen(JOB, waits="waits to execute main: others start first (place 1 of 2)"),
    "led": seen(JOB, RUNS, reached=frozenset({JOB.job_id}), failure=WHY),
    "ended": seen(ENDED, failure=WHY),
}


@pytest.mark.parametrize("name", APPLICATIONS)
def test_an_application_and_its_jobs(name: str) -> None:
    one = APPLICATIONS[name]
    (job_id,) = one.entries

    fits(bodies.ApplicationOverview, views.application_overview(one))
    fits(bodies.ApplicationDetail, views.application_detail(one))
    fits(bodies.JobDetails, views.job_details(one, job_id))
    fits(bodies.JobDetail, views.job_detail(one, job_id))
    fits(bodies.ExecutionResult, views.execution_result(one, job_id, None, "was removed"))


def test_an_application_that_has_ended() -> None:
    result = ApplicationResultEntry(status=ApplicationStatus.FAILED, source=GONE, end_time=9.0)
    one = seen(ENDED)
    whole = ApplicationFacts(replace(SUBMITTED, result=result), one.entries, result.status, 10.0)

    fits(bodies.ApplicationOverview, views.application_overview(whole))
    fits(bodies.ApplicationDetail, views.application_detail(whole))


def test_an_application_of_which_only_the_tombstone_remains() -> None:
    fits(bodies.ApplicationOverview, ended.buried_overview(STONE))
    fits(bodies.ApplicationDetail, ended.buried_detail(STONE, FILE))
    fits(bodies.ApplicationDetail, {**ended.buried_overview(STONE), "jobs": [], "problem": "no"})
    fits(bodies.JobDetails, ended.recorded_job(RECORD, STONE))
    fits(bodies.JobDetail, ended.recorded_detail(RECORD, STONE, 10.0))
    fits(bodies.ExecutionResult, views.recorded_result(RECORD))


def test_an_application_of_which_only_the_link_can_be_read() -> None:
    link = RegistryLink(document="application-1", run_id=ground.RUN)
    shown = views.unreadable_overview(ground.APPLICATION, link, "it is damaged")

    fits(bodies.ApplicationOverview, shown)
    fits(bodies.ApplicationDetail, {**shown, "jobs": []})


def test_results_of_jobs_with_each_kind_of_value() -> None:
    for value in (b"null", b"7", b'{"a":[1.5,"x"]}', b'{"!decimal":"1.10"}'):
        outcome = Outcome(
            job_id=JOB.job_id,
            job_name="load",
            application_id=ground.APPLICATION,
            run_id=ground.RUN,
            status=JobStatus.FINISHED,
            attempt=1,
            start_time=1,
            end_time=2,
            value=msgspec.Raw(value),
            failure=WHY,
        )
        fits(bodies.ExecutionResult, views.execution_result(seen(ENDED), JOB.job_id, outcome))


def test_failures() -> None:
    for known in ([], [WHY, replace(WHY, job_id="", attempt=0)]):
        fits(bodies.JobExceptions, views.of_job(known, 1))
    for cause in (None, WHY):
        fits(bodies.ApplicationExceptions, views.of_application(cause, 1))


def test_checkpoints_and_savepoints() -> None:
    taken = Savepoint(trigger="1" * 32, location="/s", completed_at=5.0)
    known = body(
        batch(3),
        batch(4),
        failed=batch(5, failure=WHY),
        savepoints=(
            taken,
            replace(taken, completed_at=0.0),
            replace(taken, completed_at=0.0, failure=WHY),
        ),
    )
    for one in (facts(None), facts(known), facts(restored(known, 2000.0), batch(2))):
        fits(bodies.CheckpointStatistics, checkpoints.statistics(one))
    fits(bodies.CheckpointDetail, checkpoints.detail(facts(known), 4))
    fits(bodies.CheckpointStatistics, checkpoints.statistics(checkpoints.ended(JOB.job_id, RESULT)))
    last = checkpoints.last(known)
    fits(bodies.JobDetail, {**views.job_detail(seen(JOB), JOB.job_id), "checkpoint": last})


def test_taskmanagers_and_terms() -> None:
    busy = DriverReport(
        driver=Incarnation("d"), slot=1, state="busy", spark=SPARK, driver_pid=7, job_id="j"
    )
    spare = DriverReport(driver=Incarnation("e"), slot=None, state="ending")
    shown = views.taskmanager(
        *("tm-1", "incarnation", 1, 2, 2), [views.driver(busy), views.driver(spare)]
    )
    place = {"connected": True, "host": "here", "metrics": None}

    fits(bodies.TaskManagerList, {"taskmanagers": [{**shown, **place}]})
    assert (1, ["busy", "empty"]) == (shown["freeSlots"], [one["state"] for one in shown["slots"]])
    fits(bodies.LeadershipTerm, views.span(LeadershipSpan(term=1, holder="jm-1", granted_at=1.0)))


def test_what_is_still_to_be_cleaned_up() -> None:
    for view in (CleanupView("a", "plan"), CleanupView("a", "plan", 2, "no", next_try=9.0)):
        fits(bodies.OpenCleanupList, {"open": [rest_cleanup._shown(view, 5.0)]})


def fits(kind: Any, shown: Any) -> None:
    """Fail unless a view is of the type as which it is documented."""
    same(kind, views.encode(shown))


@pytest.mark.parametrize(
    "shown",
    [
        {"errors": ["no"]},
        {"errors": ["no"], "code": 7},
        {"errors": ["no"], "code": "x", "undocumented": 1},
    ],
)
def test_an_answer_that_is_not_as_documented_is_noticed(shown: Any) -> None:
    with pytest.raises((AssertionError, msgspec.ValidationError)):
        fits(bodies.Error, shown)
