"""Which files of a Spark checkpoint a savepoint needs."""

from __future__ import annotations

import pytest

from understudy.core.savepoints import committed, needed

LOGS = ["metadata", "offsets/0", "offsets/1", "offsets/2", "commits/0", "commits/1"]


def test_the_last_batch_is_the_last_that_was_committed() -> None:
    assert 1 == committed(LOGS)
    assert -1 == committed(["metadata", "offsets/0"])


def test_a_batch_that_has_begun_is_done_again_with_the_same_rows() -> None:
    assert sorted(LOGS) == needed(LOGS, 1)


def test_what_was_begun_or_committed_after_the_batch_is_left_out() -> None:
    later = ["offsets/3", "commits/2", "commits/3"]

    assert sorted(LOGS) == needed([*LOGS, *later], 1)


def test_what_sources_have_listed_is_needed_as_it_is() -> None:
    sources = ["sources/0/0", "sources/0/9.compact", "sources/0/10", "sources/1/0"]

    assert sorted([*LOGS, *sources]) == needed([*LOGS, *sources], 1)


@pytest.mark.parametrize(
    "name", ["offsets/.2.crc", "commits/.1.crc", "offsets/.2.0a.tmp", "state/0/0/.2.delta.0a.tmp"]
)
def test_drafts_and_checksums_of_sparks_are_left_out(name: str) -> None:
    assert sorted(LOGS) == needed([*LOGS, name], 1)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        # Batch 1 has left version 2; batch 2 is writing version 3.
        (["1.delta", "2.delta", "3.delta"], ["1.delta", "2.delta"]),
        (["1.delta", "2.delta", "2.snapshot", "3.delta"], ["2.delta", "2.snapshot"]),
        (["1.snapshot", "1.delta", "2.delta"], ["1.delta", "1.snapshot", "2.delta"]),
        (["1.zip", "2.zip", "3.zip"], ["2.zip"]),
        (["1.zip", "2.changelog", "3.changelog"], ["1.zip", "2.changelog"]),
        (["1_ab.zip", "2_cd.changelog", "3.zip"], ["1_ab.zip", "2_cd.changelog"]),
        (["3.snapshot", "1.delta", "2.delta"], ["1.delta", "2.delta"]),
    ],
)
def test_a_state_is_a_snapshot_and_what_follows(state: list[str], expected: list[str]) -> None:
    for directory in ("state/0/0", "state/0/1/left-keyToNumValues"):
        files = [f"{directory}/{name}" for name in state]

        assert [f"{directory}/{name}" for name in expected] == needed(files, 1)


def test_what_is_beside_the_versions_of_a_state_is_needed() -> None:
    beside = ["state/0/0/SSTs/1-ab.sst", "state/0/0/_metadata/schema", "state/0/_metadata/v2"]

    assert beside == needed(beside, 1)
