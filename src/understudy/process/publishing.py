"""Publishing files so that they are in their target once and whole, whenever somebody is killed.

An attempt works in an *area*: a hidden directory beside the target, which Spark's readers pass
over. In it lie

    rows/        what Spark wrote, with its manifest once it is whole
    next-1/      the target as it is to be: hard links to the files of the target, and to the rows
    next-1.json  what the target held when it was linked: written last before the swap

The swap is one system call: ``next-1`` and the target change places, or ``next-1`` becomes the
target that nobody had. A file in ``next-1`` that is called after job and write, the *token*, goes
with it: ``next-1.json`` without a token in ``next-1`` says that the swap has happened, for as long
as the area is there, whatever becomes of the target. What is left of a token in a target means
nothing, and goes with the next write.

- A killed attempt: the next one renames the area to a name of its own, and sees how far it is.
- A zombie: each of its steps names the area by its old name, so that none succeeds any more.
- Others who write into the target meanwhile: what they changed between the linking and the swap is
  seen by comparing what the swap has brought back with what was linked; it is carried over by
  another swap. Publishers of ours take turns (a lock on the directory above), so that this is
  seldom needed; one that is stopped holds up nobody for longer than `disk.TURN_S`.
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
    """What becomes of what the target holds, in Spark's words."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    PARTITIONS = "overwrite partitions"
    """Spark's dynamic partition overwrite: only directories that new rows lie in are replaced."""
    IGNORE = "ignore"
    ERROR = "errorifexists"


class Linked(Record, frozen=True):
    """What ``next-N.json`` holds."""

    keeps: bool
    """The target's files were linked, so that what others changed meanwhile is to be kept."""
    files: dict[str, int]
    directories: list[str]


@dataclass(frozen=True)
class _Change:
    """What the target is to hold besides, or no more."""

    files: Mapping[str, Path]
    directories: frozenset[str]
    removed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.files or self.directories or self.removed)


def area_of(target: Path, job_id: str, attempt: int, write: str) -> Path:
    """Return where an attempt works on one write: a hidden sibling of the target."""
    part = digest(write.encode()).removeprefix("sha256:")[:_ID_DIGITS]
    # A name has at most 255 bytes.
    base = os.fsencode(target.name)[:150].decode(errors="ignore")
    return target.parent / f".{base}.understudy-{job_id[:_ID_DIGITS]}-{attempt}-{part}"


def is_area_of(path: Path, job_id: str) -> bool:
    """Say whether a directory is called like an area of this job."""
    return path.name.startswith(".") and f".understudy-{job_id[:_ID_DIGITS]}-" in path.name


def leftovers(target: Path, job_id: str, attempt: int) -> list[Path]:
    """Return the areas that earlier attempts of this job have beside this target."""
    head, _, _ = area_of(target, job_id, 0, "").name.rpartition("-0-")
    found = []
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(target.parent):
            number, _, _ = entry.name.removeprefix(f"{head}-").partition("-")
            if entry.name.startswith(f"{head}-") and number.isdigit() and int(number) < attempt:
                found.append(Path(entry.path))
    return found


def areas_like(area: Path) -> list[Path]:
    """Return the areas that any attempts of the same job have for the same write."""
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
    """One write on its way into its target, as one attempt works on it."""

    def __init__(self, path: Path, target: Path, disk: Disk | None = None) -> None:
        self.path = path
        self.target = target
        self.rows = path / ROWS
        self.size = 0
        """Bytes of the rows, once they are sealed."""
        self._disk = disk or Disk()

    def begin(self, mode: Mode) -> None:
        """Make the area, anew; the directories above the target are made where they are missing.

        Refuses a file system that could not publish: `CheckpointError`.
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
        """Refuse a target that nothing can be published to: `CheckpointError`."""
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
        """Swap two empty directories, and link what is another's, to see whether it can be had."""
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
        """Make durable what Spark wrote; return the digest of its manifest.

        The manifest is a table of names and sizes: the names that Spark gives are used once.
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
        """Say whether the rows are those that were sealed."""
        try:
            data = (self.path / MANIFEST).read_bytes()
            sizes: dict[str, int] = json.loads(data)
            return digest(data) == manifest and sizes == self._sizes()
        except (FileNotFoundError, ValueError):
            return False

    def take_over(self, earlier: Iterable[Path]) -> bool:
        """Give an area that an earlier attempt worked in its new name; False where none is there.

        From here on the earlier attempt can do nothing to the target, if it lives.
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
        """Say whether the rows have come into the target."""
        return bool(self._swaps())

    def publish(self, mode: Mode) -> bool:
        """Bring the rows into the target, once; False where `Mode.IGNORE` leaves it as it is.

        Goes on with what is begun, and with what others changed meanwhile. Raises
        `CheckpointError` where `Mode.ERROR` finds a target, or where another attempt has taken
        over; ``OSError`` where the file system fails.
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
                f"{self.path} is gone: another attempt of the job goes on with this write"
            ) from error
        return True

    def remove(self) -> None:
        """Leave nothing behind; what others added at the very last moment is carried over."""
        if self.path.exists() and not self.path.is_symlink() and self._swaps():
            with self._disk.turn(self.target.parent):
                change = self._changes_of_others(only_new=True)
                while change:
                    self._swap(change, Mode.APPEND)
                    change = self._changes_of_others()
        self.discard()

    def discard(self) -> None:
        """Leave nothing behind, wherever it was; the target stays as it is."""
        # By its names, and not by an open directory: an attempt that was stopped in between must
        # not go on in an area that the next one has renamed.
        if self.path.is_symlink():
            self._disk.remove(self.path)  # What it points to was never an area.
        elif self.path.exists():
            with contextlib.suppress(FileNotFoundError):  # Whose it was removes it just now.
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
        """Build the target anew and swap it in; False where it is there and is to be left."""
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
                self._discard(name)  # The target came, or went, meanwhile.
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
            with contextlib.suppress(FileNotFoundError):  # The comparison will see it.
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
        """Give a new directory the mode of the one that it stands for, or of Spark's."""
        for like in (self.target / path, self.rows / path, self.rows):
            with contextlib.suppress(FileNotFoundError):
                self._disk.like(like, built / path)
                return

    def _changes_of_others(self, *, only_new: bool = False) -> _Change:
        """Return how what the last swap brought back differs from what was linked."""
        nothing = _Change({}, frozenset())
        name = f"next-{max(self._swaps())}"
        linked = msgspec.json.decode((self.path / f"{name}.json").read_bytes(), type=Linked)
        if not linked.keeps:
            return nothing
        brought = self.path / name
        try:
            found = listing(brought, MARK)
        except FileNotFoundError:  # There was no target to bring back.
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
        """Return what was built, or begun, and not swapped in."""
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
        # Without its token it would pass for swapped: what says that goes first.
        self._disk.remove(self.path / f"{name}.json")
        self._disk.remove_tree(self.path / name)

    def _token(self, name: str) -> str:
        """Return a name that no other write, and no other swap of this one, ever uses."""
        job, _, write = self.path.name.rpartition(".understudy-")[2].split("-")
        return f"{MARK}{job}-{write}-{name}"


_OTHERS = {
    "_delta_log": "a Delta table",
    "_spark_metadata": "the output of a streaming query",
}
"""What says that readers go by a log, and not by what lies in a directory."""


def _kept(before: Listing, change: _Change, mode: Mode) -> Listing:
    """Return what the new target holds of the old one."""
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
    """Return a file of each owner and mode: what the kernel lets us link depends on these."""
    names: dict[tuple[int, int], str] = {}
    for name in found.files:
        with contextlib.suppress(FileNotFoundError):
            status = (directory / name).lstat()
            names.setdefault((status.st_uid, status.st_mode), name)
    return list(names.values())
