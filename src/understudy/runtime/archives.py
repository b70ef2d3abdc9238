"""Archives that a person brings: looked at before anything starts, unpacked only in their place.

Wheels are unpacked by us, into the code directory; what ``--archives`` names is unpacked by Spark.
Either is refused when a member would come to lie elsewhere.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from understudy.errors import UsageError

ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar", ".jar")
"""What Spark unpacks."""

Member = tuple[str, str]
"""Its path, and where it points to if it is a link."""

_UNREADABLE = (OSError, zipfile.BadZipFile, tarfile.TarError, EOFError, ValueError)


def check_wheel(path: Path) -> None:
    """Raise `UsageError` unless this Python can use the wheel from where it is unpacked."""
    try:
        *_, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise UsageError(f"--py-files {path}: {path.name} is not a wheel's name") from error
    if tags.isdisjoint(sys_tags()):
        built = ", ".join(sorted(str(tag) for tag in tags))
        raise UsageError(
            f"--py-files {path}: was built for {built}, which the Python of this machine cannot "
            "use: bring a wheel for this platform, or a pure one (py3-none-any)"
        )
    check_members("py-files", path)


def check_archive(flag: str, path: Path, alias: str) -> None:
    """Raise `UsageError` unless Spark can unpack the archive under its alias."""
    if not path.name.endswith(ARCHIVES) or not path.is_file():
        expected = f"{', '.join(ARCHIVES[:-2])}, {ARCHIVES[-2]} or {ARCHIVES[-1]}"
        raise UsageError(f"--{flag} {path}: expected {expected}")
    if alias and (Path(alias).name != alias or alias in {".", ".."}):
        raise UsageError(f"--{flag} {path}#{alias}: {alias!r} is no name for a directory")
    check_members(flag, path)


def check_members(flag: str, path: Path) -> None:
    """Raise `UsageError` if the archive cannot be read, or reaches out of its place."""
    try:
        stray = _stray(_members(path))
    except _UNREADABLE as error:
        raise UsageError(f"--{flag} {path}: is no archive that can be read: {error}") from error
    if stray is not None:
        raise UsageError(f"--{flag} {path}: {stray!r} in it would be unpacked outside its place")


def unpack_wheel(body: bytes, target: Path) -> None:
    """Unpack a wheel as an installer would, but for its scripts; raises `UsageError`."""
    with zipfile.ZipFile(io.BytesIO(body)) as wheel:
        stray = _stray((name, "") for name in wheel.namelist())
        if stray is not None:
            raise UsageError(f"{target.name}: {stray!r} would be unpacked outside its place")
        for info in wheel.infolist():
            place = _place_in_wheel(info.filename)
            if place and not info.is_dir():
                path = target / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(wheel.read(info))


def _place_in_wheel(name: str) -> str:
    """Return where a wheel's member belongs; empty for what is not to be imported."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data"):
        return name
    kind, _, inner = rest.partition("/")
    return inner if kind in {"purelib", "platlib"} else ""


def _members(path: Path) -> Iterator[Member]:
    with path.open("rb") as file:
        yield from _members_of(file, path.name)


def _members_of(file: BinaryIO, name: str) -> Iterator[Member]:
    if name.endswith((".tar", ".tgz", ".tar.gz")):
        with tarfile.open(fileobj=file) as packed:
            for info in packed:
                if info.islnk():
                    yield info.linkname, ""  # A hard link names another member.
                yield info.name, info.linkname if info.issym() else ""
    else:
        with zipfile.ZipFile(file) as zipped:
            for member in zipped.namelist():
                yield member, ""


def _stray(members: Iterable[Member]) -> str | None:
    """Return the first member that would lie elsewhere, by its own path or through a link."""
    outward: set[str] = set()
    for name, link in members:
        path = posixpath.normpath(name.replace("\\", "/"))
        if _leaves(path) or any(path.startswith(f"{way}/") for way in outward):
            return name
        if link and _leaves(posixpath.normpath(posixpath.join(posixpath.dirname(path), link))):
            outward.add(path)
    return None


def _leaves(path: str) -> bool:
    return path == ".." or path.startswith(("/", "../"))
