"""Reading a query's checkpoint location without a JVM: plain files, or URLs through fsspec."""

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
from understudy.spark.query_log import BatchFiles, LocationContent, UnreadableLog


class UnsupportedError(OSError):
    """No installed package reads such a URL."""


class Location(Protocol):
    """A read-only directory. Every method may raise ``OSError``."""

    def exists(self) -> bool:
        """Return whether the directory exists."""
        ...

    def names(self, path: str) -> list[str]:
        """List a subdirectory; empty if absent."""
        ...

    def sizes(self, path: str) -> dict[str, int]:
        """Return file sizes in bytes by path relative to ``path``; empty if absent."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None if absent."""
        ...


class LocalLocation:
    """A directory of this host."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def exists(self) -> bool:
        """Return whether the directory exists; raises if something else has its path."""
        try:
            os.listdir(self._path)
        except FileNotFoundError:
            return False
        return True

    def names(self, path: str) -> list[str]:
        """List a subdirectory with one system call."""
        try:
            return os.listdir(self._path / path)
        except FileNotFoundError:
            return []

    def sizes(self, path: str) -> dict[str, int]:
        """Walk a subdirectory; files that vanish meanwhile are left out."""
        top = self._path / path
        found: dict[str, int] = {}
        for above, _, names in os.walk(top, onerror=_unless_absent):
            for name in names:
                file = Path(above, name)
                with contextlib.suppress(FileNotFoundError):
                    found[file.relative_to(top).as_posix()] = file.stat().st_size
        return found

    def read(self, path: str) -> bytes | None:
        """Read the file whole."""
        try:
            return (self._path / path).read_bytes()
        except FileNotFoundError:
            return None


class RemoteLocation:
    """A directory in a remote store, read like our own storage: every call has a deadline."""

    def __init__(self, url: str) -> None:
        # The import takes 0.1 s, and a local directory does not need it.
        from understudy.ha.remote_files import RemoteFiles

        try:
            self._files = RemoteFiles(url)
        except ConfigurationError as error:
            raise UnsupportedError(str(error)) from error

    def exists(self) -> bool:
        """Return whether the directory holds anything: a store has no empty directories."""
        return bool(self.names(""))

    def names(self, path: str) -> list[str]:
        """List a subdirectory of the store."""
        return self._files.names(path)

    def sizes(self, path: str) -> dict[str, int]:
        """List all files below a subdirectory of the store."""
        return self._files.sizes(path)

    def read(self, path: str) -> bytes | None:
        """Fetch the file whole."""
        try:
            return self._files.read(path)
        except FileNotFoundError:
            return None


def open_location(location: str) -> Location:
    """Open a local path or a URL. Raises ``OSError`` if no installed package reads the URL."""
    return RemoteLocation(location) if "://" in location else LocalLocation(location)


def look(location: str, first: int) -> LocationContent:
    """Return the contents of a location, with the files of all batches from ``first`` on.

    Raises ``OSError`` for a temporary failure, for instance an unreachable store.
    """
    try:
        place = open_location(location)
        if not place.exists():
            return LocationContent(exists=False)
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
        return LocationContent(unreadable="something else than a directory lies in its place")
    except (PermissionError, IsADirectoryError, UnsupportedError) as error:
        return LocationContent(unreadable=f"it cannot be read: {error}")
    except UnreadableLog as error:
        return LocationContent(unreadable=str(error))
    return LocationContent(query_id, started, committed, batches, sources, state)


def _read_sources(place: Location) -> dict[str, dict[str, bytes | None]]:
    """Return the source logs that Spark reads, by directory and file name."""
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
    """Return a file of a source's log; None if larger than ``SOURCE_BYTES_MAX``."""
    if size > query_log.SOURCE_BYTES_MAX:
        return None
    return place.read(path) or b""


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def read_batch(place: Location, number: int) -> BatchFiles:
    """Return the offsets file and the commit file of a batch."""
    return BatchFiles(place.read(f"offsets/{number}"), place.read(f"commits/{number}"))


def batch_digest(batch: BatchFiles | None) -> str:
    """Return the digest of a committed batch; empty if one of its files is missing."""
    if batch is None or batch.offsets is None or batch.commit is None:
        return ""
    return digest(_joined((batch.offsets, batch.commit)))


def _joined(parts: Iterable[bytes]) -> bytes:
    return b"\0".join(parts)
