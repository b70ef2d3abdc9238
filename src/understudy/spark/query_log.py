"""Structured Streaming's own checkpoint: what its files say, and whether it is what was recorded.

A checkpoint location holds ``metadata`` (the query's id), ``offsets/<batch>`` (what a batch reads,
written before it runs) and ``commits/<batch>`` (written when it is done). A file source keeps in
``sources/<source>/<number>`` which files it has given out, and in ``<number>.compact`` all up to
there; ``{"logOffset": <number>}`` is how far a batch reads. Stateful operators keep one version for
each batch in ``state/<operator>/<partition>``. What begins with a dot there is a draft or a
checksum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from understudy.core.savepoints import STATE_VERSION
from understudy.model import Checkpoint, Failure

OFFSETS_BYTES_MAX = 16 * 1024
"""Offsets that are larger as JSON are not recorded: the register holds them, of every query."""

SOURCE_BYTES_MAX = 32 * 1024 * 1024
"""Files of a source's log that are larger are not looked into: of some 200,000 files. The compact
ones only grow, and one of some gigabytes is sound, too."""

_VERSION = re.compile(r"v\d+")
_LOGGED = re.compile(r"([0-9]+)(\.compact)?")
_PARTITION = re.compile(r"[0-9]+/[0-9]+(/[^/]+)?")
"""Of the state, below its directory; a join has several stores in each."""
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
    sources: Mapping[str, Mapping[str, bytes | None]] = field(default_factory=dict)
    """By source, the files of its log that Spark reads; None stands for one that is too large."""
    state: Mapping[str, int] = field(default_factory=dict)
    """The bytes of each file below ``state``."""
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
    failure: Failure | None = None
    """What it has ended with, if it has failed."""


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
    return [offset for _, offset in _named_offsets(data)]


def _named_offsets(data: bytes) -> list[tuple[str, Any]]:
    """Return the same, each with the name of its source's directory."""
    version, lines = _lines(data)
    if len(lines) < 2:
        raise UnreadableLog("is truncated: it names no source")
    if lines[0].strip():
        _json(lines[0])
    if version > 1:
        named = (line.partition(":") for line in lines[1:])
        return [(name, _offset(text)) for name, _, text in named]
    return [(str(number), _offset(line)) for number, line in enumerate(lines[1:])]


def check_commit(data: bytes) -> None:
    """Raise `UnreadableLog` unless the bytes are those of a ``commits/<batch>``."""
    _, lines = _lines(data)
    if not lines:
        raise UnreadableLog("is truncated: it holds a version only")
    _json(lines[0])


def check_source(data: bytes) -> None:
    """Raise `UnreadableLog` unless the bytes are those of a file of a file source's log."""
    _, lines = _lines(data)
    if not lines or data.endswith(b"\n"):  # Spark ends no line but for the next one.
        raise UnreadableLog("is truncated: a line is missing")
    for line in lines:
        _json(line)


def source_files(names: Iterable[str]) -> list[str]:
    """Return the files of a source's log that Spark reads: the newest compact one, and later."""
    found = [match for name in names if (match := _LOGGED.fullmatch(name))]
    found.sort(key=lambda match: (int(match[1]), bool(match[2])))
    first = max((index for index, match in enumerate(found) if match[2]), default=0)
    return [match[0] for match in found[first:]]


def reads_files(offsets: bytes) -> bool:
    """Say whether a batch has a source that keeps a log of its files."""
    try:
        return any(_logged(offset) is not None for offset in end_offsets(offsets))
    except UnreadableLog:
        return False


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
    return _damaged(number, found) or _source_damaged(found) or _state_damaged(found.state)


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


def _source_damaged(found: Found) -> str:
    """Say what is wrong with the logs of the file sources; empty where nothing is.

    A source that a query reads twice is named twice by the offsets, and has one directory: then
    it is not known whose directories those after it are.
    """
    offsets = _named_offsets(found.batches[found.last].offsets or b"")
    told = [json.dumps(offset) for _, offset in offsets]
    repeated = len(set(told)) < len(told) and 0 < len(found.sources) < len(told)
    for name, offset in offsets:
        number = _logged(offset)
        if number is None:
            continue
        logs = found.sources if repeated else {name: found.sources.get(name, {})}
        problems = [_log_damaged(f"sources/{one}", log, number) for one, log in logs.items()]
        if all(problems):
            return problems[0]
    return ""


def _log_damaged(path: str, log: Mapping[str, bytes | None], number: int) -> str:
    """Say what is wrong with a file source's log, which had come to this number."""
    held = {int(name.removesuffix(".compact")): name for name in log}
    oldest = min(held, default=number)
    first = oldest if held.get(oldest, "").endswith(".compact") else 0
    for one in range(max(number, *held, first), first - 1, -1):
        if one not in held:
            return f"its file '{path}/{one}' or '{path}/{one}.compact' is missing"
    for name, data in log.items():
        try:
            if data is not None:
                check_source(data)
        except UnreadableLog as error:
            return f"its file '{path}/{name}' {error}"
    return ""


def _state_damaged(sizes: Mapping[str, int]) -> str:
    """Say which newest version of a state is empty; no version that Spark has written is."""
    newest: dict[str, tuple[int, str]] = {}
    for path, size in sizes.items():
        directory, _, name = path.rpartition("/")
        version = STATE_VERSION.match(name)
        if version and _PARTITION.fullmatch(directory):
            # An empty file goes before others of its version.
            one = (int(version[1]), "" if size else path)
            newest[directory] = max(newest.get(directory, one), one)
    empty = min((path for _, path in newest.values() if path), default="")
    return f"its file 'state/{empty}' is empty" if empty else ""


def _logged(offset: Any) -> int | None:
    """Return how far a file source's log had come; None for an offset of another source."""
    if isinstance(offset, dict) and list(offset) == ["logOffset"]:
        number = offset["logOffset"]
        if type(number) is int and number >= 0:
            return number
    return None


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
