"""A retained checkpoint given as a savepoint: the job begins with one that is made of it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.jobmanager.test_savepoints import ABOUT, put
from tests.support.faulty_register import Durable
from understudy.cli.commands.restoring import ClaimMode, Restore, start_from
from understudy.config import Configuration
from understudy.core.checkpoints import Retention
from understudy.errors import UsageError
from understudy.ha import savepoints
from understudy.jobmanager import retained, savepoint_files
from understudy.jobmanager.savepoint_files import Directories
from understudy.model import (
    ApplicationId,
    Checkpoint,
    CheckpointKind,
    Checkpoints,
    JobId,
    JobStatus,
    StartFrom,
)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Return the directory of a job with a query, a table, a state, and a table for later jobs."""
    place = tmp_path / "points" / ABOUT.job_id
    for name in ("metadata", "offsets/0", "offsets/1", "commits/0", "commits/1"):
        put(place / "streaming/board" / name)
    put(place / "tables/cleaned-1-1/part-0", b"rows")
    put(place / "state/1-2.json", b"{}")
    return place


def taken(place: Path) -> list[Checkpoint]:
    return [
        Checkpoint(kind=kind, name=name, attempt=1, number=number, location=location, batch_id=1)
        for number, (kind, name, location) in enumerate(
            (
                (CheckpointKind.TABLE, "cleaned", f"{place}/tables/cleaned-1-1"),
                (CheckpointKind.HANDLE, "for later", "one/tables/j/for-later-1-1"),
                (CheckpointKind.BATCH, "board", f"file://{place}/streaming/board"),
                (CheckpointKind.STATE, "", f"{place}/state/1-2.json"),
            ),
            1,
        )
    ]


def retain(place: Path, *more: Checkpoint) -> Path:
    """Retain what a job has kept, as its master does when it fails; return the file."""
    completed = (*taken(place), *more)
    intent = ground.intent(str(place))
    entry = replace(ground.job(1), intent=intent, checkpoints="key")
    body = Checkpoints(
        application_id=ApplicationId(ABOUT.application_id),
        job_id=JobId(ABOUT.job_id),
        counter=completed[-1].number,
        completed=completed,
    )
    storage = ground.services(Durable()).storage
    return Path(
        asyncio.run(
            retained.retain(
                storage,
                Retention.DELETE_ON_CANCELLATION,
                entry,
                JobStatus.FAILED,
                body,
                replace(ABOUT, counter=body.counter),
            )
        )
    )


def started(path: Path | str, claim: ClaimMode | None = None) -> StartFrom:
    (found,) = start_from(Restore((str(path),), False, claim), Configuration({}), None)
    return found


def refusal(path: Path | str) -> str:
    with pytest.raises(UsageError) as refused:
        started(path)
    return str(refused.value)


def begun(start: StartFrom, other: Path) -> dict[str, Checkpoint]:
    """Lay out what a job begins with, as its master does; return it by its kind."""
    found = savepoints.read(start.path)
    savepoints.check(found)
    assert found.digest == start.digest
    places = Directories(str(other), f"{other}/cp", "tables/k")
    return {one.kind.value: one for one in savepoint_files.lay_out(found, places)}


def test_a_job_begins_with_all_that_was_retained(kept: Path, tmp_path: Path) -> None:
    start = started(retain(kept))
    other = tmp_path / "other"
    given = begun(start, other)

    assert ("live", False) == (start.job_name, start.claim)
    assert f"{kept}/savepoint-4" == start.path
    assert {"table", "batch", "state"} == set(given)
    assert f"{other}/cp/streaming/board" == given["batch"].location
    assert (other / "cp/streaming/board/commits/1").is_file()
    assert b"rows" == Path(given["table"].location, "part-0").read_bytes()
    assert b"{}" == Path(given["state"].location).read_bytes()
    assert 4 == savepoints.read(start.path).manifest.counter


def test_the_newest_is_taken_of_a_directory(kept: Path) -> None:
    retain(kept)
    newer = replace(taken(kept)[-1], number=10)
    retain(kept, newer)

    for path in (kept, f"{kept}/", kept / "checkpoint-10.json"):
        assert f"{kept}/savepoint-10" == started(path).path
    assert f"{kept}/savepoint-4" == started(kept / "checkpoint-4.json").path


def test_flinks_options_say_it_where_nothing_is_typed(kept: Path) -> None:
    older, newer = retain(kept), retain(kept, replace(taken(kept)[-1], number=10))
    key = "execution.state-recovery"
    configuration = Configuration(
        {
            "execution.savepoint.path": str(older),
            f"{key}.claim-mode": "CLAIM",
            f"{key}.ignore-unclaimed-state": "true",
        }
    )
    (said,) = start_from(Restore((), False, None), configuration, None)
    typed = Restore((str(newer),), False, ClaimMode.NO_CLAIM)
    (instead,) = start_from(typed, configuration, None)

    assert (f"{kept}/savepoint-4", True, True) == (said.path, said.claim, said.may_be_left)
    assert (f"{kept}/savepoint-10", False, True) == (
        instead.path,
        instead.claim,
        instead.may_be_left,
    )


def test_it_may_be_made_again_and_is_the_same(kept: Path) -> None:
    """Each JobManager that is started makes it, and the leader may have begun with it."""
    file = retain(kept)

    assert started(file) == started(file)


def test_it_may_have_been_moved(kept: Path, tmp_path: Path) -> None:
    retain(kept)
    moved = tmp_path / "else where"
    shutil.move(kept, moved)
    start = started(moved)

    assert f"{moved}/savepoint-4" == start.path
    assert {"table", "batch", "state"} == set(begun(start, tmp_path / "other"))


def test_what_its_job_may_have_for_itself_is_the_copy(kept: Path) -> None:
    start = started(retain(kept), ClaimMode.CLAIM)
    savepoints.remove(savepoints.read(start.path))

    assert start.claim
    assert not (kept / "savepoint-4").exists()
    assert started(kept).path == start.path


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        ("streaming/board/commits/1", "recorded with batch 1, but batch 0 is the last that lies"),
        ("tables/cleaned-1-1/part-0", "the table 'cleaned' is not there"),
        ("state/1-2.json", "the state of checkpoint 4 is not there"),
    ],
)
def test_what_is_gone_or_older_is_never_begun_with(kept: Path, harm: str, sentence: str) -> None:
    retain(kept)
    (kept / harm).unlink()

    assert sentence in refusal(kept)
    assert not (kept / "savepoint-4/_metadata").exists()


def test_a_write_that_its_job_left_under_way_is_named(kept: Path) -> None:
    note = msgspec.Raw(msgspec.json.encode({"state": "prepared", "target": "/out"}))
    write = Checkpoint(kind=CheckpointKind.WRITE, name="w", attempt=1, number=5, note=note)
    retain(kept, write)

    assert "write to /out was under way when the job ended" in refusal(kept)
    assert "without --from-savepoint" in refusal(kept)


def test_a_query_that_lay_elsewhere_is_named(kept: Path, tmp_path: Path) -> None:
    elsewhere = Checkpoint(
        kind=CheckpointKind.BATCH, name="mine", attempt=1, number=5, location=f"{tmp_path}/mine"
    )
    retain(kept, elsewhere)

    assert "'mine' is kept in" in refusal(kept)


def test_where_it_cannot_be_written_the_way_out_is_said(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retain(kept)

    def write(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(savepoint_files, "write", write)

    assert "give the copy" in refusal(kept)


def test_a_file_that_is_damaged_is_named(kept: Path) -> None:
    file = retain(kept)
    file.write_bytes(file.read_bytes()[:-10])

    for path in (kept, file):
        assert f"the retained checkpoint cannot be used: {file}" in refusal(path)


def test_what_only_lies_where_one_could_is_no_savepoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-x.json").write_text("{}")

    for path in (tmp_path, tmp_path / "checkpoint-x.json", tmp_path / "checkpoint-1.json"):
        assert "is no savepoint" in refusal(path)


def test_a_savepoint_is_still_given_by_its_directory_or_its_manifest(kept: Path) -> None:
    made = started(retain(kept)).path

    assert made == started(made).path
    assert made == started(f"{made}/_metadata").path


def test_bytes_that_nobody_listed_stay(kept: Path, tmp_path: Path) -> None:
    """A directory of tables that grew beside the retained ones is not the job's."""
    retain(kept)
    put(kept / "tables/strange-9-9/part-0")
    begun(started(kept), tmp_path / "other")

    assert not (tmp_path / "other/cp/from-savepoint/tables/strange-9-9").exists()
    assert (kept / "tables/strange-9-9/part-0").is_file()
