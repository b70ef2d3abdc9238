"""Where Spark finds what lies in our storage, and where Python finds what Spark names.

The one place that knows both spellings. It imports nothing of Spark.
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
"""Schemes as Python is told them, as Spark is, and what else a person may write; what is not here
is the same everywhere."""

_PYTHONS = {name: python for python, spark, more in _STORES for name in (python, spark, *more)}
_SPARKS = {name: spark for python, spark, more in _STORES for name in (python, spark, *more)}


def spark_url(storage_url: str, path: str) -> str:
    """Return a path of a storage as Spark understands it; an absolute path or a URL stays.

    Below a local storage that is an absolute path. A storage in memory, as the embedded cluster
    has, is out of Spark's reach: what it would hold lies in a directory that ends with this
    process.
    """
    if storage_url.startswith(_MEMORY) and not _stands_for_itself(path):
        return f"{_scratch()}/{path}"
    return _with_scheme_of(_SPARKS, _whole(storage_url, path))


def plain_url(location: str) -> str:
    """Return where Python finds what Spark calls so: a local path, or a URL that fsspec opens."""
    return _with_scheme_of(_PYTHONS, location)


def address_of(storage_url: str, path: str) -> str:
    """Return the one address of a path of a storage, or of a path or URL that stands for itself.

    It is where Python finds it, and ends with no slash: addresses can be compared.
    """
    return plain_url(_whole(storage_url, path)).rstrip("/")


def _whole(storage_url: str, path: str) -> str:
    return path if _stands_for_itself(path) else f"{storage_url.rstrip('/')}/{path}"


def _stands_for_itself(path: str) -> bool:
    return path.startswith(("/", _FILE)) or "://" in path


def _with_scheme_of(schemes: dict[str, str], location: str) -> str:
    """Return a URL with its scheme's other name, and a local path as Spark spells it.

    Of a ``file`` URL Hadoop has three spellings.
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
