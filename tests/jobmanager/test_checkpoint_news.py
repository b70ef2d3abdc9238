"""Events of checkpoints: paced, and none left out of the counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.virtual_time import run_virtual
from understudy.cli.launch.story import PUBLIC
from understudy.jobmanager.checkpoint_news import PAUSE_S, RESTORED_MAX, CheckpointNews
from understudy.model import Checkpoint, CheckpointKind, Failure, JobId


class Heard:
    """Remembers events; see `Reporter`."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.attention: dict[str, str] = {}
        reporter: Any = self
        self.news = CheckpointNews(reporter, JobId("j"), "board", self.attention)

    def event(self, event: str, **fields: Any) -> None:
        """See `Reporter.event`."""
        self.events.append({"event": event, **fields})

    def told(self, *keys: str) -> list[tuple[Any, ...]]:
        return [tuple(event[key] for key in keys) for event in self.events]


def batch(number: int, query: str = "q", rows: int = 10) -> Checkpoint:
    return Checkpoint(
        kind=CheckpointKind.BATCH,
        name=query,
        attempt=1,
        number=number,
        batch_id=number - 1,
        rows=rows,
    )


def test_a_stream_of_many_batches_a_second_tells_one_event_a_second() -> None:
    async def main() -> Heard:
        heard = Heard()
        for number in range(1, 101):
            heard.news.completed(batch(number))
            await asyncio.sleep(PAUSE_S / 20)
        heard.news.over()
        return heard

    heard = run_virtual(main())
    told = heard.told("number", "count", "rows")

    assert (1, 1, 10) == told[0]
    assert 100 == told[-1][0]
    assert (100, 1000) == (sum(count for _, count, _ in told), sum(rows for *_, rows in told))
    assert 6 <= len(told) <= 7


def test_a_slow_stream_tells_each_at_once() -> None:
    async def main() -> list[tuple[Any, ...]]:
        heard = Heard()
        seen = []
        for number in (1, 2, 3):
            heard.news.completed(batch(number))
            seen.append(heard.told("number", "count")[-1])
            await asyncio.sleep(3 * PAUSE_S)
        return seen

    assert [(1, 1), (2, 1), (3, 1)] == run_virtual(main())


def test_what_was_held_back_is_told_though_nothing_follows() -> None:
    async def main() -> Heard:
        heard = Heard()
        for number in (1, 2, 3):
            heard.news.completed(batch(number))
        await asyncio.sleep(2 * PAUSE_S)
        return heard

    assert [(1, 1), (3, 2)] == run_virtual(main()).told("number", "count")


def test_each_query_has_a_pace_of_its_own() -> None:
    async def main() -> Heard:
        heard = Heard()
        for number in (1, 2, 3, 4):
            heard.news.completed(batch(number, query=f"q{number % 2}"))
        heard.news.over()
        return heard

    told = run_virtual(main()).told("of", "number")

    assert [("q1", 1), ("q0", 2), ("q1", 3), ("q0", 4)] == told


def test_of_what_an_attempt_goes_on_from_the_newest_are_named() -> None:
    async def main() -> Heard:
        heard = Heard()
        given = tuple(batch(number, query=f"q{number}") for number in range(1, 51))
        heard.news.restored(2, given, "")
        return heard

    (event,) = run_virtual(main()).events

    assert ("checkpoint-restored", 2, 50) == (event["event"], event["attempt"], event["number"])
    assert RESTORED_MAX == len(event["checkpoints"])
    assert {"number": 50, "kind": "batch", "of": "q50", "batch_id": 49} == event["checkpoints"][0]


def test_one_that_failed_says_why_and_for_how_many_it_stands() -> None:
    async def main() -> Heard:
        heard = Heard()
        why = Failure(type="OSError", message="no room")
        heard.news.failed(replace(batch(7), failure=why), 3)
        return heard

    told = run_virtual(main()).told("event", "number", "of", "count", "failure")

    assert [("checkpoint-failed", 7, "q", 3, "OSError: no room")] == told


def test_the_savepoint_is_named_that_an_attempt_goes_on_from() -> None:
    async def main() -> Heard:
        heard = Heard()
        heard.news.restored(1, (batch(4),), "/saved/one")
        return heard

    assert [("/saved/one",)] == run_virtual(main()).told("savepoint")


def test_all_events_are_for_programs() -> None:
    assert {"checkpoint-completed", "checkpoint-failed", "checkpoint-restored"} <= set(PUBLIC)


def test_a_document_without_room_needs_attention_until_the_job_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard = Heard()
    for _ in range(2):
        heard.news.full("checkpoints-1: 1000123 bytes would pass the limit")
    (problem,) = heard.attention.values()
    heard.news.over()

    assert 1 == len(caplog.records)
    assert ("board" in problem, "1000123 bytes" in problem, "use fewer" in problem) == (True,) * 3
    assert {} == heard.attention


def test_what_cannot_be_read_needs_attention_until_it_can() -> None:
    heard = Heard()
    heard.news.unreadable("register entry checkpoints-1: no JSON")
    (problem,) = heard.attention.values()
    heard.news.unreadable("")

    assert "checkpoints-1" in problem
    assert "put its latest copy back" in problem
    assert {} == heard.attention
