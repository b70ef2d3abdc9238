"""How checkpoints are numbered, and which are retained."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from understudy.core import checkpoints
from understudy.core.checkpoints import (
    OFFSETS_BYTES_LIGHT,
    Retention,
    WriteNote,
    WriteState,
    encoded,
)
from understudy.model import (
    ApplicationId,
    Checkpoint,
    CheckpointKind,
    Checkpoints,
    Failure,
    JobId,
    JobStatus,
    Savepoint,
)

EMPTY = Checkpoints(application_id=ApplicationId("a"), job_id=JobId("j"))


def batch(batch_id: int, query: str = "q", attempt: int = 1) -> Checkpoint:
    return Checkpoint(kind=CheckpointKind.BATCH, name=query, attempt=attempt, batch_id=batch_id)


def table(name: str, location: str) -> Checkpoint:
    return Checkpoint(kind=CheckpointKind.TABLE, name=name, attempt=1, location=location)


def test_numbers_start_at_one_and_grow() -> None:
    body, taken = checkpoints.record(EMPTY, [batch(0), batch(1)], 1)
    body, more = checkpoints.record(body, [batch(2)], 1)

    assert [1, 2] == [one.number for one in taken]
    assert [3] == [one.number for one in more]
    assert (3, 3) == (body.counter, body.completed_total)


def saved(digest: str, attempt: int = 1) -> Checkpoint:
    return Checkpoint(kind=CheckpointKind.STATE, name="", attempt=attempt, digest=digest)


def write(state: WriteState, target: str = "") -> Checkpoint:
    note = encoded(WriteNote(state=state, target=target))
    return Checkpoint(
        kind=CheckpointKind.WRITE, name="w", attempt=1, location=state.value, note=note
    )


def test_a_write_counts_as_one_checkpoint_once_it_is_published() -> None:
    body = EMPTY
    seen = []
    for one in (
        write(WriteState.STAGING, "/out"),
        write(WriteState.PREPARED, "/out"),
        write(WriteState.PUBLISHED),
    ):
        body, _ = checkpoints.record(body, [one], 1)
        seen.append(body.completed_total)

    assert [0, 0, 1] == seen
    assert 3 == body.counter


@pytest.mark.parametrize(
    ("given", "taken", "expected"),
    [
        ([], [], False),
        ([], [batch(0, attempt=2)], True),
        ([batch(0)], [], False),
        ([batch(0)], [batch(1, attempt=2)], True),
        ([table("a", "1")], [batch(0, attempt=2)], True),
        ([], [write(WriteState.PREPARED, "/out")], False),
        ([saved("57")], [saved("57", attempt=2)], False),
        ([saved("57")], [saved("58", attempt=2)], True),
    ],
)
def test_an_attempt_has_advanced_once_it_completed_what_says_more_than_what_it_was_given(
    given: list[Checkpoint], taken: list[Checkpoint], expected: bool
) -> None:
    body, _ = checkpoints.record(EMPTY, given, 1)
    before = checkpoints.latest(body)
    body, _ = checkpoints.record(body, [replace(one, attempt=2) for one in taken], 1)

    actual = checkpoints.has_advanced(body, 2, before)

    assert expected is actual


def test_what_was_told_twice_keeps_its_number_and_writes_nothing() -> None:
    body, _ = checkpoints.record(EMPTY, [batch(0)], 1)
    again, taken = checkpoints.record(body, [batch(0)], 1)

    assert again is body
    assert [1] == [one.number for one in taken]


def test_a_number_is_not_given_twice_though_what_had_it_is_not_retained_any_more() -> None:
    body = EMPTY
    for number in range(5):
        body, _ = checkpoints.record(body, [batch(number)], 1)

    assert [(5, 4)] == [(one.number, one.batch_id) for one in body.completed]
    assert 5 == body.counter


def test_the_newest_are_retained_and_whatever_a_restarted_job_needs() -> None:
    body = EMPTY
    taken = [table("a", "1"), batch(0), table("a", "2"), batch(1), batch(2), batch(0, "other")]
    for one in taken:
        body, _ = checkpoints.record(body, [one], 2)

    assert [3, 5, 6] == [one.number for one in body.completed]
    assert [("a", "2"), ("q", ""), ("other", "")] == [
        (one.name, one.location) for one in checkpoints.latest(body)
    ]


def test_a_state_that_was_replaced_is_not_retained_since_its_file_is_gone() -> None:
    body, _ = checkpoints.record(EMPTY, [batch(0), saved("1"), batch(1)], 5)
    body, _ = checkpoints.record(body, [saved("2")], 5)

    assert [1, 3, 4] == [one.number for one in body.completed]


def test_a_restart_is_counted_once_there_is_something_to_go_on_from() -> None:
    body, _ = checkpoints.record(EMPTY, [batch(0)], 1)
    body = checkpoints.restored(body, 7.0)

    assert EMPTY is checkpoints.restored(EMPTY, 7.0)
    assert (1, 7.0, 1) == (
        body.restored_total,
        body.restored_at,
        body.restored.number if body.restored else 0,
    )


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (Retention.NO_EXTERNALIZED_CHECKPOINTS, set()),
        (Retention.DELETE_ON_CANCELLATION, {JobStatus.FAILED}),
        (Retention.RETAIN_ON_CANCELLATION, {JobStatus.FAILED, JobStatus.CANCELED}),
    ],
)
def test_what_is_retained_at_the_end(retention: Retention, kept: set[JobStatus]) -> None:
    ends = [JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED]

    assert kept == {status for status in ends if checkpoints.is_retained(retention, status)}


def test_each_that_fails_gets_a_number_and_the_last_is_remembered() -> None:
    body, _ = checkpoints.record(EMPTY, [batch(0)], 1)
    body = checkpoints.failed(body, 3, batch(1))
    body, taken = checkpoints.record(body, [batch(2)], 1)
    assert body.failed is not None

    assert (4, 1, [5]) == (body.failed.number, body.failed.batch_id, [one.number for one in taken])
    assert (2, 3, 0, 5) == checkpoints.counts(body)


def test_at_the_end_a_savepoint_is_complete_or_has_failed() -> None:
    taken = [
        Savepoint(trigger="a", location="/a", number=1, completed_at=1.0),
        Savepoint(trigger="b", location="/b", number=2, failure=Failure(type="E", message="")),
        Savepoint(trigger="c", location="/c", number=3),
    ]

    body = replace(EMPTY, savepoints=tuple(taken))

    assert (1, 1) == checkpoints.counts(body)[:2]
    assert (1, 2) == checkpoints.counts(body, over=True)[:2]


def test_large_offsets_of_what_was_replaced_are_not_kept() -> None:
    large = msgspec.Raw(msgspec.json.encode("9" * (OFFSETS_BYTES_LIGHT + 1)))
    body = EMPTY
    for number in range(3):
        body, _ = checkpoints.record(body, [replace(batch(number), offsets=large)], 3)
    body = checkpoints.restored(body, 1.0)
    assert body.restored is not None

    assert [False, False, True] == [bytes(one.offsets) == bytes(large) for one in body.completed]
    assert b"null" == bytes(body.restored.offsets)
