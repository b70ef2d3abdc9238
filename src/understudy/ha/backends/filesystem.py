"""A register in a directory that all JobManagers of one host share.

A key is a directory with one *token*, an empty file ``cur.<version>``, and the value beside it in
``val.<version>``. A value is replaced by one ``rename`` of the token: among the writers that
loaded the same version, exactly one finds the token under its old name. Version names are never
reused, so a writer that was paused for an hour can only fail. There is no lock that a paused
process could hold.

Assumptions: POSIX ``rename`` is atomic, ``listdir`` of a small directory is one snapshot (Linux
holds the directory's lock for the one system call), and ``fsync`` makes data durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from asyncinotify import Inotify, Mask

from understudy.config import backends
from understudy.config.backends import Backend, Serves
from understudy.errors import ConfigurationError, CorruptDataError, DataError, UnreadableDataError
from understudy.ha import drafts, plain_files
from understudy.ha.register import Conflict, Entry, quoted, unquoted

POLL_S = 0.2
"""Polling period when the kernel has no inotify instance left (128 per user by default)."""

RACES_MAX = 1_000
"""Each lost race means that another writer won; nobody loses so many in a row."""

THREADS_MAX = 4
"""Threads of the register: a lease renewal waits for a few requests of its process at most."""

R = TypeVar("R")

_TOKEN, _VALUE, _DELETED, _DRAFT = "cur.", "val.", "del.", ".draft."
_VERSION = re.compile(r"[0-9]{12}\.[0-9a-f]{12}")
_OURS = re.compile(rf"(cur|val|del)\.{_VERSION.pattern}")
"""Files that this module writes below a key; all others are foreign and left alone."""

_CHANGE = (
    Mask.CREATE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE | Mask.DELETE_SELF | Mask.MOVE_SELF
)


def open_register(cluster_id: str, settings: Mapping[str, str]) -> FilesystemRegister:
    """Open the register below ``high-availability.storageDir``, which must be a local path."""
    location = settings.get("high-availability.storageDir", "")
    if "://" in location and not location.startswith("file://"):
        raise ConfigurationError(
            f"high-availability.storageDir is {location!r}, but high-availability.type "
            "'filesystem' keeps its register in a directory of this host: give a path, or set "
            f"high-availability.type to a backend with servers of its own: {_others()}"
        )
    root = Path(location.removeprefix("file://"))
    return FilesystemRegister(root / cluster_id / "register")


BACKEND = Backend(register=open_register, serves=Serves.HOST, in_storage=True)


def _others() -> str:
    return ", ".join(name for name, _ in backends.examples())


class FilesystemRegister:
    """A register with one directory per key; see the module's docstring."""

    def __init__(self, directory: Path) -> None:
        self._root = directory
        self._was_there = False
        """Whether this process has seen the directory: it is never created a second time."""
        self._threads = ThreadPoolExecutor(THREADS_MAX, "understudy-register")

    async def load(self, key: str) -> Entry | None:
        """Read the value of the current token, in a thread."""
        return await self._apart(self._load, key)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Write the value and rename the token, in a thread."""
        return await self._apart(self._swap, key, value, expected)

    async def keys(self, prefix: str) -> list[str]:
        """List the directories with a token, in a thread; abandoned drafts are removed."""
        return await self._apart(self._keys, prefix)

    async def changes(self, key: str) -> AsyncIterator[None]:
        """Wake by inotify, or every `POLL_S` where inotify is exhausted."""
        await self._apart(self._make_root)
        try:
            inotify = Inotify()
        except OSError:
            while True:
                yield
                await asyncio.sleep(POLL_S)
        with inotify:
            while True:
                self._watch(inotify, key)
                yield
                await inotify.get()

    async def _apart(self, function: Callable[..., R], *arguments: Any) -> R:
        """Call a function in one of the register's own threads.

        In the default executor a lease renewal would queue behind slow storage calls.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    def _watch(self, inotify: Inotify, key: str) -> None:
        inotify.add_watch(self._root, _CHANGE)
        # An absent or just deleted key is covered by the watch on the root.
        with contextlib.suppress(OSError):
            inotify.add_watch(self._path(key), _CHANGE)

    def _make_root(self) -> None:
        """Create the register's directory, unless it vanished: its data may not be lost yet."""
        if not self._is_rooted():
            drafts.make_directories(self._root, 0o777)
            self._was_there = True

    def _is_rooted(self) -> bool:
        """Return whether the register's directory exists; raise ``OSError`` if it vanished.

        A person may have moved the directory or unmounted its file system. Treating it as an
        empty register would forget all data.
        """
        if self._root.is_dir():
            self._was_there = True
        elif self._was_there:
            raise OSError(errno.ENOENT, "the register's directory is gone", str(self._root))
        return self._was_there

    def _path(self, key: str) -> Path:
        return self._root / quoted(key)

    def _load(self, key: str) -> Entry | None:
        directory = self._path(key)
        missing = None
        for _ in range(RACES_MAX):
            try:
                version = _token(directory)
                if version is None:
                    break
                self._was_there = True
                path = directory / f"{_VALUE}{version}"
                return Entry(plain_files.read(path), version, str(path))
            except FileNotFoundError:
                # Another writer replaced the value between the two looks, unless the version stays.
                if version == missing:
                    raise CorruptDataError(
                        f"register entry {key}: {directory}/{_VALUE}{version}, its value, is gone"
                    ) from None
                missing = version
            except DataError as error:
                raise type(error)(f"register entry {key}: {error}") from error
        else:
            raise OSError(errno.EBUSY, f"no stable version in {RACES_MAX} looks", str(directory))
        self._is_rooted()
        return None

    def _keys(self, prefix: str) -> list[str]:
        try:
            names = os.listdir(self._root)
        except FileNotFoundError:
            self._is_rooted()
            return []
        self._remove_drafts(names)
        keys = (unquoted(name) for name in names if not name.startswith("."))
        return sorted(key for key in keys if key.startswith(prefix) and self._is_there(key))

    def _is_there(self, key: str) -> bool:
        """Return whether a key has a value; clear the remains of a killed delete.

        A key with a nonce is never created again, so no later write would clear them.
        """
        try:
            if _token(self._path(key)) is not None:
                return True
            _clear(self._path(key))
        except UnreadableDataError:
            # A file is foreign. A directory may be ours: `load` reports what is wrong with it.
            return self._path(key).is_dir()
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
        directory = self._path(key)
        self._make_root()
        self._remove_drafts(os.listdir(self._root))
        for _ in range(RACES_MAX):
            version = _next_version(None)
            try:
                with _draft(self._root / f"{_DRAFT}{version}", version, value) as draft:
                    draft.rename(directory)  # Onto nothing, or onto an empty directory.
            except FileNotFoundError:
                self._is_rooted()  # If so, another process removed the draft before it was held.
            except OSError as error:
                if error.errno == errno.ENOTDIR:
                    raise _no_directory(directory) from error
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
                if _token(directory) is not None:
                    raise Conflict(f"{key}: expected to be absent") from None
                _clear(directory)
                _refuse_foreign(directory)
            else:
                drafts.sync(self._root)
                return version
        raise OSError(errno.EBUSY, f"not created in {RACES_MAX} tries", str(directory))

    def _remove_drafts(self, names: list[str]) -> None:
        """Remove the drafts of creators that were killed before their key appeared."""
        drafts.remove_abandoned(self._root / name for name in names if name.startswith(_DRAFT))

    def _replace(self, key: str, value: bytes, expected: str) -> str:
        directory, version = self._path(key), _next_version(expected)
        draft = directory / f"{_VALUE}{version}"
        try:
            _write(draft, value)
        except FileNotFoundError:
            self._is_rooted()
            raise Conflict(f"{key}: deleted since version {expected} was read") from None
        except NotADirectoryError:
            raise _no_directory(directory) from None
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        try:
            (directory / f"{_TOKEN}{expected}").rename(directory / f"{_TOKEN}{version}")
        except FileNotFoundError:
            draft.unlink(missing_ok=True)
            raise Conflict(f"{key}: version {expected} was replaced") from None
        if _sync_if_there(directory):
            # Only once the new token is durable: after an earlier crash the old value is needed.
            _remove_outdated(directory, version)
        return version

    def _delete(self, key: str, expected: str) -> str:
        directory = self._path(key)
        try:
            (directory / f"{_TOKEN}{expected}").rename(directory / f"{_DELETED}{expected}")
        except FileNotFoundError:
            raise Conflict(f"{key}: version {expected} was replaced") from None
        _clear(directory)
        self._remove_drafts(os.listdir(self._root))
        return _next_version(expected)


def _token(directory: Path) -> str | None:
    """Return the current version in a key's directory; None if there is none."""
    try:
        names = plain_files.tried_again(lambda: os.listdir(directory))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise _no_directory(directory) from None
    except OSError as error:
        if plain_files.is_damage(error):
            raise plain_files.unreadable(directory, error) from error
        raise
    tokens = [
        name.removeprefix(_TOKEN)
        for name in names
        if name.startswith(_TOKEN) and _OURS.fullmatch(name)
    ]
    return max(tokens, default=None)


def _refuse_foreign(directory: Path) -> None:
    """Raise `UnreadableDataError` if a key's directory holds foreign files."""
    with contextlib.suppress(FileNotFoundError):
        foreign = [name for name in os.listdir(directory) if not _OURS.fullmatch(name)]
        if foreign:
            raise UnreadableDataError(
                f"{directory}: holds what is not of a register ({foreign[0]!r}): move it away"
            )


def _no_directory(path: Path) -> UnreadableDataError:
    return UnreadableDataError(f"{path}: is no directory of a register's entry")


def _remove_outdated(directory: Path, version: str) -> None:
    """Remove the values before this version: replaced ones, and drafts of writers that lost.

    The listing is taken while the version is current. Numbers only grow, so a listed value with a
    smaller or equal number can never become current; one with a greater number may be the draft
    of the next writer.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    if f"{_TOKEN}{version}" not in names:
        return  # The writer that replaced or deleted it cleans up.
    number = version.split(".", maxsplit=1)[0]
    for name in names:
        kept = name == f"{_VALUE}{version}" or not _OURS.fullmatch(name)
        if name.startswith(_VALUE) and not kept and name[len(_VALUE) :].split(".")[0] <= number:
            (directory / name).unlink(missing_ok=True)


def _clear(directory: Path) -> None:
    """Remove the remains of a deleted key, once its deletion is durable.

    The listing is taken while there is no token, so all names belong to the deleted key. Names
    are never reused, so the removal cannot touch a key that is created meanwhile.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    if any(name.startswith(_TOKEN) for name in names) or not _sync_if_there(directory):
        return
    for name in filter(_OURS.fullmatch, names):
        (directory / name).unlink(missing_ok=True)
    try:
        directory.rmdir()
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
            raise


def _next_version(expected: str | None) -> str:
    number = int(expected.split(".")[0]) + 1 if expected else 1
    return f"{number:012d}.{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def _draft(path: Path, version: str, value: bytes) -> Iterator[Path]:
    """Yield a durable draft of a key's directory; removed at the end unless it was renamed."""
    path.mkdir()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            drafts.hold(descriptor)
            _write(path / f"{_VALUE}{version}", value)
            _write(path / f"{_TOKEN}{version}", b"")
            os.fsync(descriptor)
            yield path
        finally:
            os.close(descriptor)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_if_there(path: Path) -> bool:
    """Make the names durable; return False if another process deleted the key meanwhile."""
    try:
        drafts.sync(path)
    except FileNotFoundError:
        return False
    return True
