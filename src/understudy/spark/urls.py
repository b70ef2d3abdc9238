"""Converts locations between the spellings of Spark and of Python (fsspec).

Only this module knows both spellings. It imports nothing of Spark.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile

from understudy.config.option import local_path

_MEMORY = "memory://"
_FILE = "file:"

_STORES = (
    ("s3", "s3a", ("s3n",)),
    ("gs", "gs", ("gcs",)),
    ("abfs", "abfs", ("az",)),
)
"""Schemes in Python, in Spark, and other spellings that users write; any other scheme is the same
everywhere."""

_PYTHONS = {name: python for python, spark, more in _STORES for name in (python, spark, *more)}
_SPARKS = {name: spark for python, spark, more in _STORES for name in (python, spark, *more)}


def spark_url(storage_url: str, path: str) -> str:
    """Return a storage path in Spark's spelling; an absolute path or a URL stays.

    For a local storage that is an absolute path. Spark cannot reach a storage in memory, which the
    embedded cluster has: a temporary directory, removed at the end of this process, replaces it.
    """
    if storage_url.startswith(_MEMORY) and not _stands_for_itself(path):
        return f"{_scratch()}/{path}"
    return _with_scheme_of(_SPARKS, _whole(storage_url, path))


def plain_url(location: str) -> str:
    """Return a location of Spark's in Python's spelling: a local path, or a URL for fsspec."""
    return _with_scheme_of(_PYTHONS, location)


def address_of(storage_url: str, path: str) -> str:
    """Return the canonical address of a storage path, or of an absolute path or URL.

    The address is in Python's spelling, without a trailing slash, so that addresses are comparable.
    """
    return plain_url(_whole(storage_url, path)).rstrip("/")


def _whole(storage_url: str, path: str) -> str:
    return path if _stands_for_itself(path) else f"{storage_url.rstrip('/')}/{path}"


def _stands_for_itself(path: str) -> bool:
    return path.startswith(("/", _FILE)) or "://" in path


def _with_scheme_of(schemes: dict[str, str], location: str) -> str:
    """Return a URL with its scheme converted, and a local path in Spark's spelling.

    Hadoop has three spellings of a ``file`` URL.
    """
    if location.startswith(_FILE):
        location = "/" + location.removeprefix(_FILE).lstrip("/")
    scheme, separator, rest = location.partition("://")
    if separator:
        return f"{schemes.get(scheme, scheme)}{separator}{rest}"
    return local_path(location)


@functools.cache
def _scratch() -> str:
    directory = tempfile.mkdtemp(prefix="understudy-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
