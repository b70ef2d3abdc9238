"""Structured Streaming's own checkpoint: parsing its files, and comparing it with the record.

A checkpoint location holds ``metadata`` (the query's id), ``offsets/<batch>`` (what a batch reads,
written before it runs) and ``commits/<batch>`` (written when it is done). A file source lists the
files that it has given out in ``sources/<source>/<number>``, and all up to that number in
``<number>.compact``; ``{"logOffset": <number>}`` is the end of a batch. Stateful operators keep one
version for each batch in ``state/<operator>/<partition>``. A name there that begins with a dot is
a temporary file or a checksum.
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
"""Largest offsets, as JSON, that are recorded: the register holds those of every query."""

SOURCE_BYTES_MAX = 32 * 1024 * 1024
"""Largest file of a source's log that is inspected, some 200,000 entries. Compact files only grow,
and one of several gigabytes is valid, too."""

_VERSION = re.compile(r"v\d+")
_LOGGED = re.compile(r"([0-9]+)(\.compact)?")
_PARTITION = re.compile(r"[0-9]+/[0-9]+(/[^/]+)?")
"""A partition's path below ``state``; a join has several stores in each partition."""
_VOID = "-"
"""Spark's placeholder for a source without an offset."""


class UnreadableLog(Exception):  # noqa: N818 -- it says what was found, and is never a user's
    """A file of the log is damaged; the message describes the damage."""


@dataclass(frozen=True)
class BatchFiles:
    """The two files of a batch, as bytes; a batch that is not done has no commit."""

    offsets: bytes | None
    commit: bytes | None


@dataclass(frozen=True)
class LocationContent:
    """The content of a checkpoint location."""

    query_id: str = ""
    """Empty without ``metadata``."""
    started: tuple[int, ...] = ()
    """The batches that have offsets, ascending."""
    committed: tuple[int, ...] = ()
    """The batches that are done, ascending."""
    batches: Mapping[int, BatchFiles] = field(default_factory=dict)
    """The recorded batch, and all after it."""
    sources: Mapping[str, Mapping[str, bytes | None]] = field(default_factory=dict)
    """Source → the files of its log that Spark reads; None stands for a file that is too large."""
    state: Mapping[str, int] = field(default_factory=dict)
    """The size in bytes of each file below ``state``."""
    unreadable: str = ""
    """Why the location could not be read; then all other fields are empty."""
    exists: bool = True

    @property
    def last(self) -> int:
        """Return the last committed batch; -1 if there is none."""
        return self.committed[-1] if self.committed else -1


@dataclass(frozen=True)
class SeenQuery:
    """A snapshot of a job's query, as Spark reports it."""

    query_id: str
    run_id: str
    name: str
    location: str
    """The checkpoint location in Spark's spelling."""
    temporary: bool
    """Spark created the location and will remove it: no query can resume from there."""
    progress: tuple[dict[str, Any], ...]
    """The reports since the last snapshot, oldest first."""
    failure: Failure | None = None
    """The failure that ended the query, if any."""


def batch_numbers(names: Iterable[str]) -> tuple[int, ...]:
    """Return the batch numbers among the file names of a log."""
    return tuple(sorted(int(name) for name in names if name.isascii() and name.isdigit()))


def query_id(metadata: bytes) -> str:
    """Return the id in a ``metadata`` file. Raises `UnreadableLog`."""
    try:
        return str(json.loads(metadata)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableLog("its file 'metadata' is damaged") from error


def end_offsets(data: bytes) -> list[Any]:
    """Return each source's offset from ``offsets/<batch>``. Raises `UnreadableLog`."""
    return [offset for _, offset in _named_offsets(data)]


def _named_offsets(data: bytes) -> list[tuple[str, Any]]:
    """Return each source's offset with the name of the source's directory."""
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
    """Raise `UnreadableLog` unless the bytes are a valid ``commits/<batch>``."""
    _, lines = _lines(data)
    if not lines:
        raise UnreadableLog("is truncated: it holds a version only")
    _json(lines[0])


def check_source(data: bytes) -> None:
    """Raise `UnreadableLog` unless the bytes are a valid file of a file source's log."""
    _, lines = _lines(data)
    if not lines or data.endswith(b"\n"):  # Spark writes line breaks only between lines.
        raise UnreadableLog("is truncated: a line is missing")
    for line in lines:
        _json(line)


def source_files(names: Iterable[str]) -> list[str]:
    """Return the files of a source's log that Spark reads: from the newest compact one on."""
    found = [match for name in names if (match := _LOGGED.fullmatch(name))]
    found.sort(key=lambda match: (int(match[1]), bool(match[2])))
    first = max((index for index, match in enumerate(found) if match[2]), default=0)
    return [match[0] for match in found[first:]]


def reads_files(offsets: bytes) -> bool:
    """Return whether a batch has a source that keeps a log of its files."""
    try:
        return any(_logged(offset) is not None for offset in end_offsets(offsets))
    except UnreadableLog:
        return False


def offsets_json(offsets: bytes) -> bytes:
    """Return the offsets of a batch for the register; ``null`` if too large or unreadable."""
    try:
        ends = json.dumps(end_offsets(offsets), separators=(",", ":")).encode()
    except UnreadableLog:
        return b"null"
    return ends if len(ends) <= OFFSETS_BYTES_MAX else b"null"


def problem(recorded: Checkpoint, found: LocationContent, digest_found: str) -> str:
    """Return why a query must not resume from the found checkpoint; empty if it may.

    ``digest_found`` is the digest of the recorded batch's files, empty if they are gone.
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


def _was_purged(number: int, found: LocationContent) -> bool:
    """Return whether Spark itself removed a batch: Spark removes the oldest first."""
    return found.last > number and bool(found.started) and found.started[0] > number


def _damaged(number: int, found: LocationContent) -> str:
    """Describe the first damaged file from the recorded batch on; empty if there is none."""
    sources = 0
    for batch_id, batch in sorted(found.batches.items()):
        try:
            if batch.offsets is not None:
                ends = len(end_offsets(batch.offsets))
                if ends < sources:
                    return f"its file 'offsets/{batch_id}' is truncated: it lacks a source"
                sources = ends
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


def _source_damaged(found: LocationContent) -> str:
    """Describe the damage in the logs of the file sources; empty if there is none.

    A source that a query reads twice appears twice in the offsets but has one directory; the
    directories of later sources are then ambiguous, so that one matching log is enough.
    """
    offsets = _named_offsets(found.batches[found.last].offsets or b"")
    ends = [json.dumps(offset) for _, offset in offsets]
    repeated = len(set(ends)) < len(ends) and 0 < len(found.sources) < len(ends)
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
    """Describe the damage in a file source's log up to this number; empty if there is none."""
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
    """Describe a newest state file that is empty, which Spark never writes; empty if none is."""
    newest: dict[str, tuple[int, str]] = {}
    for path, size in sizes.items():
        directory, _, name = path.rpartition("/")
        version = STATE_VERSION.match(name)
        if version and _PARTITION.fullmatch(directory):
            # Of files with the same version, an empty one takes precedence.
            one = (int(version[1]), "" if size else path)
            newest[directory] = max(newest.get(directory, one), one)
    empty = min((path for _, path in newest.values() if path), default="")
    return f"its file 'state/{empty}' is empty" if empty else ""


def _logged(offset: Any) -> int | None:
    """Return the log number in a file source's offset; None for other sources."""
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
    """Parse one source's offset: JSON by convention, but plain text from some sources."""
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
