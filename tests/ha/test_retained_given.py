"""A retained checkpoint that is given as a savepoint: refused, with what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.cli.restoring import ClaimMode, Restore, start_from
from understudy.config import Configuration
from understudy.errors import UsageError
from understudy.model import ApplicationId, Checkpoint, CheckpointKind, Checkpoints, JobId
from understudy.runtime.checkpoint_cleanup import retained


def keep(place: Path, number: int) -> Path:
    """Retain a query, a table and a state, as a failed job does."""
    taken = [
        Checkpoint(kind=kind, name=name, attempt=1, number=number, location=f"{place}/{path}")
        for kind, name, path in (
            (CheckpointKind.BATCH, "board", f"streaming/{number}"),
            (CheckpointKind.TABLE, "cleaned", "tables/cleaned-1-1"),
            (CheckpointKind.STATE, "", "state/1-1.json"),
        )
    ]
    body = Checkpoints(application_id=ApplicationId("a"), job_id=JobId("j"), completed=tuple(taken))
    file = place / f"checkpoint-{number}.json"
    file.write_bytes(retained.dump(body, pretty=True))
    return file


def refusal(path: Path | str) -> str:
    restore = Restore((str(path),), allow_non_restored=False, claim=ClaimMode.NO_CLAIM)
    with pytest.raises(UsageError) as refused:
        start_from(restore, Configuration({}), None)
    return str(refused.value)


def test_it_is_named_and_each_part_with_how_it_is_used(tmp_path: Path) -> None:
    keep(tmp_path, 9)
    file = keep(tmp_path, 10)
    told = [refusal(path) for path in (tmp_path, f"{tmp_path}/", file)]

    for one in told:
        assert "is a retained checkpoint, no savepoint" in one
        assert f'.option("checkpointLocation", "{tmp_path}/streaming/10")' in one
        assert f"the table 'cleaned' is read from {tmp_path}/tables/cleaned-1-1" in one
        assert f"the state lies in {tmp_path}/state/1-1.json" in one
        assert "understudy stop --savepoint" in one


def test_what_only_looks_like_one_is_no_savepoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-1.json").write_text("{}")

    for path in (tmp_path, tmp_path / "checkpoint-1.json", tmp_path / "nothing"):
        assert "is no savepoint" in refusal(path)
