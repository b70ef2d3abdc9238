"""Writing a savepoint's files, and laying them out for the job that begins with them. Blocking.

A job's recorded data lies below two directories: its checkpoints, and the tables that it hands to
other jobs. A savepoint has a directory for each, and its locations are relative to the savepoint.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from understudy.core import savepoints as parts
from understudy.errors import CheckpointError, NotFoundError
from understudy.ha import savepoints
from understudy.ha.format import digest
from understudy.ha.savepoints import MANIFEST, FoundSavepoint, Manifest, SavepointFile, manifests
from understudy.ha.transfer import FileTree
from understudy.model import Checkpoint, CheckpointKind
from understudy.spark.urls import address_of

STREAMING = "checkpoints/streaming"
"""A query's location follows from its name: it is the same in every job with the savepoint."""

TAKEN_OVER = "from-savepoint"
"""Directory of a job's other restored files, in which none of its attempts writes."""


class HaltError(Exception):
    """The savepoint is no longer wanted."""


class UnderWayError(CheckpointError):
    """A write of the job is under way: a later try finds its outcome recorded."""


@dataclass(frozen=True)
class Directories:
    """The directories of a job's recorded data."""

    storage: str
    """The storage's URL."""
    checkpoints: str
    """A path of the storage, or an absolute path or URL."""
    tables: str

    @property
    def _roots(self) -> dict[str, str]:
        return {"checkpoints": self.checkpoints, "tables": self.tables}

    def relative(self, checkpoint: Checkpoint) -> str:
        """Return a checkpoint's path in a savepoint; raises `CheckpointError`."""
        whole = address_of(self.storage, checkpoint.location)
        for name, path in self._roots.items():
            root = address_of(self.storage, path)
            if whole.startswith(f"{root}/"):
                return f"{name}{whole.removeprefix(root)}"
        raise CheckpointError(
            f"{_what(checkpoint)} is kept in {checkpoint.location}, outside of the job's own "
            "directory, and would not be part of a savepoint: use ctx.checkpoint_location"
        )

    def location(self, relative: str) -> str:
        """Return the restored location of a path in the savepoint, as a path of the storage."""
        root, _, path = relative.partition("/")
        if root == "checkpoints" and not f"{relative}/".startswith(f"{STREAMING}/"):
            path = f"{TAKEN_OVER}/{path}"
        return f"{self._roots[root]}/{path}"

    def place(self, root: str) -> FileTree:
        """Return the place of ``checkpoints`` or ``tables``."""
        return FileTree(address_of(self.storage, self._roots[root]))


# --- taking a savepoint ---------------------------------------------------------------------------


def located(
    checkpoints: Sequence[Checkpoint], directories: Directories
) -> list[tuple[Checkpoint, str]]:
    """Return each checkpoint with its path in a savepoint; raises `CheckpointError`.

    The path is empty for a write: its rows lie in a table of the user's.
    """
    return [
        (one, "" if one.kind is CheckpointKind.WRITE else directories.relative(one))
        for one in checkpoints
    ]


def write(
    checkpoints: Sequence[Checkpoint],
    directories: Directories,
    about: Manifest,
    address: str,
    halt: threading.Event,
) -> tuple[str, int]:
    """Copy the checkpoints' files, then publish the manifest; return its digest and total bytes.

    Raises `CheckpointError`, `UnderWayError` where a later try may succeed, `NotFoundError` for a
    file that vanished (the record may be newer by now), `HaltError` and ``OSError``.
    """
    wanted = [  # All checkpoints are checked before anything is copied.
        (one, relative)
        for one, relative in located(checkpoints, directories)
        if relative or _is_published(one)
    ]
    target = FileTree(address)
    kept: list[Checkpoint] = []
    urls: list[int] = []
    files: dict[str, SavepointFile] = {}
    for checkpoint, relative in wanted:
        if not relative:
            kept.append(checkpoint)
            continue
        root, _, path = relative.partition("/")
        source = directories.place(root)
        for name in _chosen(checkpoint, source, path):
            if halt.is_set():
                raise HaltError
            copied = f"{root}/{name}"
            copied_digest, size = source.copy(name, target, copied)
            files[copied] = SavepointFile(path=copied, digest=copied_digest, size=size)
        kept.append(replace(checkpoint, location=relative))
        if checkpoint.location.startswith("/") or "://" in checkpoint.location:
            urls.append(checkpoint.number)
    manifest = replace(
        about, checkpoints=tuple(kept), urls=tuple(urls), files=tuple(files.values())
    )
    data = manifests.dump(manifest, pretty=True)
    if halt.is_set():
        raise HaltError
    target.storage.publish(MANIFEST, data)
    return digest(data), sum(file.size for file in files.values()) + len(data)


def _chosen(checkpoint: Checkpoint, source: FileTree, path: str) -> Iterator[str]:
    """Return the files of a checkpoint, as paths in their place."""
    found = source.files(path)
    if not found:
        raise NotFoundError(f"{source.address}/{path}: {_what(checkpoint)} is not there")
    if checkpoint.kind is not CheckpointKind.BATCH:
        yield from found
        return
    names = [name.removeprefix(f"{path}/") for name in found]
    last = parts.committed(names)
    if last < checkpoint.batch_id:
        raise CheckpointError(
            f"{source.address}/{path}: {_what(checkpoint)} is recorded with batch "
            f"{checkpoint.batch_id}, but batch {last} is the last that lies there"
        )
    for name in parts.needed(names, last):
        yield f"{path}/{name}"


def _is_published(write: Checkpoint) -> bool:
    """Return whether a write is published; False where its target cannot have any of it yet.

    Raises `UnderWayError` where only the files beside the target show the outcome: those are
    removed with the job, and another job would write the rows twice, or not at all.
    """
    note = msgspec.json.decode(write.note) or {}
    if note.get("state") == "prepared":
        raise UnderWayError(f"the job's write to {note.get('target') or write.name} was under way")
    return bool(note.get("state") != "staging")


def _what(checkpoint: Checkpoint) -> str:
    match checkpoint.kind:
        case CheckpointKind.BATCH:
            return f"the streaming query {checkpoint.name!r}"
        case CheckpointKind.STATE:
            return f"the state of checkpoint {checkpoint.number}"
    return f"the table {checkpoint.name!r}"


# --- beginning with a savepoint -------------------------------------------------------------------


def lay_out(found: FoundSavepoint, directories: Directories) -> tuple[Checkpoint, ...]:
    """Copy a savepoint's files to the job's directories; return the checkpoints with new locations.

    May be repeated as long as no attempt has begun. Raises `CheckpointError`, or ``OSError``.
    """
    manifest = found.manifest
    savepoints.refuse_links(found)
    places = {root: directories.place(root) for root in savepoints.ROOTS}
    for file in manifest.files:
        root = file.path.partition("/")[0]
        path = _below(directories, root, file.path)
        savepoints.copy(found, file, places[root], path)
    return tuple(_moved(one, manifest, directories) for one in manifest.checkpoints)


def _below(directories: Directories, root: str, path: str) -> str:
    base = directories.checkpoints if root == "checkpoints" else directories.tables
    return directories.location(path).removeprefix(f"{base}/")


def _moved(one: Checkpoint, manifest: Manifest, directories: Directories) -> Checkpoint:
    """Return the restored checkpoint, of attempt 0: no attempt of this job has taken it."""
    if one.kind is CheckpointKind.WRITE:
        return replace(one, attempt=0)
    location = directories.location(one.location)
    if one.number in manifest.urls:
        location = address_of(directories.storage, location)
    return replace(one, attempt=0, location=location)
