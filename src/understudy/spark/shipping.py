"""Ships the application's modules to executors, which share no directory with their driver."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyspark import SparkContext

from understudy.spark.addresses import is_local

_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The earliest time in a zip file; a constant, so that equal contents make equal archives."""

_READABLE = 0o644 << 16
_SKIPPED = "__pycache__"


def ship_code(context: SparkContext, python_path: Sequence[str], scratch: Path) -> None:
    """Make the modules of a Python path importable on the executors of a context.

    Executors unpack the archive, so that packages find their data files; a zip file on the path is
    imported as such. Call right after the start of the context: an executor gets the archive with
    its first task. The archive is in ``scratch``, built once for the same content. With a local
    master there is nothing to do: Python workers inherit the path.
    """
    if is_local(context.master or ""):
        return
    archive = pack(python_path, scratch)
    if archive is None:
        return
    context.addArchive(f"{archive.as_uri()}#{archive.stem}")
    # A worker prepends each entry to its path, so the last one comes first.
    includes = context._python_includes
    assert includes is not None
    includes.extend(f"{archive.stem}/{place}" for _, place in reversed(_places(python_path)))


def pack(python_path: Sequence[str], scratch: Path) -> Path | None:
    """Pack the files of a Python path into an archive named by its content; None if empty."""
    members = [*_members(python_path)]
    if not members:
        return None
    found = hashlib.sha256()
    for path, name in members:
        body = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{name}\0{body}\0".encode())
    target = scratch / f"understudy-{found.hexdigest()[:16]}.zip"
    if not target.exists():
        draft = target.with_suffix(".draft")
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, name in members:
                info = zipfile.ZipInfo(name, _LONG_AGO)
                info.external_attr = _READABLE
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, path.read_bytes())
        draft.replace(target)
    return target


def _places(python_path: Sequence[str]) -> list[tuple[Path, str]]:
    """Return the entries of a Python path, each with its directory in the archive."""
    entries = [Path(entry) for entry in python_path if entry]
    return [(entry, f"{number}/{entry.name}") for number, entry in enumerate(entries)]


def _members(python_path: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield each file and its path in the archive; nested entries are packed separately."""
    places = _places(python_path)
    entries = {entry for entry, _ in places}
    for entry, place in places:
        if entry.is_file():
            yield entry, place
        for directory, names, files in os.walk(entry):
            here = Path(directory)
            names[:] = sorted(
                name for name in names if name != _SKIPPED and here / name not in entries
            )
            for name in sorted(files):
                if (path := here / name) not in entries:
                    yield path, f"{place}/{path.relative_to(entry).as_posix()}"
