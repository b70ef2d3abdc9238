"""A storage in memory that behaves like a directory: it passes the storage contract."""

from __future__ import annotations

from typing import BinaryIO

from understudy.errors import NotFoundError


class MemoryStorage:
    """Files and directories in memory (``understudy.ha.storage.BlockingStorage``).

    Directories are kept until they are pruned or removed, so that tests see a forgotten one.
    """

    def __init__(self) -> None:
        self.url = "memory-of-test://"
        self.files: dict[str, bytes] = {}
        self.directories: set[str] = set()

    def everything(self) -> list[str]:
        """Return every path: directories end with a slash."""
        return sorted([*self.files, *(f"{path}/" for path in self.directories)])

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        if path not in self.files:
            raise NotFoundError(f"{path}: no such file")
        return self.files[path]

    def publish(self, path: str, data: bytes) -> None:
        """Store a file and its parent directories."""
        if path in self.directories:
            raise IsADirectoryError(path)
        self.directories.update(_parents(path))
        self.files[path] = data

    def publish_file(self, path: str, source: BinaryIO) -> None:
        """Store what is in an open file."""
        source.seek(0)
        self.publish(path, source.read())

    def delete(self, path: str) -> None:
        """Remove a file; its directory stays."""
        self.files.pop(path, None)

    def delete_tree(self, path: str) -> None:
        """Remove a path and all below it."""
        below = f"{path}/"
        for file in [file for file in self.files if file == path or file.startswith(below)]:
            del self.files[file]
        self.directories = {
            name for name in self.directories if name != path and not name.startswith(below)
        }

    def prune(self, path: str) -> None:
        """Remove a directory and its parents, as far as they are empty."""
        for directory in (path, *reversed(_parents(path))):
            if directory in self.files or self.names(directory):
                return
            self.directories.discard(directory)

    def names(self, path: str) -> list[str]:
        """List the files and directories directly below a path."""
        below = f"{path}/" if path else ""
        found = {
            name[len(below) :].partition("/")[0]
            for name in (*self.files, *self.directories)
            if name.startswith(below)
        }
        return sorted(found - {""})

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        return path in self.files or path in self.directories

    def sizes(self, path: str) -> dict[str, int]:
        """Return the sizes of all files below a path."""
        below = f"{path}/"
        return {
            name.removeprefix(below): len(data)
            for name, data in self.files.items()
            if name.startswith(below)
        }


def _parents(path: str) -> list[str]:
    """Return the directories above a path, the outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
