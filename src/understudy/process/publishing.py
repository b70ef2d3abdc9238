"""Publishing files so that they are in their target once and whole, even after kills.

An attempt works in an *area*: a hidden directory beside the target, which Spark's readers ignore.
The area contains

    rows/        the files that Spark wrote, with a manifest once they are complete
    next-1/      the next target: hard links to the files of the target, and to the rows
    next-1.json  the target's contents when they were linked: written last before the swap

The swap is one system call: it exchanges ``next-1`` and the target, or renames ``next-1`` to the
target if that is absent. A file in ``next-1`` named after job and write, the *token*, moves with
it. So ``next-1.json`` without a token in ``next-1`` means that the swap has happened, as long as
the area exists, whatever happens to the target. A token left in a target has no meaning and
disappears with the next write.

- A killed attempt: the next one renames the area to a new name, and reads the progress from it.
- A zombie attempt: all its steps use the area's old name, so none succeeds any more.
- Other writers to the target: a comparison of the old target with the linked files shows what they
  changed between linking and swap; another swap carries their changes over. Our publishers take
  turns (a lock on the parent directory), so that this is seldom needed; a stopped publisher delays
  others by `disk.TURN_S` at most.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from understudy.errors import CheckpointError, CorruptDataError
from understudy.ha.format import digest
from understudy.model import Record
from understudy.process.disk import Disk, Listing, NotSupported, is_passing, listing

MARK = ".understudy-token-"
ROWS = "rows"
MANIFEST = "rows.json"
_ID_DIGITS = 12


class Mode(enum.Enum):
    """How to treat the existing contents of the target, in Spark's words."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    PARTITIONS = "overwrite partitions"
    """Spark's dynamic partition overwrite: only directories with new rows are replaced."""
    IGNORE = "ignore"
    ERROR = "errorifexists"


class Linked(Record, frozen=True):
    """The contents of ``next-N.json``."""

    keeps: bool
    """Whether the target's files were linked, so that concurrent changes must be kept."""
    files: dict[str, int]
    directories: list[str]


@dataclass(frozen=True)
class _Change:
    """Files and directories to add to the target, and files to remove."""

    files: Mapping[str, Path]
    directories: frozenset[str]
    removed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.files or self.directories or self.removed)


def area_of(target: Path, job_id: str, attempt: int, write: str) -> Path:
    """Return an attempt's area for one write: a hidden sibling of the target."""
    part = digest(write.encode()).removeprefix("sha256:")[:_ID_DIGITS]
    # A name has at most 255 bytes.
    base = os.fsencode(target.name)[:150].decode(errors="ignore")
    return target.parent / f".{base}.understudy-{job_id[:_ID_DIGITS]}-{attempt}-{part}"


def is_area_of(path: Path, job_id: str) -> bool:
    """Return whether a directory has the name of an area of this job."""
    return path.name.startswith(".") and f".understudy-{job_id[:_ID_DIGITS]}-" in path.name


def leftovers(target: Path, job_id: str, attempt: int) -> list[Path]:
    """Return the areas of earlier attempts of this job beside this target."""
    head, _, _ = area_of(target, job_id, 0, "").name.rpartition("-0-")
    found = []
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(target.parent):
            number, _, _ = entry.name.removeprefix(f"{head}-").partition("-")
            if entry.name.startswith(f"{head}-") and number.isdigit() and int(number) < attempt:
                found.append(Path(entry.path))
    return found


def areas_like(area: Path) -> list[Path]:
    """Return the areas of all attempts of the same job for the same write."""
    before, _, part = area.name.rpartition("-")
    head, _, _ = before.rpartition("-")
    with contextlib.suppress(FileNotFoundError):
        return [
            Path(entry.path)
            for entry in os.scandir(area.parent)
            if entry.name.startswith(f"{head}-") and entry.name.endswith(f"-{part}")
        ]
    return []


class Area:
    """One attempt's work on one write, from Spark's files to the target."""

    def __init__(self, path: Path, target: Path, disk: Disk | None = None) -> None:
        self.path = path
        self.target = target
        self.rows = path / ROWS
        self.size = 0
        """Bytes of the rows, once they are sealed."""
        self._disk = disk or Disk()

    def begin(self, mode: Mode) -> None:
        """Create an empty area, and the target's missing parent directories.

        Raises `CheckpointError` for a file system that cannot publish.
        """
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self.discard()
            self._disk.make(self.path)
        except OSError as error:
            if is_passing(error):
                raise
            raise CheckpointError(
                f"nothing can be written beside {self.target}, where rows are prepared before they "
                f"are swapped in: {error.strerror}: {error.filename}"
            ) from error
        if self.target.exists():
            try:
                self._try_out(mode)
            except BaseException:
                self.discard()
                raise

    def check(self, mode: Mode) -> None:
        """Raise `CheckpointError` for a target that cannot be published to."""
        target = self.target
        if mode is Mode.ERROR and target.exists():
            raise self._exists()
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            raise CheckpointError(f"{target} is not a directory: rows are written into directories")
        for name, what in _OTHERS.items():
            if (target / name).exists():
                raise CheckpointError(
                    f"{target} holds {name}: it is {what}, and plain files would not be seen "
                    "there; choose another directory"
                )
        if os.path.ismount(target):
            raise CheckpointError(
                f"{target} is a mount point and cannot be swapped: write to a directory below it"
            )

    def _try_out(self, mode: Mode) -> None:
        """Try to swap two directories, and to link a file of each owner of the target's files."""
        disk = self._disk
        one, other = self.path / "try-1", self.path / "try-2"
        disk.make(one)
        disk.make(other)
        try:
            disk.exchange(one, other)
            if mode not in {Mode.APPEND, Mode.PARTITIONS}:
                return
            found = listing(self.target)
            for number, name in enumerate(_one_of_each_owner(self.target, found)):
                with contextlib.suppress(FileNotFoundError):
                    disk.link(self.target / name, one / str(number))
        except NotSupported as error:
            raise CheckpointError(
                f"{self.target} exists, and its file system cannot swap two directories in one "
                f"step ({error.strerror}): readers would see half of the write; write to a new "
                "directory, to a local file system (ext4, XFS, Btrfs), or to a Delta table"
            ) from error
        except PermissionError as error:
            raise CheckpointError(
                f"{error.filename}: cannot be linked ({error.strerror}), so nothing can be added "
                "to the directory in one step: run as the owner of its files, or write elsewhere"
            ) from error

    def seal(self) -> str:
        """Make Spark's files durable; return the digest of their manifest.

        The manifest lists names and sizes, which suffice as Spark never reuses a name.
        """
        sizes = self._sizes()
        self.size = sum(sizes.values())
        for name in sizes:
            self._disk.sync(self.rows / name)
        for name in sorted(listing(self.rows).directories):
            self._disk.sync(self.rows / name)
        self._disk.sync(self.rows)
        data = json.dumps(sizes, sort_keys=True).encode()
        self._disk.remove(self.path / MANIFEST)
        self._disk.write(self.path / MANIFEST, data)
        self._disk.sync(self.path)
        return digest(data)

    def is_whole(self, manifest: str) -> bool:
        """Return whether the rows are complete and match the sealed manifest."""
        try:
            data = (self.path / MANIFEST).read_bytes()
            sizes: dict[str, int] = json.loads(data)
            return digest(data) == manifest and sizes == self._sizes()
        except (FileNotFoundError, ValueError):
            return False

    def take_over(self, earlier: Iterable[Path]) -> bool:
        """Rename an earlier attempt's area to this area's name; return False if there is none.

        From then on the earlier attempt cannot change the target, even if it lives.
        """
        for path in earlier:
            if path == self.path:
                if path.is_dir():
                    return True
                continue
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(path, self.path)
                return True
        return False

    def is_published(self) -> bool:
        """Return whether the rows are in the target."""
        return bool(self._swaps())

    def publish(self, mode: Mode) -> bool:
        """Bring the rows into the target once; return False if `Mode.IGNORE` leaves the target.

        Continues an interrupted publish, and carries over concurrent changes of others. Raises
        `CheckpointError` if `Mode.ERROR` finds a target, or another attempt has taken over;
        ``OSError`` if the file system fails.
        """
        try:
            with self._disk.turn(self.target.parent):
                for name in self._builds():
                    self._discard(name)
                if swaps := self._swaps():
                    for number in swaps:
                        self._disk.remove(self.target / self._token(f"next-{number}"))
                    change, mode = self._changes_of_others(), Mode.APPEND
                else:
                    change = self._rows()
                    self._refuse_same_names(change, mode)
                while change:
                    if not self._swap(change, mode):
                        return False
                    change, mode = self._changes_of_others(), Mode.APPEND
        except FileNotFoundError as error:
            if self.path.exists():
                raise
            raise CheckpointError(
                f"{self.path} is gone: another attempt of the job continues this write"
            ) from error
        return True

    def remove(self) -> None:
        """Remove the area; files that others added just before the swap are carried over first."""
        if self.path.exists() and not self.path.is_symlink() and self._swaps():
            with self._disk.turn(self.target.parent):
                change = self._changes_of_others(only_new=True)
                while change:
                    self._swap(change, Mode.APPEND)
                    change = self._changes_of_others()
        self.discard()

    def discard(self) -> None:
        """Remove the area at any stage; the target stays unchanged."""
        # By names, not by an open directory: an attempt that was stopped here must not continue in
        # an area that the next attempt has renamed.
        if self.path.is_symlink():
            self._disk.remove(self.path)  # The link's target was never an area.
        elif self.path.exists():
            with contextlib.suppress(FileNotFoundError):  # The owner removes it now.
                for name in self._builds():
                    self._discard(name)
            self._disk.remove_tree(self.path)

    def _refuse_same_names(self, change: _Change, mode: Mode) -> None:
        before = self._of_target() if mode in {Mode.APPEND, Mode.PARTITIONS} else None
        same = before.files.keys() & change.files.keys() if before else frozenset()
        for name in same:
            if not PurePosixPath(name).name.startswith((".", "_")):
                raise CheckpointError(
                    f"{self.target} holds a file {name} already, and the new one would replace it: "
                    "this format does not give its files names of their own; write elsewhere"
                )

    def _sizes(self) -> dict[str, int]:
        return {
            name: (self.rows / name).lstat().st_size
            for name in listing(self.rows).files
            if not name.startswith("_temporary/")
        }

    def _rows(self) -> _Change:
        try:
            sizes: dict[str, int] = json.loads((self.path / MANIFEST).read_bytes())
        except ValueError as error:
            raise CorruptDataError(f"{self.path / MANIFEST}: {error}") from error
        return _Change({name: self.rows / name for name in sizes}, frozenset([""]))

    def _swap(self, change: _Change, mode: Mode) -> bool:
        """Build the next target and swap it in; return False if `Mode.IGNORE` finds a target."""
        while True:
            before = self._of_target()
            if before and mode is Mode.IGNORE:
                return False
            if before and mode is Mode.ERROR:
                raise self._exists()
            name = f"next-{1 + max(self._numbers(), default=0)}"
            built = self._build(name, change, mode, before)
            try:
                if before:
                    self._disk.exchange(built, self.target)
                else:
                    self._disk.place(built, self.target)
            except (FileNotFoundError, FileExistsError, NotADirectoryError):
                if not built.exists():
                    raise
                self._discard(name)  # The target was created or removed meanwhile.
                continue
            self._disk.sync(self.target.parent)
            self._disk.remove(self.target / self._token(name))
            return True

    def _exists(self) -> CheckpointError:
        return CheckpointError(
            f"{self.target} exists already: choose mode='append' or 'overwrite', or another path"
        )

    def _build(self, name: str, change: _Change, mode: Mode, before: Listing | None) -> Path:
        built = self.path / name
        self._disk.make(built)
        self._disk.write(built / self._token(name), b"")
        kept = _kept(before, change, mode) if before else Listing({}, frozenset())
        directories = kept.directories | change.directories - {""}
        for path in (*kept.files, *change.files):
            directories |= {str(above) for above in PurePosixPath(path).parents} - {"."}
        for path in sorted(directories):
            self._disk.make(built / path)
        for path in kept.files:
            with contextlib.suppress(FileNotFoundError):  # The later comparison finds it.
                self._disk.link(self.target / path, built / path)
        for path, source in change.files.items():
            self._disk.link(source, built / path)
        for path in ("", *sorted(directories)):
            self._like(path, built)
            self._disk.sync(built / path)
        linked = Linked(
            keeps=mode in {Mode.APPEND, Mode.PARTITIONS},
            files=before.files if before else {},
            directories=sorted(before.directories) if before else [],
        )
        self._disk.write(self.path / f"{name}.json", msgspec.json.encode(linked))
        self._disk.sync(self.path)
        return built

    def _like(self, path: str, built: Path) -> None:
        """Copy a new directory's attributes from the target's directory, or else from Spark's."""
        for like in (self.target / path, self.rows / path, self.rows):
            with contextlib.suppress(FileNotFoundError):
                self._disk.like(like, built / path)
                return

    def _changes_of_others(self, *, only_new: bool = False) -> _Change:
        """Return how the old target after the last swap differs from the linked files."""
        nothing = _Change({}, frozenset())
        name = f"next-{max(self._swaps())}"
        linked = msgspec.json.decode((self.path / f"{name}.json").read_bytes(), type=Linked)
        if not linked.keeps:
            return nothing
        brought = self.path / name
        try:
            found = listing(brought, MARK)
        except FileNotFoundError:  # There was no old target.
            return nothing
        files = {
            path: brought / path
            for path, inode in found.files.items()
            if linked.files.get(path) != inode
        }
        removed = frozenset() if only_new else frozenset(linked.files) - frozenset(found.files)
        return _Change(files, found.directories - frozenset(linked.directories), removed)

    def _of_target(self) -> Listing | None:
        try:
            return listing(self.target, MARK)
        except FileNotFoundError:
            return None

    def _numbers(self) -> list[int]:
        names = (entry.name.removesuffix(".json") for entry in os.scandir(self.path))
        return [int(name[5:]) for name in names if name.startswith("next-")]

    def _swaps(self) -> list[int]:
        """Return the numbers of the swaps that have happened."""
        return [number for number in self._recorded() if not self._is_build(f"next-{number}")]

    def _builds(self) -> list[str]:
        """Return the builds, complete or not, that were not swapped in."""
        recorded = set(self._recorded())
        names = {f"next-{number}": number for number in self._numbers()}
        return [
            name for name, number in names.items() if number not in recorded or self._is_build(name)
        ]

    def _recorded(self) -> list[int]:
        return [
            number for number in self._numbers() if (self.path / f"next-{number}.json").exists()
        ]

    def _is_build(self, name: str) -> bool:
        return (self.path / name / self._token(name)).exists()

    def _discard(self, name: str) -> None:
        # The record goes first: with a record but no token the build would count as swapped.
        self._disk.remove(self.path / f"{name}.json")
        self._disk.remove_tree(self.path / name)

    def _token(self, name: str) -> str:
        """Return a name that is unique to this write and swap."""
        job, _, write = self.path.name.rpartition(".understudy-")[2].split("-")
        return f"{MARK}{job}-{write}-{name}"


_OTHERS = {
    "_delta_log": "a Delta table",
    "_spark_metadata": "the output of a streaming query",
}
"""Entries of directories whose readers follow a log, not the directory's files."""


def _kept(before: Listing, change: _Change, mode: Mode) -> Listing:
    """Return the part of the old target that the new one keeps."""
    if mode is Mode.OVERWRITE:
        return Listing({}, frozenset())
    replaced = {_parent(name) for name in change.files} - {""} if mode is Mode.PARTITIONS else set()
    gone = change.removed | frozenset(change.files)
    files = {
        name: inode
        for name, inode in before.files.items()
        if name not in gone and _parent(name) not in replaced
    }
    return Listing(files, before.directories)


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _one_of_each_owner(directory: Path, found: Listing) -> list[str]:
    """Return one file per owner and mode: these decide whether the kernel lets us link a file."""
    names: dict[tuple[int, int], str] = {}
    for name in found.files:
        with contextlib.suppress(FileNotFoundError):
            status = (directory / name).lstat()
            names.setdefault((status.st_uid, status.st_mode), name)
    return list(names.values())
