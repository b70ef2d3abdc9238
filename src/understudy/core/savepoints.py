"""Which files of a streaming query's Spark checkpoint a savepoint needs.

Spark adds files and never changes one: ``offsets/N`` says what batch N is, ``commits/N`` that it is
done, ``sources`` what its sources have listed, and batch N leaves its state in version N + 1. A
batch that has begun and is not committed is in the copy too (its ``offsets``, not its state): it is
done again from there with the very same rows, as a sink that has seen some of it relies on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

STATE_VERSION = re.compile(r"^(\d+)[^/]*\.(delta|snapshot|zip|changelog)$")
_WHOLE = frozenset({"snapshot", "zip"})
_BATCH = re.compile(r"^\d+$")


def committed(paths: Iterable[str]) -> int:
    """Return the last committed batch of a Spark checkpoint with these files; -1 without one."""
    return max((_batch(path, "commits") for path in paths), default=-1)


def needed(paths: Iterable[str], batch_id: int) -> list[str]:
    """Return the files from which a query goes on after this batch, of all in its checkpoint."""
    found: list[str] = []
    state: dict[str, list[tuple[int, bool, str]]] = {}
    for path in paths:
        directory, _, name = path.rpartition("/")
        if name.startswith("."):
            continue  # A draft of Spark's, or the checksum of one of its files.
        if path.startswith("state/") and (version := STATE_VERSION.match(name)):
            whole = version[2] in _WHOLE
            state.setdefault(directory, []).append((int(version[1]), whole, path))
        elif _batch(path, "commits") <= batch_id and _batch(path, "offsets") <= batch_id + 1:
            found.append(path)
    for versions in state.values():
        found += _chain(versions, batch_id + 1)
    return sorted(found)


def _batch(path: str, log: str) -> int:
    """Return which batch a file of a log is of; -1 for other files."""
    directory, _, name = path.partition("/")
    return int(name) if directory == log and _BATCH.match(name) else -1


def _chain(versions: list[tuple[int, bool, str]], version: int) -> list[str]:
    """Return what a state of this version is put together from: a snapshot and what follows."""
    first = max((number for number, whole, _ in versions if whole and number <= version), default=0)
    return [path for number, _, path in versions if first <= number <= version]
