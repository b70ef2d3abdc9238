"""Checks of an archive's members: each stays below the target directory, within all limits.

The members are checked in the order of unpacking: a link from one member may be part of the next
member's path. Nothing is written here.
"""

from __future__ import annotations

import copy
import enum
import re
import stat
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Self

MEMBERS_MAX = 500_000
"""A packed environment with PySpark and its dependencies has about 50,000."""

BYTES_MAX = 64 << 30
"""Unpacked size. The largest environments and models have a few GB."""

RATIO_MAX = 200
"""Unpacked bytes per packed byte. Code has 4, text logs 20, zeros 1,000."""

RATIO_FROM_BYTES = 256 << 20
"""Below this unpacked size any ratio is harmless."""

DEPTH_MAX = 64
NAME_BYTES_MAX = 255
"""Limit for one part of a path: no file system takes more."""

LINKS_MAX = 40
"""The kernel follows as many links in one path."""

_LINK_BYTES_MAX = 4096
_PIECE_BYTES = 1 << 20
HEADER_BYTES_MAX = 1 << 20
_LONG_NAMES = {
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
}
_ENDS = (tarfile.EOFHeaderError, tarfile.EmptyHeaderError)  # type: ignore[attr-defined]
"""The end-of-archive mark, and the end of the file."""

_DRIVE = re.compile(r"[A-Za-z]:($|/)")


class MemberKind(enum.Enum):
    """The kind of a member."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"
    HARD_LINK = "hard link"
    OTHER = "device, pipe or socket"


@dataclass(frozen=True)
class ArchiveMember:
    """A member of an archive, as described in the archive."""

    name: str
    kind: MemberKind = MemberKind.FILE
    size: int = 0
    target: str = ""
    """The target of a link."""
    mode: int = 0


class RefusedMemberError(ValueError):
    """An archive must not be unpacked; the message names the member and the reason."""


def parts_of(name: str) -> list[str]:
    """Return the parts of a member's path; raises `RefusedMemberError` for a stray one."""
    path = name.replace("\\", "/")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or _DRIVE.match(path) or ".." in parts:
        raise RefusedMemberError(f"{name!r} in it would be unpacked outside its place")
    if len(parts) > DEPTH_MAX:
        raise RefusedMemberError(
            f"{name[:80]!r}… in it lies more than {DEPTH_MAX} directories deep"
        )
    if any(len(part.encode(errors="surrogateescape")) > NAME_BYTES_MAX for part in parts):
        raise RefusedMemberError(f"{name[:80]!r}… in it has a name of over {NAME_BYTES_MAX} bytes")
    return parts


@dataclass
class Look:
    """Checks the members of one archive in order."""

    packed_bytes: int
    members_max: int = MEMBERS_MAX
    bytes_max: int = BYTES_MAX
    _links: dict[tuple[str, ...], str] = field(default_factory=dict)
    _count: int = 0
    _size: int = 0

    def take(self, member: ArchiveMember) -> None:
        """Check the next member; raises `RefusedMemberError`."""
        self._count += 1
        self._size += member.size
        self._bound()
        parts = parts_of(member.name)
        if member.kind is MemberKind.OTHER:
            raise RefusedMemberError(f"{member.name!r} in it is a {member.kind.value}")
        if member.kind is not MemberKind.DIRECTORY and member.mode & (stat.S_ISUID | stat.S_ISGID):
            raise RefusedMemberError(f"{member.name!r} in it would run as another user (setuid)")
        if not parts:
            return
        if member.kind is MemberKind.HARD_LINK:
            self._resolved(parts_of(member.target), member)
        if member.kind is MemberKind.LINK:
            self._links[(*self._resolved(parts[:-1], member), parts[-1])] = member.target
        else:
            self._links.pop(self._resolved(parts, member), None)

    def _bound(self) -> None:
        if self._count > self.members_max:
            raise RefusedMemberError(f"it has more than {self.members_max:,} members")
        if self._size > self.bytes_max:
            raise RefusedMemberError(f"it would unpack to more than {self.bytes_max >> 30} GB")
        if self._size > max(RATIO_FROM_BYTES, RATIO_MAX * self.packed_bytes):
            raise RefusedMemberError(
                f"it would unpack to more than {RATIO_MAX} times its size: it is a bomb, or should "
                "be brought as plain files"
            )

    def _resolved(self, parts: list[str], member: ArchiveMember) -> tuple[str, ...]:
        """Return where a path leads by the links made so far; raises `RefusedMemberError`."""
        way: list[str] = []
        left, links = list(reversed(parts)), 0
        while left:
            part = left.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                if not way:
                    raise self._stray(member)
                way.pop()
                continue
            way.append(part)
            target = self._links.get(tuple(way))
            if target is None:
                continue
            links += 1
            target = target.replace("\\", "/")
            if target.startswith("/") or _DRIVE.match(target) or links > LINKS_MAX:
                raise self._stray(member)
            way.pop()
            left += reversed(target.split("/"))
        return tuple(way)

    def _stray(self, member: ArchiveMember) -> RefusedMemberError:
        return RefusedMemberError(
            f"{member.name!r} in it would be unpacked outside its place, through a link"
        )


def look_at(members: Iterable[ArchiveMember], packed_bytes: int) -> None:
    """Raise `RefusedMemberError` for an archive that must not be unpacked."""
    look = Look(packed_bytes)
    for member in members:
        look.take(member)


class _CheckedTarInfo(tarfile.TarInfo):
    """Limits the headers with long names and links, which tarfile reads into memory.

    Refuses damaged headers. At one that is not the first, tarfile ends as if the archive ended
    there; other programs skip it and unpack what follows.
    """

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        """Read the next header; raises `RefusedMemberError` for a damaged one."""
        try:
            return super().fromtarfile(archive)
        except _ENDS:
            raise
        except tarfile.HeaderError as error:
            if not archive.offset:
                raise  # It is no tar file, or a compressed one: tarfile goes on to find out.
            raise RefusedMemberError(
                f"its header at byte {archive.offset:,} is damaged ({error}): what follows cannot "
                "be checked"
            ) from error

    def _proc_member(self, archive: Any) -> Any:
        if self.type in _LONG_NAMES and self.size > HEADER_BYTES_MAX:
            raise RefusedMemberError(
                f"{self.name[:80]!r} in it has a header of {self.size:,} bytes"
            )
        return super()._proc_member(archive)  # type: ignore[misc]


def of_tar(file: BinaryIO) -> Iterator[ArchiveMember]:
    """Yield the members of a tar file; the caller limits the unpacking."""
    with tarfile.open(fileobj=file, tarinfo=_CheckedTarInfo) as packed:
        for info in packed:
            kind = MemberKind.OTHER
            if info.isdir():
                kind = MemberKind.DIRECTORY
            elif info.issym():
                kind = MemberKind.LINK
            elif info.islnk():
                kind = MemberKind.HARD_LINK
            elif info.isreg():
                kind = MemberKind.FILE
            size = info.size if kind is MemberKind.FILE else 0
            yield ArchiveMember(info.name, kind, size, info.linkname, info.mode)
            packed.members = []  # type: ignore[attr-defined]  # tarfile would keep them all.


def of_zip(file: BinaryIO) -> Iterator[ArchiveMember]:
    """Yield the members of a zip file, each checked to hold no more than it declares.

    zipfile never unpacks more than the declared size, but Java goes on to the end of the data.
    """
    with zipfile.ZipFile(file) as packed:
        for info in packed.infolist():
            mode = info.external_attr >> 16
            kind, target = MemberKind.FILE, ""
            if info.is_dir():
                kind = MemberKind.DIRECTORY
            elif stat.S_ISLNK(mode):
                kind = MemberKind.LINK
                with packed.open(info) as link:
                    target = link.read(_LINK_BYTES_MAX).decode(errors="surrogateescape")
            elif stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
                kind = MemberKind.OTHER
            yield ArchiveMember(info.filename, kind, info.file_size, target, mode)
            _check_size(packed, info)


def _check_size(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    """Raise `RefusedMemberError` if a member holds more than it declares, which the caller bounds.

    At most one byte more than declared is unpacked.
    """
    longer = copy.copy(info)
    longer.file_size += 1
    left = longer.file_size
    with packed.open(longer) as data:
        while left and (piece := data.read(min(left, _PIECE_BYTES))):
            left -= len(piece)
    if not left:
        raise RefusedMemberError(f"{info.filename!r} in it holds more than it declares")
