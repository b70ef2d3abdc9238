"""Storage of files at any fsspec URL or in a local directory.

The register points to these files; nothing here decides. A file is published whole or not at all,
and is durable when the call returns. Paths are relative, with ``/`` between parts. An absolute path
or a URL is outside: every storage passes such a path to the storage that holds it.

Object stores publish a whole object by themselves; a local file is written under a temporary name,
fsynced and renamed. At start-up `prove` checks the store's guarantees (publish whole, read and list
what was written, delete).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Concatenate, ParamSpec, Protocol, TypeVar

from understudy.errors import NotFoundError, StorageError
from understudy.ha import drafts, plain_files, removal
from understudy.ha.drafts import DRAFT

OPERATION_S = 60.0
"""After so long the outcome of a call counts as unknown; a 2 GB file takes less."""

LARGE_S = 900.0
"""The same for a file of any size, which is copied piece by piece."""

P = ParamSpec("P")
R = TypeVar("R")
COPIED_BYTES = 4 << 20
"""Size of one read and write of a copy."""

S = TypeVar("S", bound="BlockingStorage")


class BlockingStorage(Protocol):
    """A tree of immutable files.

    Every method may raise ``OSError``: then the outcome is unknown.
    """

    url: str

    def read(self, path: str) -> bytes:
        """Return a file's bytes, or raise `NotFoundError` or `UnreadableDataError`."""
        ...

    def publish(self, path: str, data: bytes) -> None:
        """Make the file hold these bytes: whole, durable, replacing what was there."""
        ...

    def publish_file(self, path: str, source: BinaryIO) -> None:
        """Do as `publish` with the bytes of an open file of this host, piece by piece."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file; absent is fine."""
        ...

    def delete_tree(self, path: str) -> None:
        """Remove everything below a path, and the path; absent is fine."""
        ...

    def prune(self, path: str) -> None:
        """Remove the directory if it is empty, and its parents as long as they are empty."""
        ...

    def names(self, path: str) -> list[str]:
        """List the files and directories directly below a path, sorted; absent is empty."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        ...

    def sizes(self, path: str) -> dict[str, int]:
        """Return the sizes of the files below a path, by relative path; absent is empty."""
        ...


class Storage:
    """A blocking storage for use in an event loop: each call runs in a thread, with a deadline.

    A call past its deadline raises ``TimeoutError``: its outcome is unknown. The thread continues,
    so the deadline bounds the caller's wait, not the store's work.
    """

    def __init__(self, blocking: BlockingStorage, deadline_s: float = OPERATION_S) -> None:
        self.blocking = blocking
        self.url = blocking.url
        self._deadline_s = deadline_s

    async def read(self, path: str) -> bytes:
        """Read a file in a thread."""
        return await self.run(self.blocking.read, path)

    async def publish(self, path: str, data: bytes) -> None:
        """Publish a file in a thread."""
        await self.run(self.blocking.publish, path, data)

    async def publish_file(self, path: str, source: BinaryIO) -> None:
        """Publish an open file in a thread, with the deadline for large files."""
        await self.within(LARGE_S, self.blocking.publish_file, path, source)

    async def delete(self, path: str) -> None:
        """Remove a file in a thread; absent is fine."""
        await self.run(self.blocking.delete, path)

    async def delete_tree(self, path: str) -> None:
        """Remove a path and all below it in a thread; absent is fine."""
        await self.run(self.blocking.delete_tree, path)

    async def prune(self, path: str) -> None:
        """Remove a directory and its parents in a thread, as far as they are empty."""
        await self.run(self.blocking.prune, path)

    async def names(self, path: str) -> list[str]:
        """List a directory in a thread; absent is empty."""
        return await self.run(self.blocking.names, path)

    async def exists(self, path: str) -> bool:
        """Return whether a path exists, from a thread."""
        return await self.run(self.blocking.exists, path)

    def place(self, path: str) -> str:
        """Return a path's full address, for messages."""
        return path if path.startswith("/") else f"{self.url}/{path}"

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a blocking function in a thread, with the deadline."""
        return await self.within(self._deadline_s, functools.partial(function, *args, **kwargs))

    async def within(
        self, deadline_s: float, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call a blocking function in a thread, with a deadline of its own."""
        async with asyncio.timeout(deadline_s):
            return await asyncio.to_thread(function, *args, **kwargs)


class InlineStorage(Storage):
    """A storage in memory, without threads, so that it works while the interpreter exits."""

    async def within(
        self, deadline_s: float, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call the function in the caller's thread."""
        return function(*args, **kwargs)


def open_storage(url: str) -> BlockingStorage:
    """Open a storage by its URL or local path."""
    scheme, separator, path = url.partition("://")
    if separator and scheme.lower() in {"file", "local"}:
        return LocalStorage(Path(path))
    return FsspecStorage(url) if "://" in url else LocalStorage(Path(url))


def load_client(url: str) -> None:
    """Import what `open_storage` needs for a URL; no connection is made, and no thread started."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme.lower() not in {"file", "local"}:
        from understudy.ha.remote_files import load_file_system  # As in `FsspecStorage`.

        load_file_system(scheme)


def storage_of(storage: BlockingStorage, path: str) -> tuple[BlockingStorage, str]:
    """Return the storage that holds a path, and the path there.

    Raises `ConfigurationError` if no installed package supports the URL.
    """
    if not is_elsewhere(path):
        return storage, path
    directory, _, name = path.rstrip("/").rpartition("/")
    return open_storage(directory or "/"), name


def is_elsewhere(path: str) -> bool:
    """Return whether a path is absolute or a URL, so not in our storage."""
    return path.startswith("/") or "://" in path


def elsewhere(method: Callable[Concatenate[S, str, P], R]) -> Callable[Concatenate[S, str, P], R]:
    """Decorate a storage's method: an absolute path or URL goes to the storage that holds it."""

    @functools.wraps(method)
    def routed(self: S, path: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if is_elsewhere(path):
            holder, name = storage_of(self, path)
            answer: R = getattr(holder, method.__name__)(name, *args, **kwargs)
            return answer
        return method(self, path, *args, **kwargs)

    return routed


class LocalStorage:
    """A directory of this host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)
        self._device = self._seen_device()
        """The file system of the directory when first seen; None before its creation."""

    @elsewhere
    def read(self, path: str) -> bytes:
        """Read a file; raise ``OSError`` instead of `NotFoundError` if the root has vanished."""
        try:
            return plain_files.read(self.root / path)
        except (FileNotFoundError, NotADirectoryError) as error:
            self._refuse_other_place()
            raise NotFoundError(f"{self.root / path}: no such file") from error

    @elsewhere
    def publish(self, path: str, data: bytes) -> None:
        """Write a draft, fsync and rename it; missing directories are created."""
        target = self.root / path
        self._refuse_other_place()
        with drafts.published(target) as file:
            file.write(data)

    @elsewhere
    def publish_file(self, path: str, source: BinaryIO) -> None:
        """Copy to a draft, fsync and rename it; missing directories are created."""
        target = self.root / path
        self._refuse_other_place()
        source.seek(0)
        with drafts.published(target) as file:
            shutil.copyfileobj(source, file, COPIED_BYTES)

    @elsewhere
    def delete(self, path: str) -> None:
        """Remove a file without following links; absent is fine."""
        removal.remove_file(self.root, path)

    @elsewhere
    def delete_tree(self, path: str) -> None:
        """Remove a path and all below it without following links; absent is fine."""
        removal.remove_tree(self.root, path)

    def prune(self, path: str) -> None:
        """Remove empty directories, and abandoned drafts in them."""
        if is_elsewhere(path):
            return  # A person chose this directory: it stays.
        while path:
            try:
                with removal.opened(self.root, path) as directory:
                    # By the descriptor: the name may refer to another directory by now.
                    drafts.remove_abandoned(Path(f"/proc/self/fd/{directory}").glob(f"{DRAFT}*"))
                removal.remove_empty(self.root, path)
            except FileNotFoundError:  # Another process prunes it now.
                pass
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                    return
                raise
            path = path.rpartition("/")[0]

    @elsewhere
    def names(self, path: str) -> list[str]:
        """List a directory without its drafts."""
        try:
            names = os.listdir(self.root / path)
        except (FileNotFoundError, NotADirectoryError):
            self._refuse_other_place()
            return []
        return sorted(name for name in names if not name.startswith(DRAFT))

    @elsewhere
    def exists(self, path: str) -> bool:
        """Return whether a path exists; raise ``OSError`` if the root has vanished."""
        if (self.root / path).exists():
            return True
        self._refuse_other_place()
        return False

    @elsewhere
    def sizes(self, path: str) -> dict[str, int]:
        """Return the sizes of all files below a path, without drafts."""
        top = self.root / path
        found = {
            str(file.relative_to(top)): file.stat().st_size
            for file in top.rglob("*")
            if file.is_file() and not file.name.startswith(DRAFT)
        }
        if not found:
            self._refuse_other_place()
        return found

    def _refuse_other_place(self) -> None:
        """Raise ``OSError`` if the root has vanished, or another file system is mounted there.

        Stored files are not lost then, and new files would not be found again.
        """
        now = self._seen_device()
        if self._device is None:
            self._device = now
        elif now is None:
            raise OSError(errno.ENOENT, "the storage directory is gone", self.url)
        elif now != self._device:
            raise OSError(errno.ESTALE, "another file system lies in its place", self.url)

    def _seen_device(self) -> int | None:
        try:
            return self.root.stat().st_dev
        except (FileNotFoundError, NotADirectoryError):
            return None


class FsspecStorage:
    """Any store that fsspec supports and that publishes whole files, such as S3."""

    def __init__(self, url: str) -> None:
        # The import takes a tenth of a second, and a local directory does not need it.
        from understudy.ha.remote_files import RemoteFiles

        self._files = RemoteFiles(url)
        self.url = self._files.url

    @elsewhere
    def read(self, path: str) -> bytes:
        """Read a file in one request."""
        try:
            return self._files.read(path)
        except FileNotFoundError as error:
            raise NotFoundError(f"{self.url}/{path}: no such file") from error

    @elsewhere
    def publish(self, path: str, data: bytes) -> None:
        """Publish a file as a whole object, or by a rename."""
        self._files.publish(path, data)

    @elsewhere
    def publish_file(self, path: str, source: BinaryIO) -> None:
        """Publish an open file as a whole object, or by a rename."""
        self._files.publish_file(path, source)

    @elsewhere
    def delete(self, path: str) -> None:
        """Remove a file; absent is fine."""
        try:
            self._files.delete(path)
        except FileNotFoundError:
            return

    @elsewhere
    def delete_tree(self, path: str) -> None:
        """Remove everything below a path; absent is fine."""
        self._files.delete_tree(path)

    def prune(self, path: str) -> None:
        """Remove empty directories; in an object store only their marks."""
        if not is_elsewhere(path):  # A path that a person chose stays.
            self._files.prune(path)

    @elsewhere
    def names(self, path: str) -> list[str]:
        """List a directory from the store, never from a cache."""
        return self._files.names(path)

    @elsewhere
    def exists(self, path: str) -> bool:
        """Return whether a path exists; raise ``OSError`` if the store does not answer."""
        return self._files.exists(path)

    @elsewhere
    def sizes(self, path: str) -> dict[str, int]:
        """Return the sizes of all files below a path."""
        return self._files.sizes(path)


def prove(storage: BlockingStorage, directory: str) -> None:
    """Raise `StorageError` unless the storage gives the guarantees that the stores need.

    A process that is killed meanwhile leaves files, which are removed with the directory.
    """
    path = f"{directory}/.proof-{uuid.uuid4().hex}"
    answers = True
    try:
        for data in (b"first", b"second, and longer"):
            storage.publish(f"{path}/probe", data)
            if storage.read(f"{path}/probe") != data:
                raise StorageError(f"{storage.url}: a file does not hold what was just published")
        if storage.names(path) != ["probe"]:
            raise StorageError(f"{storage.url}: a listing does not show what was just published")
        storage.delete(f"{path}/probe")
        if storage.exists(f"{path}/probe"):
            raise StorageError(f"{storage.url}: a file is still there after it was deleted")
    except OSError as error:
        answers = not isinstance(error, TimeoutError)  # After a timeout skip the cleanup's wait.
        raise StorageError(f"{storage.url}: cannot be written to: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            if answers:
                storage.delete_tree(path)
