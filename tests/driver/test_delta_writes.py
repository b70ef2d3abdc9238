"""Writes to what drops a repeated one: which of them a Delta table is told to be the same."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.writing import Attempt, Leader
from understudy.driver.safe_writes import Batch
from understudy.errors import CheckpointError


class Table:
    """Drops what a writer has written already, as a Delta table does."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self._last: dict[str, int] = {}

    def append(self, row: str, options: Mapping[str, str]) -> None:
        writer, version = options["txnAppId"], int(options["txnVersion"])
        if self._last.get(writer, -1) < version:
            self._last[writer] = version
            self.rows.append(row)


def write(attempt: Attempt, table: Table, row: str, batch: Batch | None = None) -> None:
    attempt.writes.transact(
        "s3://bucket/table", lambda options: table.append(row, options), None, batch
    )


def keep(attempt: Attempt, table: Table, number: int, row: str) -> None:
    """Run a batch of a query to its end."""
    batch = attempt.writes.begin("query", number)
    if batch:
        write(attempt, table, row, batch)
        attempt.writes.end(batch)


def test_what_a_lost_attempt_has_committed_is_not_written_again() -> None:
    leader, table = Leader(), Table()
    lost = leader.begin()
    leader.begin()
    with pytest.raises(CheckpointError, match="another attempt"):
        write(lost, table, "1")
    after = leader.begin()
    for row in ("1", "2"):
        write(after, table, row)

    assert ["1", "2"] == table.rows


def test_a_job_that_is_run_anew_on_purpose_writes_anew() -> None:
    leader, table = Leader(), Table()
    first = leader.begin()
    write(first, table, "first")
    keep(first, table, 0, "first of 0")
    anew = leader.begin_anew("understudy-a-1")
    write(anew, table, "second")
    keep(anew, table, 0, "second of 0")
    again = leader.begin()
    write(again, table, "third")
    keep(again, table, 0, "third of 0")

    assert ["first", "first of 0", "second", "second of 0"] == table.rows


def test_two_writes_of_a_job_are_no_repetition_of_each_other() -> None:
    leader, table = Leader(), Table()
    attempt = leader.begin()
    for row in ("1", "2"):
        write(attempt, table, row)
    for number in range(2):
        keep(attempt, table, number, f"batch {number}")

    assert ["1", "2", "batch 0", "batch 1"] == table.rows
