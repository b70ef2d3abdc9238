"""Why things failed, in Flink's shapes."""

from __future__ import annotations

from typing import Any

from understudy.api import failures, views
from understudy.api.failures import Told
from understudy.model import (
    ApplicationId,
    ApplicationRecord,
    ApplicationResult,
    ApplicationStatus,
    Failure,
    JobId,
    JobRecord,
    JobStatus,
    RunId,
    SessionProfile,
    TombstoneFile,
)
from understudy.runtime.submission import configuration_of

JOB = JobId("1" * 32)


def failure(number: int, traceback: str = "") -> Failure:
    return Failure(
        type="ValueError", message=f"no luck {number}", traceback=traceback, time=float(number)
    )


def entries(told: list[Told], maximum: int = failures.MAXIMUM_DEFAULT) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = failures.of_application(told, maximum)["exceptionHistory"][
        "entries"
    ]
    return found


def test_an_entry_has_flinks_keys_and_names_its_job() -> None:
    expected = [
        {
            "exceptionName": "ValueError",
            "stacktrace": "Traceback …",
            "timestamp": 2000,
            "jobId": JOB,
        },
        {"exceptionName": "ValueError", "stacktrace": "no luck 1", "timestamp": 1000},
    ]

    actual = entries([Told(failure(1)), Told(failure(2, "Traceback …"), JOB)])

    assert expected == actual


def test_the_latest_come_first_up_to_the_maximum() -> None:
    told = [Told(failure(number)) for number in (3, 1, 5, 2, 4)]

    answer = failures.of_application(told, 2)

    assert [5000, 4000] == [one["timestamp"] for one in answer["exceptionHistory"]["entries"]]
    assert answer["exceptionHistory"]["truncated"]
    assert [] == entries(told, 0)


def test_twenty_are_told_where_nobody_says_how_many() -> None:
    assert 20 == len(entries([Told(failure(number)) for number in range(50)]))


def test_what_ended_a_job_and_its_application_is_told_once_as_the_jobs() -> None:
    one = failure(1)

    for told in ([Told(one), Told(one, JOB)], [Told(one, JOB), Told(one)]):
        assert [JOB] == [entry["jobId"] for entry in entries(told)]


def test_a_jobs_history_has_its_root_and_the_maximum() -> None:
    answer = failures.of_job([failure(number) for number in range(1, 6)], 2)

    assert ("no luck 5", 5000, True) == (
        answer["root-exception"],
        answer["timestamp"],
        answer["truncated"],
    )
    assert 2 == len(answer["exceptionHistory"]["entries"])


def test_a_job_without_failures_has_an_empty_history() -> None:
    answer = failures.of_job([], 20)

    assert (None, None, False) == (
        answer["root-exception"],
        answer["timestamp"],
        answer["truncated"],
    )


def test_the_failures_of_a_buried_application_come_from_its_tombstone() -> None:
    status = ApplicationStatus.FAILED
    result = ApplicationResult(
        application_id=ApplicationId("a" * 32),
        application_name="flights",
        run_id=RunId("run-1"),
        status=status,
        start_time=0.0,
        end_time=9.0,
        failure=failure(3),
    )
    jobs = [
        JobRecord(
            job_id=JobId(str(number) * 32),
            name=f"job {number}",
            status=JobStatus.FAILED,
            attempt=1,
            start_time=0.0,
            end_time=1.0,
            failure=failure(1) if number == 1 else None,
        )
        for number in (1, 2)
    ]
    expected = [Told(failure(3)), Told(failure(1), JOB)]

    actual = failures.recorded(TombstoneFile(result=result, jobs=tuple(jobs)))

    assert expected == actual


# --- configuration --------------------------------------------------------------------------------


def test_a_configuration_is_shown_as_flink_does_sorted_by_key() -> None:
    expected = [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]

    actual = views.configuration({"b": "2", "a": "1"})

    assert expected == actual


def test_the_secrets_of_an_application_are_hidden_also_those_of_its_own_settings() -> None:
    record = ApplicationRecord(
        application_id=ApplicationId("a" * 32),
        run_id=RunId("run-1"),
        name="flights",
        target="app.py",
        script="app.py",
        configuration={"security.redaction.additional-keys": "pin", "env.log.max": "3"},
        profile=SessionProfile(
            conf={
                "spark.hadoop.fs.s3a.secret.key": "hush",
                "spark.my.pin": "1234",
                "spark.x": "https://user:hush@host/path",
                "spark.y": "shown",
            }
        ),
    )
    expected = {
        "security.redaction.additional-keys": "pin",
        "env.log.max": "3",
        "spark.hadoop.fs.s3a.secret.key": "******",
        "spark.my.pin": "******",
        "spark.x": "******",
        "spark.y": "shown",
    }

    actual = configuration_of(record)

    assert expected == actual
