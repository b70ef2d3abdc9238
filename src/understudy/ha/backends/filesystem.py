"""A register in a directory that all JobManagers of one host see.

A key is a directory with one *token*, an empty file ``cur.<version>``, and the value beside it in
``val.<version>``. Replacing a value is one ``rename`` of the token: of all writers who loaded the
same version exactly one finds the token under its old name. Version names are never used twice,
so a writer that was paused for an hour can only fail, and nobody ever waits for a lock that a
paused process holds.

It relies on POSIX ``rename`` being atomic, on ``listdir`` of a small directory being one snapshot
(Linux holds the directory's lock for the one system call it takes), and on ``fsync``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import time
import urllib.parse
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from asyncinotify import Inotify, Mask

from understudy.errors import ConfigurationError
from understudy.ha.register import Conflict, Entry

POLL_S = 0.2
"""How often to look where the kernel has no inotify instance left (128 a user by default)."""

RACES_MAX = 1_000
"""Each lost race means that another writer won one; nobody can lose so many in a row."""

DRAFT_S = 60.0
"""A draft of this age belongs to a writer that died; one that was only paused tries again."""

_TOKEN, _VALUE, _DELETED, _DRAFT = "cur.", "val.", "del.", ".draft."
_CHANGE = (
    Mask.CREATE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE | Mask.DELETE_SELF | Mask.MOVE_SELF
)


def open_register(cluster_id: str, settings: Mapping[str, str]) -> FilesystemRegister:
    """Open the register below ``high-availability.storageDir``, which must be a local path."""
    location = settings.get("high-availability.storageDir", "")
    if "://" in location and not location.startswith("file://"):
        raise ConfigurationError(
            f"high-availability.storageDir is {location!r}, but high-availability.type "
            "'filesystem' keeps its register in a directory of this host: give a path"
        )
    root = Path(location.removeprefix("file://"))
    return FilesystemRegister(root / cluster_id / "register")


class FilesystemRegister:
    """One directory a key; see the module's docstring."""

    def __init__(self, directory: Path) -> None:
        self._root = directory

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        return await asyncio.to_thread(self._load, key)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """See `Register.swap`."""
        return await asyncio.to_thread(self._swap, key, value, expected)

    async def keys(self, prefix: str) -> list[str]:
        """See `Register.keys`."""
        return await asyncio.to_thread(self._keys, prefix)

    async def changes(self, prefix: str) -> AsyncIterator[None]:
        """See `Register.changes`."""
        await asyncio.to_thread(self._root.mkdir, parents=True, exist_ok=True)
        try:
            inotify = Inotify()
        except OSError:
            while True:
                yield
                await asyncio.sleep(POLL_S)
        with inotify:
            while True:
                self._watch(inotify, prefix)
                yield
                await inotify.get()

    def _watch(self, inotify: Inotify, prefix: str) -> None:
        inotify.add_watch(self._root, _CHANGE)
        for name in os.listdir(self._root):
            if _unquote(name).startswith(prefix):
                try:
                    inotify.add_watch(self._root / name, _CHANGE)
                except FileNotFoundError:
                    continue  # Deleted just now; the watch on the root has seen it.

    def _path(self, key: str) -> Path:
        return self._root / urllib.parse.quote(key, safe="").replace(".", "%2E")

    def _load(self, key: str) -> Entry | None:
        directory = self._path(key)
        for _ in range(RACES_MAX):
            version = _token(directory)
            if version is None:
                return None
            try:
                return Entry((directory / f"{_VALUE}{version}").read_bytes(), version)
            except FileNotFoundError:
                continue  # Replaced between the two looks.
        raise OSError(errno.EBUSY, f"no stable version in {RACES_MAX} looks", str(directory))

    def _keys(self, prefix: str) -> list[str]:
        try:
            names = os.listdir(self._root)
        except FileNotFoundError:
            return []
        keys = (_unquote(name) for name in names if not name.startswith("."))
        return sorted(key for key in keys if key.startswith(prefix) and self._is_there(key))

    def _is_there(self, key: str) -> bool:
        """Say whether a key has a value, and clear what a killed delete has left of it.

        Keys with a nonce are never created again, so nobody else would do that.
        """
        try:
            if _token(self._path(key)) is not None:
                return True
            _clear(self._path(key))
        except NotADirectoryError:
            pass  # A foreign file: none of ours, and no reason to list nothing.
        return False

    def _swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        if expected is None and value is None:
            if _token(self._path(key)) is not None:
                raise Conflict(f"{key}: expected to be absent")
            return _next_version(None)
        if expected is None:
            assert value is not None
            return self._create(key, value)
        if value is None:
            return self._delete(key, expected)
        return self._replace(key, value, expected)

    def _create(self, key: str, value: bytes) -> str:
        directory, version = self._path(key), _next_version(None)
        _make_directories(self._root)
        _remove_old_drafts(self._root)
        draft = self._root / f"{_DRAFT}{version}"
        draft.mkdir()
        try:
            _write(draft / f"{_VALUE}{version}", value)
            _write(draft / f"{_TOKEN}{version}", b"")
            _sync_directory(draft)
            for _ in range(RACES_MAX):
                try:
                    draft.rename(directory)  # Onto nothing, or onto an empty directory.
                except OSError as error:
                    if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                        raise
                    if _token(directory) is not None:
                        raise Conflict(f"{key}: expected to be absent") from None
                    _clear(directory)
                    continue
                _sync_directory(self._root)
                return version
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        raise OSError(errno.EBUSY, f"not created in {RACES_MAX} tries", str(directory))

    def _replace(self, key: str, value: bytes, expected: str) -> str:
        directory, version = self._path(key), _next_version(expected)
        draft = directory / f"{_VALUE}{version}"
        try:
            _write(draft, value)
        except FileNotFoundError:
            raise Conflict(f"{key}: deleted since version {expected} was read") from None
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        try:
            (directory / f"{_TOKEN}{expected}").rename(directory / f"{_TOKEN}{version}")
        except FileNotFoundError:
            draft.unlink(missing_ok=True)
            raise Conflict(f"{key}: version {expected} was replaced") from None
        if _sync_if_there(directory):
            # Only after the new token is durable: a crash before leaves the old value readable.
            _remove_outdated(directory, version)
        return version

    def _delete(self, key: str, expected: str) -> str:
        directory = self._path(key)
        try:
            (directory / f"{_TOKEN}{expected}").rename(directory / f"{_DELETED}{expected}")
        except FileNotFoundError:
            raise Conflict(f"{key}: version {expected} was replaced") from None
        _clear(directory)
        _remove_old_drafts(self._root)
        return _next_version(expected)


def _unquote(name: str) -> str:
    return urllib.parse.unquote(name)


def _token(directory: Path) -> str | None:
    """Return the current version of a key's directory, or None where it has none."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return None
    tokens = [name.removeprefix(_TOKEN) for name in names if name.startswith(_TOKEN)]
    return max(tokens, default=None)


def _remove_outdated(directory: Path, version: str) -> None:
    """Remove the values before this version: replaced ones, and drafts of writers that lost.

    All names are listed at a moment at which the version is the current one. Numbers only grow, so
    no value listed with a smaller or equal number can become current any more; a greater one may
    be the draft of the next writer.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    if f"{_TOKEN}{version}" not in names:
        return  # Whoever replaced or deleted it meanwhile cleans up.
    number = version.split(".", maxsplit=1)[0]
    for name in names:
        mine = name == f"{_VALUE}{version}"
        if name.startswith(_VALUE) and not mine and name[len(_VALUE) :].split(".")[0] <= number:
            (directory / name).unlink(missing_ok=True)


def _remove_old_drafts(root: Path) -> None:
    """Remove what creators left that were killed before their key appeared."""
    for name in os.listdir(root):
        if name.startswith(_DRAFT):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - (root / name).stat().st_mtime > DRAFT_S:
                    shutil.rmtree(root / name, ignore_errors=True)


def _clear(directory: Path) -> None:
    """Remove what is left of a deleted key, once its deletion is durable.

    All names were listed at a moment without token, so they belong to the dead incarnation, and
    since no name is used twice, removing them cannot touch a key that was created meanwhile.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    if any(name.startswith(_TOKEN) for name in names) or not _sync_if_there(directory):
        return
    for name in names:
        (directory / name).unlink(missing_ok=True)
    try:
        directory.rmdir()
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
            raise


def _next_version(expected: str | None) -> str:
    number = int(expected.split(".")[0]) + 1 if expected else 1
    return f"{number:012d}.{uuid.uuid4().hex[:12]}"


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _make_directories(path: Path) -> None:
    """Create a directory and its parents, each durable in its parent."""
    if not path.is_dir():
        _make_directories(path.parent)
        path.mkdir(exist_ok=True)
        _sync_directory(path.parent)


def _sync_if_there(path: Path) -> bool:
    """Make the names durable; False where others have deleted the key meanwhile."""
    try:
        _sync_directory(path)
    except FileNotFoundError:
        return False
    return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
