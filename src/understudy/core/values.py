"""What a job may return: JSON exactly, so that both executions of ``main`` see the same."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from understudy.errors import InvalidValueError

DEPTH_MAX = 200
"""Deeper nesting than any data that people write; encoders recurse."""


def encode_value(value: object, size_max: int) -> msgspec.Raw:
    """Return the value as JSON text, or raise `InvalidValueError` that names the path.

    Allowed: None, bool, finite float, int of any size, str, list, tuple (becomes a list), dict
    with str keys. Nothing is converted silently, as ``json`` and ``msgspec`` would do.
    """
    _check(value, "$", 0)
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"$: a string holds a lone surrogate: {error.reason}") from error
    if len(encoded) > size_max:
        raise InvalidValueError(
            f"$: the value is {len(encoded)} bytes of JSON, job.result.max-size is {size_max}: "
            "return less, and put data into files or tables"
        )
    return msgspec.Raw(encoded)


def decode_value(encoded: msgspec.Raw) -> Any:
    """Return what `encode_value` encoded."""
    return json.loads(bytes(encoded))


def _check(value: object, path: str, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InvalidValueError(f"{path}: nested deeper than {DEPTH_MAX}")
    kind = type(value)
    if value is None or kind in {bool, str, int}:
        return
    if kind is float:
        assert isinstance(value, float)
        if not math.isfinite(value):
            raise InvalidValueError(f"{path}: {value} is not JSON: return None instead")
        return
    if kind is list or kind is tuple:
        assert isinstance(value, list | tuple)
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", depth + 1)
        return
    if kind is dict:
        assert isinstance(value, dict)
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidValueError(
                    f"{path}: the key {key!r} is a {type(key).__name__}: JSON keys are strings"
                )
            _check(item, f"{path}.{key}", depth + 1)
        return
    raise InvalidValueError(
        f"{path}: {kind.__module__}.{kind.__qualname__} is not JSON: convert it to None, bool, "
        "int, float, str, list or dict (a DataFrame belongs in a file or table)"
    )
