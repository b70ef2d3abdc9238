"""DataFrames are kept: what is recorded is never computed again, nor taken if it was altered."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.harness import Run, stored
from tests.journeys.spark.conftest import Begin, left_behind, put

pytestmark = [pytest.mark.spark, pytest.mark.long]

STEPS = range(1, 11)

POINTS = [point for step in STEPS for point in (f"middle {step}", f"behind {step}")]

OPTIONS = (
    *("--slots", "1"),
    *("-D", "restart-strategy.type=fixed-delay"),
    *("-D", "restart-strategy.fixed-delay.attempts=100"),
    *("-D", "restart-strategy.fixed-delay.delay=50ms"),
)


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    kept: list[list[str]] = field(default_factory=list)
    """Which directories of tables there were behind each step, once the next attempt was there."""
    left: dict[int, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def story(begin: Begin, ground: Path) -> Story:
    """Kill the driver in the middle of each step and behind it, and then the leader."""
    run = begin("ten_steps.py", options=OPTIONS)
    story = Story(run)
    for attempt, point in enumerate([*POINTS, "behind the table"], start=1):
        run.until_line("points.txt", point.__eq__)
        if point.startswith("behind"):
            story.kept.append(tables(ground))
        slot = run.busy()[1]
        # Python and JVM by turns: each takes the other along.
        os.kill(slot["jvm_pid" if attempt % 2 else "driver_pid"], signal.SIGKILL)
        run.grown("pids.txt", attempt + 1)
    run.grown("read.txt", 1)
    os.kill(run.standby_is_ready()["leader"]["pid"], signal.SIGKILL)
    run.wait("takeover")
    run.release()
    assert run.finish() == 0, run.story()
    story.left = left_behind(ground)
    return story


def tables(ground: Path) -> list[str]:
    found = (ground / "state" / "understudy" / "ha").glob("*/applications/*/checkpoints/*/tables/*")
    return sorted(path.name for path in found)


def test_each_completed_step_was_computed_once_and_an_interrupted_one_twice(story: Story) -> None:
    computed = [line.split() for line in story.run.lines("computed.txt")]
    steps = [int(step) for step, _ in computed]

    assert [step for step in STEPS for _ in range(2)] == steps
    # Interrupted in one attempt, whole in the next.
    assert [str(number) for number in range(1, 21)] == [attempt for _, attempt in computed]


def test_what_was_half_written_is_gone_once_the_next_attempt_has_kept_its_step(
    story: Story,
) -> None:
    for step, found in zip(STEPS, story.kept, strict=False):
        assert [f"step_{one}-{2 * one}-1" for one in range(1, step + 1)] == sorted(
            found, key=lambda name: int(name.split("-")[1])
        )


def test_a_later_job_reads_the_table_after_the_leader_and_drivers_were_lost(story: Story) -> None:
    handles = set(story.run.lines("handles.txt"))
    total = sum(STEPS)

    assert 2 == len(story.run.lines("handles.txt"))
    assert 1 == len(handles)
    assert ["1"] == story.run.lines("read.txt")
    assert [[0, total], [1, 100 + total], [2, 200 + total]] == json.loads(
        story.run.lines("values.txt")[0]
    )


def test_nothing_is_left_in_the_end(story: Story, ground: Path) -> None:
    assert [] == stored(ground)
    assert {} == story.left


# --- one by one -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run what plays attempts one after the other; return what they saw."""
    ground = tmp_path_factory.mktemp("tables")
    script = put(ground, "kept_tables.py")
    harness.python(ground, str(script))
    found: dict[str, Any] = json.loads((ground / "seen.json").read_text())
    return found


@pytest.mark.parametrize("way", ["parquet", "orc"])
def test_schema_and_rows_are_kept_to_the_last_null(seen: dict[str, Any], way: str) -> None:
    whole = {"same schema": True, "same rows": True, "pushed": True, "empty": [True, 0]}

    assert whole == seen[way]


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("twice", "ctx.checkpoint('empty orc'): this attempt has used the name already"),
        ("two", "two columns are named 'a'"),
        ("case", "two columns are named 's.Q' but for upper and lower case"),
        ("void", "column 'v' has no type"),
        ("none", "the DataFrame has no columns"),
        ("stream", "the DataFrame is a stream"),
        ("list", "takes a DataFrame, not a list"),
        ("csv", "format 'csv' is none of parquet, orc"),
        ("name", "the name must be text of 1 to 200 characters"),
    ],
)
def test_what_cannot_be_kept_is_refused(seen: dict[str, Any], why: str, words: str) -> None:
    assert seen["refused"][why].startswith("UsageError: ")
    assert words in seen["refused"][why]


def test_a_restarted_attempt_computes_nothing_and_removes_what_is_half_written(
    seen: dict[str, Any],
) -> None:
    assert {"rows": 2, "half": False} == seen["again"]
    assert seen["same handle"]
    assert 2 == seen["read"]


def test_nothing_is_left_of_a_table_whose_write_raises(seen: dict[str, Any]) -> None:
    raised = seen["raised"]

    assert "half of it" in raised["error"]
    assert ([], 8) == (raised["left"], raised["then"])


def test_a_bad_handle_is_refused(seen: dict[str, Any]) -> None:
    nothing, foreign, altered = seen["handles"]

    assert nothing.startswith("UsageError: ctx.read takes a handle")
    assert "is of application 00000000000000000000000000000000" in foreign
    assert "the handle was altered" in altered


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("gone", ".parquet is gone"),
        ("shorter", "bytes instead of"),
        ("more", "part-00009.parquet is not of it"),
        ("manifest", "_manifest.json was altered since"),
        ("all", "_manifest.json: no such file"),
    ],
)
def test_what_was_recorded_but_is_damaged_is_named_and_not_computed_again(
    seen: dict[str, Any], why: str, words: str
) -> None:
    told = seen["damaged"][why]

    assert told.startswith("CheckpointError: ctx.checkpoint('whole parquet */[x]') was kept, but")
    assert words in told
    assert "start a new run" in told


def test_plain_python_keeps_tables_too(seen: dict[str, Any]) -> None:
    assert [True, 2, 2] == seen["embedded"]
