"""What REST shows of a job that has ended."""

from __future__ import annotations

import msgspec

from understudy.api import views
from understudy.model import JobId, JobRecord, JobStatus


def test_rest_shows_a_value_as_plain_json() -> None:
    record = JobRecord(
        job_id=JobId("a" * 32),
        name="load",
        status=JobStatus.FINISHED,
        attempt=1,
        start_time=0,
        end_time=1,
        value=msgspec.Raw(b'{"total":{"!decimal":"1.10"},"range":{"!tuple":[1,2]}}'),
    )
    expected = {"total": "1.10", "range": [1, 2]}

    actual = views.recorded_result(record)["job-execution-result"]["value"]

    assert expected == actual
