"""Which files of a streaming query's Spark checkpoint a savepoint needs.

Spark adds files and never changes one: ``offsets/N`` defines batch N, ``commits/N`` marks it as
done, ``sources`` holds what its sources have listed, and batch N writes its state as version N + 1.
The copy includes a batch that has begun but is not committed (its ``offsets``, not its state): it
is repeated from there with the same rows, which a sink that has seen some of them relies on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

STATE_VERSION = re.compile(r"^(\d+)[^/]*\.(delta|snapshot|zip|changelog)$")
_WHOLE = frozenset({"snapshot", "zip"})
_BATCH = re.compile(r"^\d+$")


def committed(paths: Iterable[str]) -> int:
    """Return the last committed batch of a Spark checkpoint with these files; -1 if none."""
    return max((_batch(path, "commits") for path in paths), default=-1)


def needed(paths: Iterable[str], batch_id: int) -> list[str]:
    """Return the files of a checkpoint that a query needs to resume after this batch."""
    found: list[str] = []
    state: dict[str, list[tuple[int, bool, str]]] = {}
    for path in paths:
        directory, _, name = path.rpartition("/")
        if name.startswith("."):
            continue  # A temporary file of Spark's, or a checksum.
        if path.startswith("state/") and (version := STATE_VERSION.match(name)):
            whole = version[2] in _WHOLE
            state.setdefault(directory, []).append((int(version[1]), whole, path))
        elif _batch(path, "commits") <= batch_id and _batch(path, "offsets") <= batch_id + 1:
            found.append(path)
    for versions in state.values():
        found += _chain(versions, batch_id + 1)
    return sorted(found)


def _batch(path: str, log: str) -> int:
    """Return the batch number of a log file; -1 for other files."""
    directory, _, name = path.partition("/")
    return int(name) if directory == log and _BATCH.match(name) else -1


def _chain(versions: list[tuple[int, bool, str]], version: int) -> list[str]:
    """Return the files that make up a state version: a snapshot and the deltas after it."""
    first = max((number for number, whole, _ in versions if whole and number <= version), default=0)
    return [path for number, _, path in versions if first <= number <= version]
