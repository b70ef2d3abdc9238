"""Savepoints as they lie in a directory: files, and a manifest that makes them one.

``<directory>/savepoint-<job>-<trigger>/_metadata`` is written last and names every other file with
its size and digest, by relative paths: the directory can be moved or copied as it is, and without
its manifest it is no savepoint.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from understudy.core.writes import WriteState, note_of
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
from understudy.ha.transfer import Place, split
from understudy.model import Checkpoint, CheckpointKind, Record

MANIFEST = "_metadata"
"""Flink's name."""

ROOTS = ("checkpoints", "tables")
"""Below them lies all that a savepoint holds besides its manifest."""


class SavepointFile(Record, frozen=True):
    """One file of a savepoint."""

    path: str
    """Relative to the savepoint's directory."""
    digest: str
    size: int


class Manifest(Record, frozen=True):
    """What a savepoint is of, and all that belongs to it."""

    job_name: str
    job_id: str
    application_name: str
    application_id: str
    run_id: str
    cluster_id: str
    counter: int
    """The last number that the job had given to a checkpoint."""
    checkpoints: tuple[Checkpoint, ...]
    """What the job goes on from; where a location is relative, it is of this directory."""
    urls: tuple[int, ...] = ()
    """The numbers of those that were recorded with a whole address."""
    files: tuple[SavepointFile, ...] = ()
    taken_at: float = 0.0
    versions: tuple[tuple[str, str], ...] = ()
    """Of what has written it, and of what the files are for."""


manifests: Format[Manifest] = Format("savepoint", Manifest)


class Found(NamedTuple):
    """A savepoint that was read."""

    place: Place
    manifest: Manifest
    digest: str
    """Of the manifest's bytes."""


def address(path: str) -> str:
    """Return a savepoint's directory, also for the path of its manifest, as Flink takes it."""
    return path.rstrip("/").removesuffix(f"/{MANIFEST}")


def read(path: str) -> Found:
    """Return a savepoint's manifest; its files are not looked at.

    Raises `CheckpointError` for what is no savepoint or cannot be read as one. Blocking.
    """
    place = Place(address(path))
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
    return Found(place, manifest, digest(data))


def check(found: Found) -> None:
    """Raise `CheckpointError` unless every file is there as it was written. Blocking."""
    refuse_links(found)
    for file in found.manifest.files:
        try:
            seen = found.place.digest(file.path)
        except (NotFoundError, DataError) as error:
            raise CheckpointError(f"the savepoint is damaged: {error}") from error
        _compare(found.place, file, seen)


def copy(found: Found, file: SavepointFile, target: Place, path: str) -> None:
    """Copy one file of a savepoint; raises `CheckpointError` where it is not as it was written."""
    try:
        seen = found.place.copy(file.path, target, path)
    except (NotFoundError, DataError) as error:
        raise CheckpointError(f"the savepoint is damaged: {error}") from error
    _compare(found.place, file, seen)


def remove(found: Found) -> None:
    """Remove a savepoint: what its manifest names, then the manifest, then what is empty.

    Whatever else lies in the directory stays, and what a link there points to. Raises
    `CheckpointError` for such a link, before anything is removed. Blocking; may be repeated.
    """
    refuse_links(found)
    parent, name = split(found.place.address)
    storage = Place(parent).storage
    for file in found.manifest.files:
        storage.delete(f"{name}/{file.path}")
    for directory in {file.path.rpartition("/")[0] for file in found.manifest.files} - {""}:
        storage.prune(f"{name}/{directory}")
    storage.delete(f"{name}/{MANIFEST}")
    storage.prune(name)


def _compare(place: Place, file: SavepointFile, seen: tuple[str, int]) -> None:
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


def refuse_links(found: Found) -> None:
    """Raise `CheckpointError` where a link leads out of a savepoint, or to it.

    What is written to a savepoint are files and directories; a link came from somebody else.
    """
    parent, name = split(found.place.address)
    storage = Place(parent).storage
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


def _refuse_paths_outside(place: Place, manifest: Manifest) -> None:
    """Raise `CorruptDataError` for what no savepoint says that was written here.

    Whoever crafts a manifest would have files removed that are not of a savepoint: when it is
    disposed of, or later, by the job that begins with it.
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
