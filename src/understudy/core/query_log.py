"""Structured Streaming's own checkpoint: what its files say, and whether it is what was recorded.

A checkpoint location holds ``metadata`` (the query's id), ``offsets/<batch>`` (what a batch reads,
written before it runs) and ``commits/<batch>`` (written when it is done).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from understudy.model import Checkpoint

OFFSETS_BYTES_MAX = 16 * 1024
"""Offsets that are larger as JSON are not recorded: the register holds them, of every query."""

_VERSION = re.compile(r"v\d+")
_VOID = "-"
"""What stands for a source that has no offset yet."""


class UnreadableLog(Exception):  # noqa: N818 -- it says what was found, and is never a user's
    """A file of the log is not whole. Its text says how."""


@dataclass(frozen=True)
class Batch:
    """The two files of a batch, as bytes; a batch that is not done has no second one."""

    offsets: bytes | None
    commit: bytes | None


@dataclass(frozen=True)
class Found:
    """What lies at a checkpoint location."""

    query_id: str = ""
    """Empty where there is no ``metadata``."""
    started: tuple[int, ...] = ()
    """The batches that have offsets, ascending."""
    committed: tuple[int, ...] = ()
    """The batches that are done, ascending."""
    batches: Mapping[int, Batch] = field(default_factory=dict)
    """The recorded batch, and all after it."""
    unreadable: str = ""
    """Why the location could not be looked at; nothing else is known then."""
    exists: bool = True

    @property
    def last(self) -> int:
        """Return the last batch that is done; -1 where there is none."""
        return self.committed[-1] if self.committed else -1


@dataclass(frozen=True)
class SeenQuery:
    """A query of a job, as Spark tells of it at one moment."""

    query_id: str
    run_id: str
    name: str
    location: str
    """Its checkpoint location as Spark spells it."""
    temporary: bool
    """The location is one that Spark has made up and will remove: nobody can go on from there."""
    progress: tuple[dict[str, Any], ...]
    """What it has reported since it was last seen, oldest first."""


def batch_numbers(names: Iterable[str]) -> tuple[int, ...]:
    """Return the batches among the names of a log's directory."""
    return tuple(sorted(int(name) for name in names if name.isascii() and name.isdigit()))


def query_id(metadata: bytes) -> str:
    """Return the id in a ``metadata`` file. Raises `UnreadableLog`."""
    try:
        return str(json.loads(metadata)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableLog("its file 'metadata' is damaged") from error


def end_offsets(data: bytes) -> list[Any]:
    """Return where each source had come to, from ``offsets/<batch>``. Raises `UnreadableLog`."""
    version, lines = _lines(data)
    if len(lines) < 2:
        raise UnreadableLog("is truncated: it names no source")
    if lines[0].strip():
        _json(lines[0])
    return [_offset(line.partition(":")[2] if version > 1 else line) for line in lines[1:]]


def check_commit(data: bytes) -> None:
    """Raise `UnreadableLog` unless the bytes are those of a ``commits/<batch>``."""
    _, lines = _lines(data)
    if not lines:
        raise UnreadableLog("is truncated: it holds a version only")
    _json(lines[0])


def offsets_json(offsets: bytes) -> bytes:
    """Return the offsets of a batch for the register; ``null`` where they are too large."""
    try:
        told = json.dumps(end_offsets(offsets), separators=(",", ":")).encode()
    except UnreadableLog:
        return b"null"
    return told if len(told) <= OFFSETS_BYTES_MAX else b"null"


def problem(recorded: Checkpoint, found: Found, digest_found: str) -> str:
    """Say why a query must not go on from what is found; empty where it may.

    ``digest_found`` is that of the recorded batch's files, empty where they are gone.
    """
    number = recorded.batch_id
    if found.unreadable:
        return found.unreadable
    if not found.exists:
        return "there is no such directory"
    if not found.query_id:
        return "its file 'metadata' is missing"
    if found.query_id != recorded.query_id:
        return f"it belongs to another query: {found.query_id}, not {recorded.query_id}"
    if found.last < number:
        return "batches that were committed are gone: it was rolled back"
    if digest_found and recorded.digest and digest_found != recorded.digest:
        return f"the files of batch {number} are not those that were recorded"
    if not digest_found and not _was_purged(number, found):
        return f"files of batch {number} are missing"
    return _damaged(number, found)


def _was_purged(number: int, found: Found) -> bool:
    """Say whether Spark itself has removed a batch: it begins with the oldest, and its offsets."""
    return found.last > number and bool(found.started) and found.started[0] > number


def _damaged(number: int, found: Found) -> str:
    """Say which of the files from the recorded batch on is damaged; empty where none is."""
    sources = 0
    for batch_id, batch in sorted(found.batches.items()):
        try:
            if batch.offsets is not None:
                told = len(end_offsets(batch.offsets))
                if told < sources:
                    return f"its file 'offsets/{batch_id}' is truncated: it lacks a source"
                sources = told
            elif batch.commit is not None and batch_id > number:
                return f"batch {batch_id} was committed, but its 'offsets/{batch_id}' is missing"
        except UnreadableLog as error:
            return f"its file 'offsets/{batch_id}' {error}"
        try:
            if batch.commit is not None:
                check_commit(batch.commit)
        except UnreadableLog as error:
            return f"its file 'commits/{batch_id}' {error}"
    return ""


def _lines(data: bytes) -> tuple[int, list[str]]:
    try:
        version, *lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise UnreadableLog("is damaged: it is no text") from None
    if not version.strip():
        raise UnreadableLog("is empty")
    if not _VERSION.fullmatch(version.strip()):
        raise UnreadableLog("is damaged: it does not begin with a version")
    while lines and not lines[-1].strip():
        lines.pop()
    return int(version.strip()[1:]), lines


def _offset(text: str) -> Any:
    """Return one source's offset. What a source writes is JSON by agreement, not always in fact."""
    text = text.strip()
    if text == _VOID:
        return None
    try:
        return json.loads(text)
    except ValueError:
        if not text or text[0] in '{["':
            raise UnreadableLog("is truncated: its offsets are no JSON") from None
        return text


def _json(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        raise UnreadableLog("is truncated: it is no JSON") from None
