"""Files of a store behind fsspec, in the few verbs that a storage needs.

Every call ends within `CALL_S` and never uses a cached listing. Every failure is an ``OSError``
with a message, and means an unknown outcome. ``FileNotFoundError`` means only that the file is
absent, never that its bucket is gone.

A file is published whole. An object store does that itself, by one PUT or by the request that
completes a multipart upload. In a store with directories and a rename, the file is written under a
temporary name and renamed. A store with neither is refused.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import fsspec
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.config import conf as fsspec_configuration
from fsspec.spec import AbstractFileSystem

from understudy.errors import ConfigurationError
from understudy.ha.drafts import DRAFT
from understudy.installing import install_command

CALL_S = 50.0
"""Time limit of one call, retries included; shorter than its caller's limit."""

LARGE_S = 850.0
"""The same for a call that copies a file of any size."""

FETCH_S = 60.0
"""Time limit for reading a single file of an application."""

S3_CONNECT_S, S3_SILENCE_S = 5, 15
"""After so long without a connection, or without any answer, a request is repeated."""

S3_ATTEMPTS, S3_TRIES = 3, 3
"""How often botocore sends a request, and how often s3fs repeats that."""

S3_PART_BYTES = 50 << 20
"""A file of twice this size or more is sent in parts; a single PUT is limited to 5 GB."""

DELETE_ROUNDS_MAX = 10
"""Others may still write into a tree while it is deleted, but not for so many rounds."""

OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "r2", "tos", "obs", "memory"}
)
"""fsspec's protocols of stores with whole objects, whose directories are only parts of names."""

_S3 = frozenset({"s3", "s3a"})

_NO_CREDENTIALS = frozenset(
    {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"}
)
"""By name, as botocore is optional."""

_NO_SUCH_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound"})


def load_file_system(protocol: str) -> None:
    """Import what speaks a protocol; where nothing is installed, `RemoteFiles` says so."""
    with contextlib.suppress(ImportError, ValueError):
        fsspec.get_filesystem_class(protocol)


def fetch(url: str) -> bytes:
    """Return the bytes of a single file at any URL that fsspec knows, also of a read-only store.

    Raises ``OSError`` that names the URL, and `ConfigurationError` where no package reads it.
    """
    files, path = _opened(url)
    try:
        if isinstance(files, AsyncFileSystem):
            data: bytes = sync(files.loop, files._cat_file, path, timeout=FETCH_S)
        else:
            data = files.cat_file(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{url}: no such file") from error
    except Exception as error:
        raise OSError(f"{url}: {str(error).rstrip('.') or type(error).__name__}") from error
    return data


def _opened(url: str) -> tuple[Any, str]:
    is_s3 = url.startswith(("s3://", "s3a://"))
    try:
        files, path = fsspec.core.url_to_fs(
            url, use_listings_cache=False, **(_s3_options() if is_s3 else {})
        )
    except (ImportError, ValueError) as error:
        extra = f": {install_command('s3fs')}" if is_s3 else ""
        raise ConfigurationError(
            f"{url!r} cannot be opened: {error}; install the fsspec package for it{extra}"
        ) from error
    return files, path


class RemoteFiles:
    """The files below one URL; paths are relative, with ``/`` between parts."""

    def __init__(self, url: str) -> None:
        if "::" in url:
            raise ConfigurationError(
                f"storage {url!r} cannot be used: what stands before '::' would show what was "
                "there a while ago; name the store itself"
            )
        self.url = url.rstrip("/")
        self._open()
        protocols = {self._fs.protocol} if isinstance(self._fs.protocol, str) else self._fs.protocol
        self._is_s3 = not _S3.isdisjoint(protocols)
        self.has_directories = OBJECT_STORES.isdisjoint(protocols)
        if self.has_directories and not _renames(self._fs):
            raise ConfigurationError(
                f"storage {url!r} cannot be used: it has neither whole objects nor a rename, so "
                "half a file would be seen; use a local directory or an object store"
            )
        if self._is_s3:
            self._fs.retries = S3_TRIES
            for name in ("botocore", "aiobotocore"):  # Every process logs its credentials' source.
                logging.getLogger(name).setLevel(logging.WARNING)

    def read(self, path: str) -> bytes:
        """Return a file's bytes, or raise ``FileNotFoundError``."""
        # One request, so that a file published meanwhile is not mixed in.
        whole = {"max_concurrency": 1} if self._is_s3 else {}
        data: bytes = self._call("cat_file", path, **whole)
        return data

    def publish(self, path: str, data: bytes) -> None:
        """Make the file hold these bytes: whole, replacing what was there."""
        if not self.has_directories:
            parts = {"chunksize": S3_PART_BYTES} if self._is_s3 else {}
            # Without creating the parent: s3fs would create a bucket for a misspelt name.
            self._call("pipe_file", path, data, **parts)
            return
        with self._draft_of(path) as draft:
            self._call("pipe_file", draft, data)

    def publish_file(self, path: str, source: BinaryIO) -> None:
        """Do the same with the bytes of an open file of this host, piece by piece."""
        local = f"/proc/self/fd/{source.fileno()}"  # The file may have no name any more.
        if not self.has_directories:
            parts = {"chunksize": S3_PART_BYTES} if self._is_s3 else {}
            self._asked("put_file", path, local, self._full(path), limit_s=LARGE_S, **parts)
            return
        with self._draft_of(path) as draft:
            self._asked("put_file", draft, local, self._full(draft), limit_s=LARGE_S)

    @contextlib.contextmanager
    def _draft_of(self, path: str) -> Iterator[str]:
        """Yield the path of a draft, which is renamed to the file after the block."""
        above, _, _ = path.rpartition("/")
        draft = f"{above}/{DRAFT}{uuid.uuid4().hex}".lstrip("/")
        self._call("makedirs", above, exist_ok=True)
        try:
            yield draft
            self._rename(draft, path)
        except BaseException:
            self._discard(draft)
            raise

    def delete(self, path: str) -> None:
        """Remove a file, or raise ``FileNotFoundError``, which not every store reports."""
        self._call("rm_file", path)

    def delete_tree(self, path: str) -> None:
        """Remove everything below a path, and the path; absent is fine."""
        if self.has_directories:
            self._delete_directory(path)
            return
        for number in range(DELETE_ROUNDS_MAX):
            found = self._below(path)
            if not found:
                return
            self._delete_all(found, at_once=number == 0)
        raise OSError(
            f"{self._place(path)}: another process keeps writing below, or nothing is deleted"
        )

    def prune(self, path: str) -> None:
        """Remove the directory if it is empty, and its parents as long as they are empty."""
        while path:
            entries = self._entries(path)
            if any(name for name in entries if not name.startswith(DRAFT)):
                return
            if self.has_directories and not self._remove_directory(path):
                return
            if "" in entries:
                mark = f"{self._full(path)}/"
                self._asked("rm_file", path, mark)  # The mark of an empty directory.
            path = path.rpartition("/")[0]

    def names(self, path: str) -> list[str]:
        """List the files and directories directly below a path, sorted; absent is empty."""
        return sorted(name for name in self._entries(path) if name and not name.startswith(DRAFT))

    def sizes(self, path: str) -> dict[str, int]:
        """Return the sizes of the files below a path, by relative path; absent is empty."""
        below = f"{self._full(path)}/"
        try:
            found = self._call("find", path, detail=True)
        except FileNotFoundError:
            return {}
        return {
            name.removeprefix(below): int(info["size"] or 0)
            for name, info in found.items()
            if name.startswith(below)
            and not name.endswith("/")
            and not name.rpartition("/")[2].startswith(DRAFT)
        }

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        try:
            self._call("info", path)  # fsspec's `exists` takes any failure for absence.
        except FileNotFoundError:
            return False
        return True

    # --- one call ---------------------------------------------------------------------------------

    def _call(self, verb: str, path: str, *args: Any, **more: Any) -> Any:
        return self._asked(verb, path, self._full(path), *args, **more)

    def _asked(self, verb: str, path: str, *args: Any, limit_s: float = 0.0, **more: Any) -> Any:
        """Call the store; translate errors, which then name the path."""
        limit_s = limit_s or CALL_S
        if os.getpid() != self._pid:
            self._open()  # A fork does not have the parent's fsspec thread.
        try:
            if isinstance(self._fs, AsyncFileSystem):
                function = getattr(self._fs, f"_{verb}")
                return sync(self._fs.loop, function, *args, timeout=limit_s, **more)
            return getattr(self._fs, verb)(*args, **more)
        except (FileNotFoundError, NotADirectoryError) as error:
            if _code(error) not in _NO_SUCH_BUCKET:
                raise FileNotFoundError(f"{self._place(path)}: no such file") from error
            raise OSError(self._no_bucket()) from error
        except Exception as error:
            raise self._explained(error, path, limit_s) from error

    def _explained(self, error: Exception, path: str, limit_s: float) -> OSError:
        """Return an ``OSError`` (an unknown outcome) that says what to do."""
        where, reason = self._place(path), str(error).rstrip(".") or type(error).__name__
        if isinstance(error, TimeoutError):
            return TimeoutError(f"{where}: no answer within {limit_s:g} s")
        if type(error).__name__ in _NO_CREDENTIALS:
            return PermissionError(
                f"{reason}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            )
        if isinstance(error, PermissionError):
            return PermissionError(
                f"{where}: {reason}: the credentials must allow to read, write, delete and list "
                "here"
            )
        return OSError(f"{where}: {reason}")

    def _no_bucket(self) -> str:
        bucket = self._root.strip("/").partition("/")[0]
        endpoint = getattr(getattr(self._fs, "_s3", None), "meta", None)
        at = f" at {endpoint.endpoint_url}" if endpoint else ""
        return f"there is no bucket {bucket!r}{at}: create it, or name another"

    # --- parts of the verbs -----------------------------------------------------------------------

    def _open(self) -> None:
        self._fs, root = _opened(self.url)
        self._root = root.rstrip("/")
        self._pid = os.getpid()

    def _entries(self, path: str) -> set[str]:
        """Return the names in a listing; an empty name is the mark of the directory itself."""
        below = f"{self._full(path)}/"
        try:
            found = self._call("ls", path, detail=False)
        except FileNotFoundError:
            return set()
        names = (str(name) for name in found)
        return {name.removeprefix(below).strip("/") for name in names if name.startswith(below)}

    def _below(self, path: str) -> list[str]:
        try:
            return list(self._call("find", path))
        except FileNotFoundError:
            return []

    def _delete_directory(self, path: str) -> None:
        """Delete a directory file by file: a store's own `rm` may take a name for a pattern."""
        try:
            found = self._call("find", path, withdirs=True, detail=True)
        except FileNotFoundError:
            return
        top = self._full(path)
        directories = {name for name, info in found.items() if info["type"] == "directory"} | {top}
        self._delete_all(set(found) - directories, at_once=False)
        for name in sorted(directories, key=lambda name: name.count("/"), reverse=True):
            with contextlib.suppress(FileNotFoundError):
                self._asked("rmdir", name, name)

    def _delete_all(self, found: Iterable[str], *, at_once: bool) -> None:
        """Delete objects by their full names."""
        # A request for many files may silently skip some: the next round deletes one by one.
        together = [name for name in found if at_once and not glob.has_magic(name)]
        if together:
            self._asked("rm", together[0], together)
        for name in set(found).difference(together):
            with contextlib.suppress(FileNotFoundError):
                self._asked("rm_file", name, name)

    def _rename(self, draft: str, path: str) -> None:
        source, target = self._full(draft), self._full(path)
        try:
            self._asked("mv", path, source, target)
        except OSError:
            # HDFS does not rename onto a file. The existing file is older or has the same bytes.
            if not self.exists(path):
                raise
            self._call("rm_file", path)
            self._asked("mv", path, source, target)

    def _discard(self, draft: str) -> None:
        with contextlib.suppress(OSError):
            self._call("rm_file", draft)

    def _remove_directory(self, path: str) -> bool:
        """Remove an empty directory; return whether it is gone."""
        try:
            self._call("rmdir", path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}".rstrip("/")

    def _place(self, path: str) -> str:
        return f"{self.url}/{path}" if not path.startswith(self._root) else path


def _renames(fs: AbstractFileSystem) -> bool:
    """Return whether a file system has a rename of its own, not copy and delete."""
    return type(fs).mv is not AbstractFileSystem.mv


def _s3_options() -> dict[str, Any]:
    """Return the options of s3fs; values in the person's fsspec configuration take precedence."""
    theirs: Mapping[str, Any] = {}
    for protocol in _S3:
        theirs = {**theirs, **fsspec_configuration.get(protocol, {}).get("config_kwargs", {})}
    ours = {
        "connect_timeout": S3_CONNECT_S,
        "read_timeout": S3_SILENCE_S,
        "retries": {"mode": "standard", "total_max_attempts": S3_ATTEMPTS},
    }
    return {"config_kwargs": {**ours, **theirs}}


def _code(error: BaseException | None) -> str:
    """Return the error code of an object store, from anywhere in the chain of causes."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        error = error.__cause__ or error.__context__
    return ""
