"""What the exception that ends ``main`` tells of its jobs."""

from __future__ import annotations

import pytest

from understudy.errors import JobCanceled, JobFailed
from understudy.process.failures import uncaught_job

CANCELED = JobCanceled("job 'a' was cancelled", "a", "a", "", "")
OTHER = JobCanceled("job 'b' was cancelled", "b", "b", "", "")
FAILED = JobFailed("job 'c' failed", "c", "c", "ValueError", "")
TAKEN_FOR_A_FAILURE = RuntimeError("no flights today")
TAKEN_FOR_A_FAILURE.__cause__ = CANCELED


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CANCELED, "a"),
        (FAILED, "c"),
        (TAKEN_FOR_A_FAILURE, None),
        (ExceptionGroup("side by side", [CANCELED, OTHER]), "a"),
        (ExceptionGroup("side by side", [CANCELED, FAILED]), "c"),
        (ExceptionGroup("side by side", [CANCELED, ValueError("mine")]), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_the_job_is_told_of_whose_end_an_exception_tells(
    error: BaseException, expected: str | None
) -> None:
    assert expected == uncaught_job(error)
