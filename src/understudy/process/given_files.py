"""The files of ``--files``, ``--jars`` and ``--archives``, stored with the code for every host.

Each file of this host becomes an artifact, in a directory of its own so that it keeps its name. The
settings and the profile's digest stay as given. Each process starts with the `resolved` settings,
which name the copies on its host. Anything but an absolute path, such as ``hdfs://…`` or
``file:///…``, is reachable from every host and left unchanged. So are directories, which Spark does
not accept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from understudy.errors import UsageError
from understudy.model import Artifact
from understudy.process.code import SourceFile

FILE_SETTINGS = {"files": "spark.files", "jars": "spark.jars", "archives": "spark.archives"}
"""Flags whose value is a list of files, and their Spark settings."""

PYTHON_SETTINGS = ("spark.pyspark.driver.python", "spark.pyspark.python")
"""Settings that name the interpreter of drivers, the first one first."""

GIVEN_BYTES_MAX = 64 << 20
"""A larger file is not stored, as storing it needs as much memory. Most jars and tables are far
smaller; packed environments are larger, and have another way (see `check_storable`)."""


def gathered(conf: Mapping[str, str]) -> list[SourceFile]:
    """Return the files in the settings that are small enough to be stored."""
    return [
        SourceFile(path, place)
        for _, path, place in _local(conf)
        if path.stat().st_size <= GIVEN_BYTES_MAX
    ]


def check_storable(conf: Mapping[str, str]) -> None:
    """Raise `UsageError` for a file too large to be stored for other hosts."""
    for flag, path, _ in _local(conf):
        if path.stat().st_size > GIVEN_BYTES_MAX:
            raise UsageError(
                f"--{flag} {path}: takes more than the {GIVEN_BYTES_MAX >> 20} MB that are stored "
                "for other hosts: put it in one place on each of them and give "
                f"file://{path}, or give its URL"
            )


def resolved(
    conf: Mapping[str, str], directory: str, artifacts: Iterable[Artifact]
) -> dict[str, str]:
    """Return the settings, with the paths of the copies on this host where there are any."""
    found, names = dict(conf), {item.name for item in artifacts}
    if {*directory} & {*",#"}:  # Spark would read two paths, or a path and an alias.
        return found
    for flag, setting in FILE_SETTINGS.items():
        if setting in found:
            found[setting] = ",".join(
                f"{directory}/{place}{alias}" if place in names else f"{path}{alias}"
                for path, alias, place in _items(flag, found[setting])
            )
    return found


class PackedPython(NamedTuple):
    """An interpreter in an archive that an application brings."""

    archive: str
    """The archive's path."""
    program: str
    """The interpreter's path in the archive."""
    place: str
    """The archive's name in the layout, if it is stored."""


def packed_python(conf: Mapping[str, str]) -> PackedPython | None:
    """Return the interpreter in an archive that processes are to have; None where none is asked.

    It is named as `spark-submit` wants it: relative to the directory in which Spark unpacks an
    archive of this host under its alias.
    """
    program = next((conf[key] for key in PYTHON_SETTINGS if conf.get(key)), "")
    parts = PurePosixPath(program).parts
    if program.startswith("/") or len(parts) < 2 or ".." in parts:
        return None
    for path, alias, place in _items("archives", conf.get(FILE_SETTINGS["archives"], "")):
        here = path.strip().removeprefix("file://")
        if (alias[1:] or here.rpartition("/")[2]) == parts[0] and "://" not in here:
            return PackedPython(here, "/".join(parts[1:]), place)
    return None


def _local(conf: Mapping[str, str]) -> Iterator[tuple[str, Path, str]]:
    """Yield the readable files of this host: flag, path, name in the layout."""
    for flag, setting in FILE_SETTINGS.items():
        for path, _, place in _items(flag, conf.get(setting, "")):
            if path.startswith("/") and Path(path).is_file() and os.access(path, os.R_OK):
                yield flag, Path(path), place


def _items(flag: str, value: str) -> Iterator[tuple[str, str, str]]:
    """Yield each item's path, its alias with the ``#``, and its copy's name in the layout."""
    for number, item in enumerate(value.split(",")):
        path, separator, alias = item.partition("#")
        yield path, separator + alias, f"{flag}-{number}/{path.rpartition('/')[2]}"
