"""Copying files between storages, in pieces: a file of any size takes a few megabytes of memory.

A place has one address, an absolute path or a URL; its files have relative paths. A copy is
published as by `BlockingStorage.publish`: whole or not at all, durable on return.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from understudy.errors import ConfigurationError, NotFoundError
from understudy.ha import plain_files
from understudy.ha.drafts import published
from understudy.ha.storage import BlockingStorage, open_storage

PIECE_BYTES = 4 << 20
"""Size of one read and write: large enough for a store over the network."""


def split(address: str) -> tuple[str, str]:
    """Return an address's parent directory and its name there."""
    parent, _, name = address.rstrip("/").rpartition("/")
    return parent or "/", name


class FileTree:
    """The files below one address."""

    def __init__(self, address: str) -> None:
        """Raise `ConfigurationError` if fsspec does not support the address."""
        import fsspec  # The import takes a tenth of a second, and few jobs have savepoints.

        self.address = address.rstrip("/")
        self.storage: BlockingStorage = open_storage(self.address)
        try:
            self._fs, self._root = fsspec.core.url_to_fs(self.address)
        except (ImportError, ValueError) as error:
            raise ConfigurationError(
                f"{address!r} cannot be opened: {error}; install the fsspec package for it"
            ) from error
        self._is_local = "://" not in self.address

    def files(self, path: str = "") -> dict[str, int]:
        """Return the files below a path (or the file itself), with their sizes."""
        self._fs.invalidate_cache()
        try:
            found: dict[str, dict[str, Any]] = self._fs.find(self._full(path), detail=True)
        except FileNotFoundError:
            return {}
        return {
            name.removeprefix(self._root).lstrip("/"): int(about["size"] or 0)
            for name, about in sorted(found.items())
        }

    def digest(self, path: str) -> tuple[str, int]:
        """Return a file's digest and size; raises `NotFoundError` or `UnreadableDataError`."""
        return self._pieces(path, lambda _: None)

    def copy(self, path: str, target: FileTree, target_path: str) -> tuple[str, int]:
        """Copy a file to another place; return its digest and size.

        Raises `NotFoundError` or `UnreadableDataError`, and ``OSError`` for a transient failure.
        """
        if not target._is_local:
            with target._fs.open(target._full(target_path), "wb") as file:
                return self._pieces(path, file.write)
        with published(Path(target._full(target_path))) as draft:
            return self._pieces(path, draft.write)

    def _pieces(self, path: str, take: Callable[[bytes], object]) -> tuple[str, int]:
        hashed, size = hashlib.sha256(), 0
        try:
            with self._open(path) as file:
                while piece := file.read(PIECE_BYTES):
                    hashed.update(piece)
                    size += len(piece)
                    take(piece)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFoundError(f"{self.address}/{path}: no such file") from error
        except OSError as error:
            if self._is_local and plain_files.is_damage(error):
                raise plain_files.unreadable(Path(self._full(path)), error) from error
            raise
        return f"sha256:{hashed.hexdigest()}", size

    def _open(self, path: str) -> BinaryIO:
        found: BinaryIO = self._fs.open(self._full(path), "rb")
        return found

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}".rstrip("/")
