"""Savepoints in a directory: what is read, what is refused, what is removed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pytest
from msgspec.structs import replace

from understudy.errors import CheckpointError, NotFoundError
from understudy.ha import savepoints
from understudy.ha.format import digest
from understudy.ha.savepoints import Manifest
from understudy.ha.transfer import PIECE_BYTES, FileTree
from understudy.jobmanager import savepoint_files
from understudy.jobmanager.savepoint_files import Directories, HaltError
from understudy.model import Checkpoint, CheckpointKind
from understudy.spark.urls import address_of

ABOUT = Manifest(
    job_name="live",
    job_id="a" * 32,
    application_name="app",
    application_id="b" * 32,
    run_id="monday",
    cluster_id="one",
    counter=7,
    checkpoints=(),
)
STATE = Checkpoint(
    kind=CheckpointKind.STATE, name="", attempt=3, number=5, location="one/cp/state/3-1.json"
)
TABLE = Checkpoint(
    kind=CheckpointKind.TABLE, name="t", attempt=2, number=4, location="one/cp/tables/t-2-1"
)


def batch(storage: Path, batch_id: int) -> Checkpoint:
    """Return a checkpoint as a driver tells it: with a whole address."""
    return Checkpoint(
        kind=CheckpointKind.BATCH,
        name="q",
        attempt=3,
        number=6,
        batch_id=batch_id,
        location=str(storage / "one/cp/streaming/q"),
    )


def put(path: Path, data: bytes = b"x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """Return a storage with a state, a table, and a query that has committed batch 1."""
    root = tmp_path / "storage"
    put(root / "one/cp/state/3-1.json", b"{}")
    put(root / "one/cp/tables/t-2-1/part-0", b"rows" * PIECE_BYTES)
    put(root / "one/cp/tables/t-2-1/_manifest.json")
    for name in ("metadata", "offsets/0", "offsets/1", "commits/0", "commits/1", "commits/.1.crc"):
        put(root / "one/cp/streaming/q" / name)
    return root


def directories(storage: str | Path) -> Directories:
    return Directories(str(storage), "one/cp", "one/tables/j")


def take(storage: Path, target: str) -> str:
    """Write a savepoint of all three; return the digest of its manifest."""
    taken = (TABLE, STATE, batch(storage, 1))
    told, _ = savepoint_files.write(taken, directories(storage), ABOUT, target, threading.Event())
    return told


@pytest.fixture
def kept(storage: Path, tmp_path: Path) -> Path:
    """Return a savepoint."""
    take(storage, str(tmp_path / "kept/savepoint-1"))
    return tmp_path / "kept/savepoint-1"


# --- what is good ---------------------------------------------------------------------------------


def test_what_was_written_is_whole_wherever_it_is_moved(kept: Path, tmp_path: Path) -> None:
    moved = kept.rename(tmp_path / "moved")
    found = savepoints.read(f"{moved}/_metadata")
    savepoints.check(found)

    assert str(moved) == found.place.address
    assert ABOUT.job_name == found.manifest.job_name
    assert [
        "checkpoints/streaming/q/commits/0",
        "checkpoints/streaming/q/commits/1",
        "checkpoints/streaming/q/metadata",
        "checkpoints/streaming/q/offsets/0",
        "checkpoints/streaming/q/offsets/1",
    ] == [one.path for one in found.manifest.files if "streaming" in one.path]


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_job_begins_with_it_in_another_storage(kept: Path, tmp_path: Path, kind: str) -> None:
    other = str(tmp_path / "other") if kind == "local" else "memory://other"
    found = savepoints.read(str(kept))
    laid_out = savepoint_files.lay_out(found, Directories(other, "two/cp", "two/tables/k"))
    again = savepoint_files.lay_out(found, Directories(other, "two/cp", "two/tables/k"))

    assert [
        "two/cp/from-savepoint/tables/t-2-1",
        "two/cp/from-savepoint/state/3-1.json",
        f"{other}/two/cp/streaming/q",
    ] == [one.location for one in laid_out]
    assert [(0, 4), (0, 5), (0, 6)] == [(one.attempt, one.number) for one in laid_out]
    assert laid_out == again
    for one in laid_out:
        assert FileTree(address_of(other, one.location)).files(), one.location
    place = FileTree(address_of(other, laid_out[0].location))
    assert digest(b"rows" * PIECE_BYTES) == place.digest("part-0")[0]


def test_one_that_lies_at_a_url_is_one_too(storage: Path, tmp_path: Path) -> None:
    take(storage, "memory://far/savepoint-1")
    found = savepoints.read("memory://far/savepoint-1")
    savepoints.check(found)
    savepoint_files.lay_out(found, directories(tmp_path / "other"))
    savepoints.remove(found)

    assert b"{}" == (tmp_path / "other/one/cp/from-savepoint/state/3-1.json").read_bytes()
    assert [] == fsspec.filesystem("memory").find("/far")


def test_a_batch_that_was_committed_since_is_taken_with_it(storage: Path, tmp_path: Path) -> None:
    put(storage / "one/cp/streaming/q/commits/2")
    put(storage / "one/cp/streaming/q/offsets/2")
    take(storage, str(tmp_path / "kept"))

    assert (tmp_path / "kept/checkpoints/streaming/q/commits/2").is_file()


# --- what is refused ------------------------------------------------------------------------------


def test_what_lies_outside_of_the_jobs_directory_is_refused(storage: Path, tmp_path: Path) -> None:
    elsewhere = Checkpoint(
        kind=CheckpointKind.BATCH, name="q", attempt=1, location=str(tmp_path / "mine")
    )
    with pytest.raises(CheckpointError, match=r"outside of the job's own directory"):
        savepoint_files.write(
            [elsewhere], directories(storage), ABOUT, str(tmp_path / "k"), threading.Event()
        )


def test_a_query_is_part_of_it_however_the_storage_was_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    query = batch(tmp_path / "storage", 1)
    up = f"../{tmp_path.name}/storage"
    named = ["storage", up, f"{tmp_path}//x/../storage/", f"file://{tmp_path}/storage"]

    assert {"checkpoints/streaming/q"} == {directories(one).relative(query) for one in named}


def test_a_query_that_was_rolled_back_is_refused(storage: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"recorded with batch 9, but batch 1 is the last"):
        savepoint_files.write(
            [batch(storage, 9)], directories(storage), ABOUT, str(tmp_path / "k"), threading.Event()
        )
    assert not (tmp_path / "k/_metadata").exists()


def write_to(target: str, state: str) -> Checkpoint:
    """Return what is recorded of a write of the user's."""
    note = msgspec.Raw(msgspec.json.encode({"state": state, "target": target}))
    return Checkpoint(
        kind=CheckpointKind.WRITE, name=target, attempt=2, location="/data/out", note=note
    )


def test_what_was_published_stays_published(storage: Path, tmp_path: Path) -> None:
    writes = [write_to("/data/a", "published"), write_to("/data/b", "staging")]
    writes.append(write_to("q:done", "done"))
    target = str(tmp_path / "k")
    savepoint_files.write(writes, directories(storage), ABOUT, target, threading.Event())
    laid_out = savepoint_files.lay_out(savepoints.read(target), directories(tmp_path / "other"))

    assert [("/data/a", 0, "/data/out"), ("q:done", 0, "/data/out")] == [
        (one.name, one.attempt, one.location) for one in laid_out
    ]


def test_a_write_that_may_be_in_its_target_or_not_is_refused(storage: Path, tmp_path: Path) -> None:
    write = write_to("/data/a", "prepared")
    with pytest.raises(CheckpointError, match="write to /data/a was under way"):
        savepoint_files.write(
            [write], directories(storage), ABOUT, str(tmp_path / "k"), threading.Event()
        )
    assert not (tmp_path / "k/_metadata").exists()


@pytest.mark.parametrize("refused", ["outside", "under way"])
def test_nothing_is_copied_where_the_last_checkpoint_is_refused(
    storage: Path, tmp_path: Path, refused: str
) -> None:
    last = write_to("/data/a", "prepared")
    if refused == "outside":
        last = replace(STATE, location="two/cp/state/3-1.json")
    with pytest.raises(CheckpointError):
        savepoint_files.write(
            [TABLE, last], directories(storage), ABOUT, str(tmp_path / "k"), threading.Event()
        )
    assert not (tmp_path / "k").exists()


def test_what_went_meanwhile_is_told(storage: Path, tmp_path: Path) -> None:
    (storage / "one/cp/state/3-1.json").unlink()
    with pytest.raises(NotFoundError):
        take(storage, str(tmp_path / "k"))
    assert not (tmp_path / "k/_metadata").exists()


def test_nothing_is_published_for_nobody(storage: Path, tmp_path: Path) -> None:
    halt = threading.Event()
    halt.set()
    with pytest.raises(HaltError):
        savepoint_files.write([STATE], directories(storage), ABOUT, str(tmp_path / "k"), halt)
    assert not (tmp_path / "k").exists()


def altered(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Return a damage that a knowing hand has done: the checksum is right again."""

    def damage(kept: Path) -> None:
        path = kept / "_metadata"
        told = json.loads(path.read_text())
        change(told)
        compact = json.dumps(told["body"], separators=(",", ":"), ensure_ascii=False).encode()
        told["checksum"] = digest(compact)
        path.write_text(json.dumps(told))

    return damage


def outside(path: str) -> Callable[[Path], None]:
    def change(told: dict[str, Any]) -> None:
        told["body"]["files"][0]["path"] = path

    return altered(change)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


STATE_FILE = "checkpoints/state/3-1.json"

DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda kept: (kept / "_metadata").unlink(), "is no savepoint: it has no"),
    "nothing": (lambda kept: kept.rename(kept.parent / "x"), "is no savepoint: there is nothing"),
    "empty": (lambda kept: (kept / "_metadata").write_bytes(b""), "not a savepoint"),
    "truncated": (lambda kept: _truncate(kept / "_metadata"), "not a savepoint"),
    "zeros": (lambda kept: (kept / "_metadata").write_bytes(b"\0" * 500), "not a savepoint"),
    "flipped": (
        lambda kept: (kept / "_metadata").write_text(
            (kept / "_metadata").read_text().replace("monday", "tuesday")
        ),
        "checksum does not match",
    ),
    "of Flink": (lambda kept: (kept / "_metadata").write_bytes(b"\x49\x60\x67\x43"), "not a"),
    "of another kind": (altered(lambda told: told.update(format="job-state")), "a 'job-state'"),
    "newer": (altered(lambda told: told.update(version=2)), "reads up to 1"),
    "a directory": (lambda kept: _replace_by_directory(kept / "_metadata"), "cannot be read"),
    "above": (outside("../../etc/passwd"), "not in the savepoint"),
    "absolute": (outside("/etc/passwd"), "not in the savepoint"),
    "dotted": (outside("checkpoints/./state/3-1.json"), "not in the savepoint"),
    "file gone": (lambda kept: (kept / STATE_FILE).unlink(), "no such file"),
    "file longer": (lambda kept: (kept / STATE_FILE).write_bytes(b"{} "), "has 3 bytes"),
    "file shorter": (lambda kept: (kept / STATE_FILE).write_bytes(b""), "has 0 bytes"),
    "file altered": (lambda kept: (kept / STATE_FILE).write_bytes(b"[]"), "was altered"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_one_is_refused_in_one_sentence(kept: Path, name: str) -> None:
    damage, words = DAMAGES[name]
    damage(kept)
    with pytest.raises(CheckpointError, match=words) as told:
        savepoints.check(savepoints.read(str(kept)))

    assert "\n" not in str(told.value)
    assert str(kept) in str(told.value)


def test_a_file_that_was_damaged_since_is_not_laid_out_unseen(kept: Path, tmp_path: Path) -> None:
    found = savepoints.read(str(kept))
    (kept / STATE_FILE).write_bytes(b"[]")
    with pytest.raises(CheckpointError, match="was altered"):
        savepoint_files.lay_out(found, directories(tmp_path / "other"))


def test_removing_leaves_what_is_not_its_own(kept: Path) -> None:
    (kept / "mine.txt").touch()
    (kept / "checkpoints" / "state" / "mine.txt").touch()
    savepoints.remove(savepoints.read(str(kept)))

    left = sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())
    assert ["checkpoints/state/mine.txt", "mine.txt"] == left


def test_removing_may_be_repeated(kept: Path) -> None:
    found = savepoints.read(str(kept))
    savepoints.remove(found)
    savepoints.remove(found)

    assert not kept.exists()
