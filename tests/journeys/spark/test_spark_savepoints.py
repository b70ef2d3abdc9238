"""Two streaming queries with state, which are ended on one cluster and go on on another one.

They go on from a savepoint, or from what was retained when they were cancelled. The second cluster
has another id, another storage directory and another working directory, and what it begins with was
moved in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.harness import COMMAND, Run
from tests.journeys.members import until
from tests.journeys.spark.conftest import SMALL, put

pytestmark = [pytest.mark.spark, pytest.mark.long]


@dataclass
class Story:
    """What was seen."""

    first: Run
    second: Run
    codes: tuple[int, int]
    expected: tuple[int, int]
    left: Path
    """Where the first cluster left what the second one begins with."""
    moved: Path
    mark: str
    """The file that makes it what it is."""
    batches: list[list[int]]
    """What the clusters had recorded of the query that counts."""


def feed(ground: Path, name: str, *words: str) -> None:
    """Put a file into the directory that is read, whole at once."""
    draft = ground / name
    draft.write_text("".join(f"{word}\n" for word in words))
    draft.rename(ground / "in" / name)


def begin(ground: Path, name: str, *options: str) -> Run:
    place = ground / name
    place.mkdir()
    script = put(place, "counted.py")
    named = ("-D", f"high-availability.cluster-id={name}", "-D", f"io.tmp.dirs={place / 'tmp'}")
    line = [*COMMAND, "run-application", "--json", *SMALL, "--slots", "1", *named, *options]
    arguments = [str(ground / "in"), str(ground / "out"), str(place / "go")]
    return Run([*line, str(script), *arguments], place, place / "stderr.log")


def stop(first: Run) -> tuple[Path, str]:
    """End the job with a savepoint; return its directory and its manifest."""
    told = harness.command(first.place, "stop", "--savepoint", "words", "kept", "--json")
    return Path(json.loads(told.stdout)["location"]), "_metadata"


def cancel(first: Run) -> tuple[Path, str]:
    """Cancel the job; return what is retained of it, and the file that says so."""
    job = first.of("checkpoint-completed")[0]["job_id"]
    harness.command(first.place, "cancel", job)
    first.finish()
    told = harness.command(first.place, "result", job, "--json", code=3)
    (result,) = json.loads(told.stdout)["jobs"]
    kept = Path(result["job-execution-result"]["checkpoint"])
    return kept.parent, kept.name


@pytest.fixture(scope="module", params=[(stop, (0, 0)), (cancel, (3, 0))], ids=["stop", "cancel"])
def story(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    end, expected = request.param
    ground = tmp_path_factory.mktemp("savepoints")
    (ground / "in").mkdir()
    feed(ground, "1.txt", "a", "a", "b", "c")
    retention = "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"
    points = ("-D", f"execution.checkpointing.dir={ground / 'points'}", "-D", retention)
    runs = [begin(ground, "first", *points)]
    try:
        first = runs[0]
        first.wait("checkpoint-completed", of="counts", batch_id=0)
        until(lambda: bool(first.of("checkpoint-completed", of="new")))  # Job "seen" reads it.
        feed(ground, "2.txt", "c", "d")  # A batch of it may be under way when the job is ended.
        left, mark = end(first)
        codes = [first.finish()]
        moved = ground / "elsewhere" / "of words"
        moved.parent.mkdir()
        left.rename(moved)
        feed(ground, "3.txt", "a", "e")
        runs.append(begin(ground, "second", "--from-savepoint", str(moved)))
        second = runs[1]
        second.until_line("counts.txt", lambda line: line.endswith(" e 1"))
        second.release()
        codes.append(second.finish())
        batches = [
            [one["batch_id"] for one in run.of("checkpoint-completed", of="counts")] for run in runs
        ]
        yield Story(first, second, (codes[0], codes[1]), expected, left, moved, mark, batches)
    finally:
        for run in runs:
            harness.end(run)


def test_both_clusters_end_well(story: Story) -> None:
    assert story.expected == story.codes, story.second.story()


def test_each_word_is_passed_on_once_over_both_clusters(story: Story) -> None:
    assert ["a", "b", "c", "d", "e"] == story.second.lines("rows.txt")


def test_the_state_goes_on_and_no_input_is_read_twice(story: Story) -> None:
    last: dict[str, int] = {}
    for run in (story.first, story.second):
        for line in run.lines("counts.txt"):
            _, word, count = line.split()
            last[word] = int(count)

    assert {"a": 3, "b": 1, "c": 2, "d": 1, "e": 1} == last


def test_the_batches_go_on_where_they_had_ended(story: Story) -> None:
    before, after = story.batches
    told = [before[-1] + 1 + n for n in range(len(after))]

    assert told == after


def test_what_was_begun_with_is_still_there(story: Story) -> None:
    assert (story.moved / story.mark).is_file()
    assert not story.left.exists()
