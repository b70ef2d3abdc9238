"""Execution plans: the durable form of a job's function and arguments.

A plan is code: the process of ``main`` writes it, and only the driver that runs it reads it, after
a check of its digest. The JobManagers pass a plan by pointer and never open it.

Layout: one line of JSON (name, versions), then the cloudpickle of ``(function, args, kwargs)``.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import msgspec

from understudy.errors import CorruptDataError, PlanError, PlanVersionError
from understudy.ha.format import digest
from understudy.model import Pointer
from understudy.process.unpicklable import blame
from understudy.spark.installed import pyspark_version

FORMAT = 1


class Header(msgspec.Struct, frozen=True):
    """The first line of a plan: format, job name and versions."""

    format: int
    name: str
    versions: dict[str, str]


def encode_plan(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bytes:
    """Return the plan of a job; raises `PlanError` if a part cannot be pickled."""
    try:
        body = cloudpickle.dumps((function, args, dict(kwargs)))
    except Exception as error:
        blamed = blame(function, args, kwargs)
        raise PlanError(f"job {name!r} cannot be pickled: {'; '.join(blamed) or error}") from error
    header = msgspec.json.encode(Header(FORMAT, name, current_versions()))
    return header + b"\n" + bytes(body)


def decode_plan(
    data: bytes, pointer: Pointer
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return function and arguments; raises `CorruptDataError`, `PlanVersionError`, `PlanError`."""
    if digest(data) != pointer.digest:
        raise CorruptDataError(f"{pointer.path}: the plan was altered since it was stored")
    header_bytes, _, body = data.partition(b"\n")
    try:
        header = msgspec.json.decode(header_bytes, type=Header)
    except msgspec.DecodeError as error:
        raise CorruptDataError(f"{pointer.path}: not a plan: {error}") from error
    _check_versions(header, pointer)
    try:
        function, args, kwargs = cloudpickle.loads(body)
    except Exception as error:
        raise PlanError(
            f"the plan of job {header.name!r} cannot be loaded in the driver: "
            f"{type(error).__name__}: {error}; modules that it needs must lie beside the script, "
            "or be given with --py-files"
        ) from error
    return function, args, kwargs


@functools.cache
def current_versions() -> dict[str, str]:
    """Return the versions that must be the same for the writer and the reader of a plan."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "cloudpickle": cloudpickle.__version__,
        "pyspark": pyspark_version() or "none",
    }


def _check_versions(header: Header, pointer: Pointer) -> None:
    here = current_versions()
    different = [
        f"{name} {written} (here {here.get(name, 'none')})"
        for name, written in header.versions.items()
        if here.get(name) != written
    ]
    if header.format != FORMAT:
        different.append(f"plan format {header.format} (here {FORMAT})")
    if different:
        raise PlanVersionError(
            f"{pointer.path}: the plan of job {header.name!r} was written with "
            f"{', '.join(different)}: run it with those versions, or start a new run"
        )
