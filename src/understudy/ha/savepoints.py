"""Savepoints in storage: a directory of files with a manifest.

``<directory>/savepoint-<job>-<trigger>/_metadata``, the manifest, is written last and lists every
other file with its relative path, size and digest. So the directory can be moved or copied. A
directory without a manifest is no savepoint.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from understudy.core.checkpoints import WriteState, note_of
from understudy.errors import (
    CheckpointError,
    CorruptDataError,
    DataError,
    NotFoundError,
    StorageError,
)
from understudy.ha import removal
from understudy.ha.format import Format, digest
from understudy.ha.storage import LocalStorage
from understudy.ha.transfer import FileTree, split
from understudy.model import Checkpoint, CheckpointKind, Record

MANIFEST = "_metadata"
"""Flink's name."""

ROOTS = ("checkpoints", "tables")
"""The directories of a savepoint's files; only the manifest is beside them."""


class SavepointFile(Record, frozen=True):
    """One file of a savepoint."""

    path: str
    """Relative to the savepoint's directory."""
    digest: str
    size: int


class Manifest(Record, frozen=True):
    """The contents of a savepoint: its job, checkpoints and files."""

    job_name: str
    job_id: str
    application_name: str
    application_id: str
    run_id: str
    cluster_id: str
    counter: int
    """The number of the job's last checkpoint."""
    checkpoints: tuple[Checkpoint, ...]
    """The checkpoints to resume from; a relative location is relative to this directory."""
    urls: tuple[int, ...] = ()
    """The numbers of the checkpoints that were recorded with a full address."""
    files: tuple[SavepointFile, ...] = ()
    taken_at: float = 0.0
    versions: tuple[tuple[str, str], ...] = ()
    """Versions of the software that wrote the savepoint and that the files are for."""


manifests: Format[Manifest] = Format("savepoint", Manifest)


class FoundSavepoint(NamedTuple):
    """A savepoint that was read."""

    place: FileTree
    manifest: Manifest
    digest: str
    """Of the manifest's bytes."""


def address(path: str) -> str:
    """Return a savepoint's directory for its own path or, as in Flink, the manifest's path."""
    return path.rstrip("/").removesuffix(f"/{MANIFEST}")


def read(path: str) -> FoundSavepoint:
    """Read a savepoint's manifest, without a look at its files.

    Raises `CheckpointError` if there is no readable savepoint. Blocking.
    """
    place = FileTree(address(path))
    try:
        data = place.storage.read(MANIFEST)
        manifest = manifests.load(data, f"{place.address}/{MANIFEST}")
        _refuse_paths_outside(place, manifest)
    except NotFoundError as error:
        found = "there is nothing" if not place.files() else f"it has no {MANIFEST}"
        raise CheckpointError(
            f"{place.address}: is no savepoint: {found}; give the directory that `understudy "
            "savepoint` has told"
        ) from error
    except DataError as error:
        raise CheckpointError(f"the savepoint cannot be used: {error}") from error
    return FoundSavepoint(place, manifest, digest(data))


def check(found: FoundSavepoint) -> None:
    """Raise `CheckpointError` unless every file has its recorded size and digest. Blocking."""
    refuse_links(found)
    for file in found.manifest.files:
        try:
            seen = found.place.digest(file.path)
        except (NotFoundError, DataError) as error:
            raise CheckpointError(f"the savepoint is damaged: {error}") from error
        _compare(found.place, file, seen)


def copy(found: FoundSavepoint, file: SavepointFile, target: FileTree, path: str) -> None:
    """Copy a file of a savepoint; raises `CheckpointError` if it was damaged or removed."""
    try:
        seen = found.place.copy(file.path, target, path)
    except (NotFoundError, DataError) as error:
        raise CheckpointError(f"the savepoint is damaged: {error}") from error
    _compare(found.place, file, seen)


def remove(found: FoundSavepoint) -> None:
    """Remove a savepoint: the files in its manifest, the manifest, then empty directories.

    Other files in the directory stay. Raises `CheckpointError` for a link, before anything is
    removed. Blocking; idempotent.
    """
    refuse_links(found)
    parent, name = split(found.place.address)
    storage = FileTree(parent).storage
    for file in found.manifest.files:
        storage.delete(f"{name}/{file.path}")
    for directory in {file.path.rpartition("/")[0] for file in found.manifest.files} - {""}:
        storage.prune(f"{name}/{directory}")
    storage.delete(f"{name}/{MANIFEST}")
    storage.prune(name)


def _compare(place: FileTree, file: SavepointFile, seen: tuple[str, int]) -> None:
    if seen[1] != file.size:
        raise CheckpointError(
            f"the savepoint is damaged: {place.address}/{file.path} has {seen[1]} bytes, and had "
            f"{file.size} when it was written"
        )
    if seen[0] != file.digest:
        raise CheckpointError(
            f"the savepoint is damaged: {place.address}/{file.path} was altered since it was "
            "written"
        )


def refuse_links(found: FoundSavepoint) -> None:
    """Raise `CheckpointError` if a savepoint's directory is a link or contains one.

    Only files and directories are written to a savepoint, so a link is foreign.
    """
    parent, name = split(found.place.address)
    storage = FileTree(parent).storage
    if not isinstance(storage, LocalStorage):
        return
    try:
        for path in (MANIFEST, *(file.path for file in found.manifest.files)):
            removal.refuse_links(storage.root, f"{name}/{path}")
    except (OSError, StorageError) as error:
        raise CheckpointError(f"the savepoint cannot be used: {error}") from error


def _is_through(write: Checkpoint) -> bool:
    try:
        return note_of(write).state in {WriteState.PUBLISHED, WriteState.DONE}
    except msgspec.MsgspecError:
        return False


def _refuse_paths_outside(place: FileTree, manifest: Manifest) -> None:
    """Raise `CorruptDataError` for paths or writes that no manifest of ours contains.

    A crafted manifest could have foreign files removed: when the savepoint is disposed of, or
    later by the job that starts from it.
    """
    paths = [file.path for file in manifest.files]
    paths += [one.location for one in manifest.checkpoints if one.kind is not CheckpointKind.WRITE]
    for path in paths:
        root, *below = path.split("/")
        if root not in ROOTS or not below or {"", ".", ".."} & set(below) or "\0" in path:
            raise CorruptDataError(
                f"{place.address}/{MANIFEST}: names {path!r}, which is not in the savepoint: its "
                f"files lie below {' and '.join(ROOTS)}"
            )
    for one in manifest.checkpoints:
        if one.kind is CheckpointKind.WRITE and not _is_through(one):
            raise CorruptDataError(
                f"{place.address}/{MANIFEST}: names the write {one.name!r} that is under way, "
                "which no savepoint holds"
            )
