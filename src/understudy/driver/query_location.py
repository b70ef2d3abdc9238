"""Looking at a query's checkpoint location: plain files, or what fsspec reaches. No JVM needed."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from understudy.errors import ConfigurationError
from understudy.ha.format import digest
from understudy.spark import query_log
from understudy.spark.query_log import Batch, Found, UnreadableLog


class UnsupportedError(OSError):
    """No package for such a URL is installed."""


class Location(Protocol):
    """A directory that is only read. Every method may raise ``OSError``."""

    def exists(self) -> bool:
        """Say whether the directory is there."""
        ...

    def names(self, path: str) -> list[str]:
        """List a directory below it; absent is empty."""
        ...

    def sizes(self, path: str) -> dict[str, int]:
        """Return the bytes of each file below it, named from there; absent is empty."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None where it is absent."""
        ...


class LocalLocation:
    """A directory of this host."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def exists(self) -> bool:
        """See `Location.exists`; raises where something else lies in its place."""
        try:
            os.listdir(self._path)
        except FileNotFoundError:
            return False
        return True

    def names(self, path: str) -> list[str]:
        """See `Location.names`."""
        try:
            return os.listdir(self._path / path)
        except FileNotFoundError:
            return []

    def sizes(self, path: str) -> dict[str, int]:
        """See `Location.sizes`."""
        top = self._path / path
        found: dict[str, int] = {}
        for above, _, names in os.walk(top, onerror=_unless_absent):
            for name in names:
                file = Path(above, name)
                with contextlib.suppress(FileNotFoundError):
                    found[file.relative_to(top).as_posix()] = file.stat().st_size
        return found

    def read(self, path: str) -> bytes | None:
        """See `Location.read`."""
        try:
            return (self._path / path).read_bytes()
        except FileNotFoundError:
            return None


class RemoteLocation:
    """A directory of a store, read as our own storage there is: each call ends, with a sentence."""

    def __init__(self, url: str) -> None:
        # It takes a tenth of a second, and a local directory needs none of it.
        from understudy.ha.remote_files import RemoteFiles

        try:
            self._files = RemoteFiles(url)
        except ConfigurationError as error:
            raise UnsupportedError(str(error)) from error

    def exists(self) -> bool:
        """See `Location.exists`."""
        return bool(self.names(""))

    def names(self, path: str) -> list[str]:
        """See `Location.names`."""
        return self._files.names(path)

    def sizes(self, path: str) -> dict[str, int]:
        """See `Location.sizes`."""
        return self._files.sizes(path)

    def read(self, path: str) -> bytes | None:
        """See `Location.read`."""
        try:
            return self._files.read(path)
        except FileNotFoundError:
            return None


def open_location(location: str) -> Location:
    """Open a local path or a URL. Raises ``OSError`` where no package for it is there."""
    return RemoteLocation(location) if "://" in location else LocalLocation(location)


def look(location: str, first: int) -> Found:
    """Return what lies there, with the files of all batches from ``first`` on.

    Raises ``OSError`` where that cannot be told just now, as when a store is away.
    """
    try:
        place = open_location(location)
        if not place.exists():
            return Found(exists=False)
        metadata = place.read("metadata")
        started = query_log.batch_numbers(place.names("offsets"))
        committed = query_log.batch_numbers(place.names("commits"))
        wanted = sorted(number for number in {*started, *committed} if number >= first)
        batches = {number: read_batch(place, number) for number in wanted}
        query_id = query_log.query_id(metadata) if metadata is not None else ""
        last = batches.get(committed[-1]) if committed else None
        reads_files = last is not None and query_log.reads_files(last.offsets or b"")
        sources = _read_sources(place) if reads_files else {}
        state = place.sizes("state")
    except NotADirectoryError:
        return Found(unreadable="something else than a directory lies in its place")
    except (PermissionError, IsADirectoryError, UnsupportedError) as error:
        return Found(unreadable=f"it cannot be read: {error}")
    except UnreadableLog as error:
        return Found(unreadable=str(error))
    return Found(query_id, started, committed, batches, sources, state)


def _read_sources(place: Location) -> dict[str, dict[str, bytes | None]]:
    """Return the logs of the sources: by directory, the files that Spark reads."""
    sizes: dict[str, dict[str, int]] = defaultdict(dict)
    for path, size in place.sizes("sources").items():
        source, _, name = path.partition("/")
        sizes[source][name] = size
    return {
        source: {
            name: _read_log(place, f"sources/{source}/{name}", found[name])
            for name in query_log.source_files(found)
        }
        for source, found in sizes.items()
    }


def _read_log(place: Location, path: str, size: int) -> bytes | None:
    """Return a file of a source's log; None where it is too large to be looked into."""
    if size > query_log.SOURCE_BYTES_MAX:
        return None
    return place.read(path) or b""


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def read_batch(place: Location, number: int) -> Batch:
    """Return the two files of a batch."""
    return Batch(place.read(f"offsets/{number}"), place.read(f"commits/{number}"))


def batch_digest(batch: Batch | None) -> str:
    """Return the digest of a batch that is done; empty where a file of it is gone."""
    if batch is None or batch.offsets is None or batch.commit is None:
        return ""
    return digest(_joined((batch.offsets, batch.commit)))


def _joined(parts: Iterable[bytes]) -> bytes:
    return b"\0".join(parts)
