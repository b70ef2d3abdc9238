"""Each batch that a query commits becomes a checkpoint, once; what was not committed does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.driver import ground
from tests.driver.ground import QUERY, Scripted, Told, report
from understudy.driver.streaming import StreamKeeper
from understudy.model import Failure
from understudy.spark.query_log import OFFSETS_BYTES_MAX


@pytest.fixture
def told() -> Told:
    """Return a recorder that remembers."""
    return Told()


@pytest.fixture
def keeper(tmp_path: Path, told: Told) -> StreamKeeper:
    """Return the streaming part of a first attempt."""
    return ground.keeper(tmp_path / "ha", told, ground.deploy())


def own(keeper: StreamKeeper, name: str = "orders") -> Path:
    """Return a sub-location of the job's with a query in it."""
    place = Path(keeper.location(name))
    ground.write_query(place)
    return place


def watch(keeper: StreamKeeper, queries: Scripted) -> None:
    """Watch until the queries have ended."""
    keeper.watch(queries)
    keeper.end()


def test_a_committed_batch_is_a_checkpoint_with_all_that_is_known(
    keeper: StreamKeeper, told: Told
) -> None:
    place = own(keeper)
    batch = ground.write_batch(place, 0)
    queries = Scripted(f"file:{place}")
    queries.said(report(0, 12, 0.5))
    watch(keeper, queries)
    [one] = told.checkpoints
    assert batch.offsets is not None
    assert batch.commit is not None

    assert ("orders", 0, 12, 2) == (one.name, one.batch_id, one.rows, one.attempt)
    assert (QUERY, str(place), 0.5) == (one.query_id, one.location, one.duration_s)
    assert [{"logOffset": 0}] * 2 == ground.offsets_of(one)
    assert len(batch.offsets) + len(batch.commit) == one.size
    assert ground.recorded(place, 0).digest == one.digest
    assert 1795255200.5 == one.completed_at


def test_a_trigger_that_committed_nothing_is_none(keeper: StreamKeeper, told: Told) -> None:
    place = own(keeper)
    ground.write_batch(place, 0)
    ground.write_offsets(place, 1)
    queries = Scripted(str(place))
    queries.said(report(0, 5), report(1, 0), report(1, 0))
    watch(keeper, queries)

    assert [("orders", 0, 5)] == told.batches


@pytest.mark.parametrize(("begun", "expected"), [(0, []), (1, [("orders", 1, "boom")])])
def test_a_batch_that_a_query_failed_in_is_a_checkpoint_that_failed(
    keeper: StreamKeeper, told: Told, begun: int, expected: list[tuple[str, int, str]]
) -> None:
    place = own(keeper)
    ground.write_batch(place, 0)
    ground.write_offsets(place, begun)
    queries = Scripted(str(place))
    queries.said(report(0, 5))
    queries.failure = Failure(type="StreamingQueryException", message="boom")
    watch(keeper, queries)

    assert [("orders", 0, 5)] == told.batches
    assert expected == [
        (one.name, one.batch_id, one.failure.message) for one in told.failures if one.failure
    ]


def test_several_batches_between_two_looks_are_one_message(
    keeper: StreamKeeper, told: Told
) -> None:
    place = own(keeper)
    for number in range(7):
        ground.write_batch(place, number)
    queries = Scripted(str(place))
    queries.said(*[report(number, number) for number in range(7)])
    watch(keeper, queries)

    assert [("orders", number, number) for number in range(7)] == told.batches
    assert [7] == told.messages


def test_a_batch_of_which_spark_has_dropped_the_report_is_found_by_its_files(
    keeper: StreamKeeper, told: Told
) -> None:
    place = own(keeper)
    for number in range(4):
        ground.write_batch(place, number)
    queries = Scripted(str(place))
    queries.said(report(3, 30))
    watch(keeper, queries)

    assert [("orders", n, 0) for n in range(3)] + [("orders", 3, 30)] == told.batches


def test_a_commit_that_comes_after_its_report_counts(keeper: StreamKeeper, told: Told) -> None:
    place = own(keeper)
    ground.write_offsets(place, 0)
    queries = Scripted(str(place))
    queries.said(report(0, 5))
    keeper.watch(queries)
    queries.looked_at()
    ground.write_batch(place, 0)
    keeper.end()

    assert [("orders", 0, 5)] == told.batches


def test_a_batch_that_is_reported_again_is_one_checkpoint(keeper: StreamKeeper, told: Told) -> None:
    place = own(keeper)
    ground.write_batch(place, 0)
    queries = Scripted(str(place))
    queries.said(report(0, 5), report(0, 0))
    watch(keeper, queries)

    assert [("orders", 0, 5)] == told.batches


def test_what_lay_at_the_users_own_location_before_is_not_ours(
    keeper: StreamKeeper, told: Told, tmp_path: Path
) -> None:
    place = tmp_path / "mine"
    ground.write_batches(place, 8)
    queries = Scripted(str(place))
    queries.said(report(8, 80))
    watch(keeper, queries)

    assert [(str(place), 8, 80)] == told.batches


def test_a_query_goes_by_its_name(keeper: StreamKeeper, told: Told, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    ground.write_batches(place, 0)
    queries = Scripted(str(place), "clicks")
    queries.said(report(0, 1))
    watch(keeper, queries)

    assert [("clicks", 0, 1)] == told.batches


def test_the_only_query_needs_no_name(keeper: StreamKeeper, told: Told) -> None:
    place = Path(keeper.location)
    ground.write_batches(place, 0)
    queries = Scripted(str(place))
    queries.said(report(0, 1))
    watch(keeper, queries)

    assert [("", 0, 1)] == told.batches


def test_a_restarted_attempt_records_from_where_the_last_one_was(
    tmp_path: Path, told: Told
) -> None:
    place = tmp_path / "orders"
    ground.write_batches(place, 5)
    keeper = ground.keeper(tmp_path / "ha", told, ground.deploy(ground.recorded(place, 4)))
    keeper.verify()
    ground.write_batch(place, 6)
    queries = Scripted(str(place), "orders")
    queries.said(report(6, 60))
    watch(keeper, queries)

    assert [("orders", 5, 0), ("orders", 6, 60)] == told.batches


def test_what_is_recorded_is_not_recorded_again_by_who_watches_first(
    keeper: StreamKeeper, tmp_path: Path
) -> None:
    """A driver's session is there, and watched, before the function's checkpoint is verified."""
    place = own(keeper)
    for number in range(6):
        ground.write_batch(place, number)
    told = Told()
    again = ground.keeper(tmp_path / "ha", told, ground.deploy(ground.recorded(place, 4)))
    queries = Scripted(str(place))
    again.watch(queries)
    again.verify()
    ground.write_batch(place, 6)
    queries.said(report(6, 60))
    again.end()

    assert [("orders", 5, 0), ("orders", 6, 60)] == told.batches


def test_what_a_restarted_attempt_does_not_hear_of_is_found_by_its_files(
    tmp_path: Path, told: Told
) -> None:
    place = tmp_path / "orders"
    ground.write_batches(place, 4)
    keeper = ground.keeper(tmp_path / "ha", told, ground.deploy(ground.recorded(place, 4)))
    keeper.verify()
    for number in (5, 6, 7):
        ground.write_batch(place, number)
    queries = Scripted(str(place), "orders")
    queries.said(report(7, 70))
    watch(keeper, queries)

    assert [("orders", 5, 0), ("orders", 6, 0), ("orders", 7, 70)] == told.batches


def test_a_query_without_a_location_is_told_of_once(
    keeper: StreamKeeper, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    queries = Scripted("file:/tmp/temporary-1", "quick", temporary=True)
    queries.said(report(0, 1))
    watch(keeper, queries)

    assert [] == told.checkpoints
    assert 1 == caplog.text.count("'quick' has no checkpointLocation")


def test_a_query_that_begins_elsewhere_is_told_of(
    tmp_path: Path, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    place, elsewhere = tmp_path / "orders", tmp_path / "elsewhere"
    ground.write_batches(place, 4)
    ground.write_batches(elsewhere, 0, ground.OTHER)
    before = replace(ground.recorded(place, 4), query_id="b" * 8)
    keeper = ground.keeper(tmp_path / "ha", told, ground.deploy(before))
    queries = Scripted(str(elsewhere), "orders")
    queries.said(report(0, 1))
    watch(keeper, queries)

    assert f"does not go on from batch 4, which is recorded at {place}" in caplog.text


def test_offsets_that_are_too_large_for_the_register_are_left_out(
    keeper: StreamKeeper, told: Told
) -> None:
    place = own(keeper)
    ground.write_batch(place, 0)
    large = "9" * OFFSETS_BYTES_MAX
    (place / "offsets" / "0").write_text(f'v1\n{{}}\n"{large}"')
    queries = Scripted(str(place))
    queries.said(report(0, 1))
    watch(keeper, queries)

    assert [None] == [ground.offsets_of(one) for one in told.checkpoints]


def test_queries_are_down_before_an_attempt_has_ended(keeper: StreamKeeper) -> None:
    queries = Scripted(str(own(keeper)))
    watch(keeper, queries)

    assert queries.stopped


@pytest.mark.parametrize(
    ("any_query", "interrupted", "expected"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_queries_that_ended_since_they_were_interrupted_are_no_end_of_the_job(
    keeper: StreamKeeper, any_query: bool, interrupted: bool, expected: bool
) -> None:
    """Without a query, a function that has returned is finished, whatever came a moment later."""
    queries = Scripted(str(own(keeper)))
    queries.any, queries.interrupted = any_query, interrupted
    watch(keeper, queries)

    assert expected == keeper.was_stopped


def test_a_job_without_queries_waits_for_no_record(tmp_path: Path) -> None:
    class Waiting(Told):
        def settle(self, timeout_s: float) -> bool:
            raise AssertionError("there is nothing to wait for")

    keeper = ground.keeper(tmp_path / "ha", Waiting(), ground.deploy())
    queries = Scripted("/nowhere")
    queries.any = False
    watch(keeper, queries)
