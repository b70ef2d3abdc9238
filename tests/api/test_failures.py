"""Why things failed, in Flink's shapes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from understudy.api import views
from understudy.jobmanager.submission import configuration_of
from understudy.model import (
    ApplicationId,
    ApplicationRecord,
    Failure,
    JobId,
    RunId,
    SessionProfile,
)

JOB = JobId("1" * 32)


def failure(number: int, traceback: str = "") -> Failure:
    return Failure(
        type="ValueError", message=f"no luck {number}", traceback=traceback, time=float(number)
    )


def entries(cause: Failure | None, maximum: int = views.MAXIMUM_DEFAULT) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = views.of_application(cause, maximum)["exceptionHistory"][
        "entries"
    ]
    return found


def test_an_application_failed_for_one_cause_which_names_its_job_where_it_is_one() -> None:
    told = {"exceptionName": "ValueError", "stacktrace": "Traceback …", "timestamp": 2000}
    cause = failure(2, "Traceback …")

    assert [told] == entries(cause)
    assert [{**told, "jobId": JOB}] == entries(replace(cause, job_id=JOB))


def test_an_application_that_has_not_failed_has_no_cause() -> None:
    assert [] == entries(None)


def test_no_more_is_told_than_was_asked_for() -> None:
    answer = views.of_application(failure(1), 0)["exceptionHistory"]

    assert ([], True) == (answer["entries"], answer["truncated"])


def test_twenty_are_told_of_a_job_where_nobody_says_how_many() -> None:
    told = [failure(number) for number in range(50)]
    answer = views.of_job(told, views.MAXIMUM_DEFAULT)

    assert 20 == len(answer["exceptionHistory"]["entries"])


def test_a_jobs_history_has_its_root_and_the_maximum() -> None:
    answer = views.of_job([failure(number) for number in range(1, 6)], 2)

    assert ("no luck 5", 5000, True) == (
        answer["root-exception"],
        answer["timestamp"],
        answer["truncated"],
    )
    assert 2 == len(answer["exceptionHistory"]["entries"])


def test_a_job_without_failures_has_an_empty_history() -> None:
    answer = views.of_job([], 20)

    assert (None, None, False) == (
        answer["root-exception"],
        answer["timestamp"],
        answer["truncated"],
    )


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
