"""Archives from a person: checked before anything starts, unpacked only below their directory.

Understudy unpacks wheels into the code directory; Spark unpacks the files of ``--archives``. An
archive is refused if a member would be outside its directory, or if it is too large.

A wheel is a zip file, read by `zipfile`. The library `installer` would not help: it leaves the
check of a member's path to its caller, and has no limits.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from understudy.core.converted import module_name
from understudy.errors import UsageError
from understudy.process import archive_members as members

ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar", ".jar")
"""The archives that Spark unpacks."""

TARS = (".tar", ".tgz", ".tar.gz")

WHEEL_MEMBERS_MAX, WHEEL_BYTES_MAX = 100_000, 8 << 30
"""The largest known wheels have 15,000 files and 4 GB."""

WHEEL = ".whl"

CODE_MEMBERS_MAX, CODE_BYTES_MAX = 10_000, 64 << 20
"""An archive with a script and its modules is held in memory; anything larger is a wheel, or data.
"""

UPLOADS = (".py", ".zip", WHEEL, ".tar.gz", ".tgz")
"""What people upload."""

UPLOAD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,99}")
"""A name that is the same in a path, in a URL and in a log line."""

SOURCE_BYTES_MAX = 10 << 20
"""Larger than any module that people write; a larger member is not looked into."""

_PIECE_BYTES = 1 << 20

_UNREADABLE = (
    OSError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    RuntimeError,  # An encrypted member.
    NotImplementedError,
)


def check_wheel(path: Path) -> None:
    """Raise `UsageError` unless this Python can use the unpacked wheel."""
    check_wheel_fits(path.name, f"--py-files {path}")
    _check_wheel_members(path)


def check_wheel_fits(name: str, shown: str) -> None:
    """Raise `UsageError` unless a wheel of this name was built for this Python."""
    try:
        *_, tags = parse_wheel_filename(name)
    except InvalidWheelFilename as error:
        raise UsageError(f"{shown}: {name} is not a wheel's name") from error
    if tags.isdisjoint(sys_tags()):
        built = ", ".join(sorted(str(tag) for tag in tags))
        raise UsageError(
            f"{shown}: was built for {built}, which the Python of this machine cannot use: bring a "
            "wheel for this platform, or a pure one (py3-none-any)"
        )


def check_archive(flag: str, path: Path, alias: str) -> None:
    """Raise `UsageError` unless Spark can unpack the archive under its alias."""
    if not path.name.endswith(ARCHIVES) or not path.is_file():
        expected = f"{', '.join(ARCHIVES[:-2])}, {ARCHIVES[-2]} or {ARCHIVES[-1]}"
        raise UsageError(f"--{flag} {path}: expected {expected}")
    if alias and (Path(alias).name != alias or alias in {".", ".."}):
        raise UsageError(f"--{flag} {path}#{alias}: {alias!r} is no name for a directory")
    check_members(flag, path)


def check_members(flag: str, path: Path) -> None:
    """Raise `UsageError` if the archive is unreadable, a bomb, or leaves its directory."""
    try:
        with path.open("rb") as file:
            of = members.of_tar if path.name.endswith(TARS) else members.of_zip
            members.look_at(of(file), path.stat().st_size)
    except members.RefusedMemberError as error:
        raise UsageError(f"--{flag} {path}: {error}") from error
    except _UNREADABLE as error:
        raise UsageError(f"--{flag} {path}: is no archive that can be read: {error}") from error


def check_upload_name(name: str) -> None:
    """Raise `UsageError` for a name that an uploaded file cannot have."""
    if not UPLOAD_NAME.fullmatch(name) or not name.endswith(UPLOADS):
        raise UsageError(
            f"{name[:100]!r} is not taken: give it a name of up to 100 letters, digits, '.', '_', "
            f"'-', '+' and '!', with one of the endings {', '.join(UPLOADS)}"
        )


def check_upload(name: str, file: BinaryIO, size: int) -> None:
    """Raise `UsageError` for a file that applications cannot be submitted with, or must not.

    Whether a wheel suits the Python of an application is known once it is submitted.
    """
    check_upload_name(name)
    file.seek(0)
    try:
        if name.endswith(WHEEL):
            parse_wheel_filename(name)
            _read_wheel(file, size)
        elif name.endswith(TARS):
            members.look_at(members.of_tar(file), size)
        elif name.endswith(".zip"):
            members.look_at(members.of_zip(file), size)
    except members.RefusedMemberError as error:
        raise UsageError(f"{name}: {error}") from error
    except InvalidWheelFilename as error:
        raise UsageError(f"{name} is not a wheel's name") from error
    except _UNREADABLE as error:
        raise UsageError(f"{name} is no archive that can be read: {error}") from error


def unpack_wheel(body: bytes, target: Path) -> None:
    """Unpack a wheel as an installer would, without its scripts; raises `UsageError`.

    All members are checked before the first is written. No other process may write into the
    directory; it contains no link, as none is ever created.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as wheel:
            for info, path in _placed(wheel, len(body)):
                place = target.joinpath(*path)
                place.parent.mkdir(parents=True, exist_ok=True)
                with wheel.open(info) as packed, place.open("xb") as file:
                    shutil.copyfileobj(packed, file, _PIECE_BYTES)
    except FileExistsError as error:
        # The file system may treat two spellings of a name as the same.
        raise UsageError(
            f"{target.name}: two members of it would lie in {error.filename}"
        ) from error
    except members.RefusedMemberError as error:
        raise UsageError(f"{target.name}: {error}") from error
    except _UNREADABLE as error:
        raise UsageError(f"{target.name}: cannot be unpacked: {error}") from error


def code_in(name: str, body: bytes) -> dict[str, bytes]:
    """Return the files of an archive with a script and the modules beside it, by their paths.

    Raises `UsageError` for an archive that holds anything else, or too much.
    """
    is_tar = not body.startswith(b"PK")
    try:
        look = members.Look(len(body), CODE_MEMBERS_MAX, CODE_BYTES_MAX)
        of = members.of_tar if is_tar else members.of_zip
        for member in of(io.BytesIO(body)):
            look.take(member)
            if member.kind not in {members.MemberKind.FILE, members.MemberKind.DIRECTORY}:
                raise members.RefusedMemberError(f"{member.name!r} in it is a {member.kind.value}")
        found = [
            (members.parts_of(path), content)
            for path, content in (_tarred if is_tar else _zipped)(body)
        ]
    except members.RefusedMemberError as error:
        raise UsageError(f"{name}: {error}") from error
    except _UNREADABLE as error:
        raise UsageError(f"{name} is no archive that can be read: {error}") from error
    _refuse_shared_places(name, [parts for parts, _ in found])
    return {"/".join(parts): content for parts, content in found}


def _zipped(body: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                yield info.filename, archive.read(info)


def _tarred(body: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        for info in archive:
            if info.isreg() and (file := archive.extractfile(info)):
                yield info.name, file.read()


def _refuse_shared_places(name: str, paths: list[list[str]]) -> None:
    """Raise `UsageError` where two files would lie in one place, or one below another."""
    places = {tuple(parts) for parts in paths}
    above = {path[:length] for path in places for length in range(1, len(path))}
    if len(places) < len(paths) or places & above or () in places:
        raise UsageError(f"{name}: two members of it would lie in one place")


def unpack_code(body: bytes, target: Path) -> None:
    """Unpack an archive with a script and the modules beside it; raises `UsageError`.

    All members are checked before the first is written. No other process may write into the
    directory; it contains no link, as none is ever created.
    """
    for name, content in code_in(target.name, body).items():
        place = target.joinpath(*name.split("/"))
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as file:
            file.write(content)


def python_sources(archive: Path | BinaryIO) -> dict[str, bytes]:
    """Return the sources of an archive on Python's path by module; none of what cannot be read."""
    found = {}
    with contextlib.suppress(*_UNREADABLE), zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            name = module_name(info.filename)
            if name and info.file_size <= SOURCE_BYTES_MAX:
                found[name] = opened.read(info)
    return found


def _check_wheel_members(path: Path) -> None:
    try:
        with path.open("rb") as file:
            _read_wheel(file, path.stat().st_size)
    except members.RefusedMemberError as error:
        raise UsageError(f"--py-files {path}: {error}") from error
    except _UNREADABLE as error:
        raise UsageError(f"--py-files {path}: is no archive that can be read: {error}") from error


def _read_wheel(file: BinaryIO, size: int) -> None:
    """Read all members of a wheel; the last piece is refused where the checksum is another one."""
    with zipfile.ZipFile(file) as wheel:
        for info, _ in _placed(wheel, size):
            with wheel.open(info) as packed:
                while packed.read(_PIECE_BYTES):
                    pass


def _placed(wheel: zipfile.ZipFile, packed_bytes: int) -> list[tuple[zipfile.ZipInfo, list[str]]]:
    """Return a wheel's members to unpack, with paths; raises `members.RefusedMemberError`."""
    look = members.Look(packed_bytes, WHEEL_MEMBERS_MAX, WHEEL_BYTES_MAX)
    found: list[tuple[zipfile.ZipInfo, list[str]]] = []
    files: set[tuple[str, ...]] = set()
    directories: set[tuple[str, ...]] = set()
    for info in wheel.infolist():
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR} or "\\" in info.filename:
            raise members.RefusedMemberError(f"{info.filename!r} in it is nothing that wheels hold")
        look.take(members.ArchiveMember(info.filename, size=info.file_size))
        place = _place_in_wheel(info.filename)
        look.take(members.ArchiveMember(place))  # The final path may differ from the member's name.
        if place and not info.is_dir():
            path = tuple(members.parts_of(place))
            above = {path[:length] for length in range(1, len(path))}
            if path in files or path in directories or not files.isdisjoint(above):
                raise members.RefusedMemberError(f"two members of it would lie in {place!r}")
            files.add(path)
            directories |= above
            found.append((info, [*path]))
    return found


def _place_in_wheel(name: str) -> str:
    """Return the path of an unpacked member of a wheel; empty for one that is not importable."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data"):
        return name
    kind, _, inner = rest.partition("/")
    return inner if kind in {"purelib", "platlib"} else ""
