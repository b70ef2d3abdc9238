"""Children that a job, or main, forks: they end like any child, and speak for nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.journeys.conftest import Start

CODES = {
    "return": 0,
    "exit": 3,
    "text": 1,
    "_exit": 4,
    "raise": 1,
    "pty": 1,
    "killed": -15,
    "asks": 0,
}


@pytest.mark.long  # With Spark: spark/test_spark_forks.py.
def test_a_forked_child_ends_like_any_other_and_its_job_goes_on(
    start: Start, nothing_left: Callable[[], None]
) -> None:
    run = start("forks.py")
    code = run.finish()
    told, told_by_main = run.lines("told.txt"), run.lines("told by main.txt")

    assert code == 0, run.story()
    assert [f"{way} 1" for way in [*CODES, "return"]] == run.lines("attempts.txt")
    assert len(run.lines("executions.txt")) == 1
    assert [
        *[f"{way} {code} 1" for way, code in CODES.items()],
        "[[0, 2, 4], 1, 5, [0]]",
        "[1, 7, -15, 0]",
        "awaited 0",
    ] == run.lines("values.txt")
    for call, said in zip(
        ("ctx.save", "ctx.restored", "ctx.spark", "ctx.checkpoint_location"), told, strict=False
    ):
        assert said.startswith(f"UsageError: {call} was called in process "), said
    assert "SubmissionError" in told[-1]
    assert len(told_by_main) == 3
    assert not any(said.startswith("did") for said in told + told_by_main)
    nothing_left()
