"""Savepoints that somebody else has crafted: nothing outside of them is removed, or read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.jobmanager.test_savepoints import STATE, STATE_FILE, directories, kept, storage, take
from understudy.core.checkpoints import WriteNote, WriteState, encoded
from understudy.errors import CheckpointError
from understudy.ha import savepoints
from understudy.ha.format import digest
from understudy.ha.savepoints import SavepointFile, manifests
from understudy.jobmanager import savepoint_files
from understudy.model import Checkpoint, CheckpointKind

__all__ = ["kept", "storage"]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a directory that looks like a part of a savepoint, and is somebody else's."""
    directory = tmp_path / "outside"
    for path in (STATE_FILE, "state/3-1.json", "3-1.json"):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text("{}")
    return directory


def files_below(directory: Path) -> list[str]:
    return sorted(str(path) for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("linked", ["checkpoints", "checkpoints/state", STATE_FILE, "_metadata"])
@pytest.mark.parametrize("use", ["remove", "check", "lay_out"])
def test_a_link_in_a_savepoint_is_refused_before_anything_is_removed(
    kept: Path, outside: Path, tmp_path: Path, linked: str, use: str
) -> None:
    theirs = outside / linked.removeprefix("checkpoints/")
    if linked == "checkpoints":
        theirs = outside / "checkpoints"
    if linked == "_metadata":
        theirs = outside / "_metadata"
        theirs.write_bytes((kept / linked).read_bytes())
    (kept / linked).rename(tmp_path / "aside")
    (kept / linked).symlink_to(theirs)
    before, left = files_below(outside), files_below(kept)
    found = savepoints.read(str(kept))
    with pytest.raises(CheckpointError, match="symbolic link"):
        USES[use](found, tmp_path)

    assert before == files_below(outside)
    assert left == files_below(kept)


USES: dict[str, Callable[[savepoints.FoundSavepoint, Path], object]] = {
    "remove": lambda found, _: savepoints.remove(found),
    "check": lambda found, _: savepoints.check(found),
    "lay_out": lambda found, path: savepoint_files.lay_out(found, directories(path / "other")),
}


def test_a_link_to_a_savepoint_is_refused_with_the_way_out(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(kept)
    with pytest.raises(CheckpointError, match="give the directory that it points to"):
        savepoints.remove(savepoints.read(str(tmp_path / "latest")))

    assert (kept / STATE_FILE).exists()


def crafted(kept: Path, **more: Any) -> None:
    """Write a manifest of which every checksum is right."""
    manifest = replace(manifests.load((kept / "_metadata").read_bytes(), "it"), **more)
    (kept / "_metadata").write_bytes(manifests.dump(manifest, pretty=True))


@pytest.mark.parametrize(
    "path",
    [
        "../outside/3-1.json",
        "checkpoints/../../outside/3-1.json",
        "/etc/passwd",
        "notes.txt",
        "checkpoints",
        "checkpoints//x",
        "checkpoints/./x",
        "file:///etc/passwd",
        "",
    ],
)
def test_a_manifest_names_nothing_but_what_lies_below_its_two_directories(
    kept: Path, path: str
) -> None:
    (kept / "notes.txt").write_text("mine")
    crafted(kept, files=(SavepointFile(path=path, digest=digest(b"mine"), size=4),))
    with pytest.raises(CheckpointError, match="is not in the savepoint"):
        savepoints.read(str(kept))

    assert (kept / "notes.txt").exists()


@pytest.mark.parametrize(
    "location", ["checkpoints/../../../srv", "/srv/theirs", "s3://b/x", "tables/..", "other/x"]
)
def test_a_checkpoint_of_a_manifest_lies_in_the_savepoint(kept: Path, location: str) -> None:
    """The job that begins with it would remove what lies there, once it has a newer one."""
    table = Checkpoint(kind=CheckpointKind.TABLE, name="t", attempt=1, number=1, location=location)
    crafted(kept, checkpoints=(table,))
    with pytest.raises(CheckpointError, match="is not in the savepoint"):
        savepoints.read(str(kept))


@pytest.mark.parametrize("state", [WriteState.PREPARED, WriteState.STAGING])
def test_a_write_under_way_is_in_no_savepoint(kept: Path, state: WriteState) -> None:
    """Its area is a directory that the job would remove."""
    note = encoded(WriteNote(state=state, target="/srv/theirs/table"))
    write = replace(STATE, kind=CheckpointKind.WRITE, name="w", location="/srv/theirs", note=note)
    crafted(kept, checkpoints=(write,))
    with pytest.raises(CheckpointError, match="under way"):
        savepoints.read(str(kept))


def test_a_savepoint_is_its_owners_alone(storage: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        take(storage, str(tmp_path / "deep/kept/savepoint-1"))
    finally:
        os.umask(before)
    made = [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]

    assert {0o700} == {path.stat().st_mode & 0o777 for path in made if path.is_dir()}
    assert {0o600} == {path.stat().st_mode & 0o777 for path in made if path.is_file()}
