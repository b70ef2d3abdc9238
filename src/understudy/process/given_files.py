"""What ``--files``, ``--jars`` and ``--archives`` name, stored with the code for every host.

Each file that lies on this host becomes an artifact, in a directory of its own so that it keeps its
name. The settings stay as a person gave them, and so does the digest of the profile; each process
is started with them `resolved`, naming the copies that are laid out on its host. What is no
absolute path, as ``hdfs://…`` or ``file:///…``, is what every host reaches by itself: it is left
alone, and so are directories, which Spark does not take.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from understudy.errors import UsageError
from understudy.model import Artifact
from understudy.process.code import SourceFile

FILE_SETTINGS = {"files": "spark.files", "jars": "spark.jars", "archives": "spark.archives"}
"""Flags whose value is a list of files, and the settings that they are."""

GIVEN_BYTES_MAX = 64 << 20
"""A file beyond is not stored: whoever stores or lays it out holds it in memory, whole. Most jars
and tables are far smaller; packed environments are larger, and have a place of their own."""


def gathered(conf: Mapping[str, str]) -> list[SourceFile]:
    """Return the files that settings name and that are stored."""
    return [
        SourceFile(path, place)
        for _, path, place in _local(conf)
        if path.stat().st_size <= GIVEN_BYTES_MAX
    ]


def check_storable(conf: Mapping[str, str]) -> None:
    """Raise `UsageError` for a file that other hosts would not get."""
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
    """Return the settings, naming the copies where there are any."""
    found, names = dict(conf), {item.name for item in artifacts}
    if {*directory} & {*",#"}:  # Spark would take it for two paths, or for one and an alias.
        return found
    for flag, setting in FILE_SETTINGS.items():
        if setting in found:
            found[setting] = ",".join(
                f"{directory}/{place}{alias}" if place in names else f"{path}{alias}"
                for path, alias, place in _items(flag, found[setting])
            )
    return found


def _local(conf: Mapping[str, str]) -> Iterator[tuple[str, Path, str]]:
    """Yield what can be read on this host: its flag, its path, its place in the layout."""
    for flag, setting in FILE_SETTINGS.items():
        for path, _, place in _items(flag, conf.get(setting, "")):
            if path.startswith("/") and Path(path).is_file() and os.access(path, os.R_OK):
                yield flag, Path(path), place


def _items(flag: str, value: str) -> Iterator[tuple[str, str, str]]:
    """Yield each item's path, its alias with the ``#``, and the place that its copy would have."""
    for number, item in enumerate(value.split(",")):
        path, separator, alias = item.partition("#")
        yield path, separator + alias, f"{flag}-{number}/{path.rpartition('/')[2]}"
