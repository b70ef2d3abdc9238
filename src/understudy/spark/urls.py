"""Where Spark finds what lies in our storage, and where Python finds what Spark names.

The one place that knows both spellings. It imports nothing of Spark.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = "memory://"

_HADOOP = {"s3": "s3a", "gcs": "gs", "az": "abfs"}
"""Schemes that Hadoop, and so Spark, calls otherwise than fsspec; what is not here is the same."""

_FSSPEC = {"s3a": "s3", "s3n": "s3"}


def spark_url(storage_url: str, path: str) -> str:
    """Return a path of a storage as Spark understands it; an absolute path or a URL stays.

    Below a local storage that is an absolute path. A storage in memory, as the embedded cluster
    has, is out of Spark's reach: what it would hold lies in a directory that ends with this
    process.
    """
    if "://" in path or path.startswith("/"):
        return _with_scheme_of(_HADOOP, _without_scheme(path))
    if storage_url.startswith(_MEMORY):
        return f"{_scratch()}/{path}"
    root = _without_scheme(storage_url)
    if "://" in root:
        return _with_scheme_of(_HADOOP, f"{root.rstrip('/')}/{path}")
    return os.path.normpath(Path(root).absolute() / path)  # As Spark will spell it.


def plain_url(location: str) -> str:
    """Return where Python finds what Spark calls so: a local path, or a URL that fsspec opens."""
    return _with_scheme_of(_FSSPEC, _without_scheme(location))


def _with_scheme_of(schemes: dict[str, str], location: str) -> str:
    scheme, separator, rest = location.partition("://")
    return f"{schemes.get(scheme, scheme)}{separator}{rest}" if separator else location


def _without_scheme(location: str) -> str:
    """Return a local path for a ``file`` URL, of which Hadoop has three spellings."""
    if not location.startswith("file:"):
        return location
    return "/" + location.removeprefix("file:").lstrip("/")


@functools.cache
def _scratch() -> str:
    directory = tempfile.mkdtemp(prefix="understudy-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
