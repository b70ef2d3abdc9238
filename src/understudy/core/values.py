"""What a job may return: JSON exactly, so that both executions of ``main`` see the same."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from understudy.errors import InvalidValueError

DEPTH_MAX = 200
"""Deeper nesting than any data that people write; encoders recurse."""

DIGITS_MAX = 4300
"""Python itself refuses to print or to read longer integers, unless told otherwise."""

_INTEGER_LIMIT = 10**DIGITS_MAX


def encode_value(value: object, size_max: int) -> msgspec.Raw:
    """Return the value as JSON text, or raise `InvalidValueError` that names the path.

    Allowed: None, bool, finite float, int of up to `DIGITS_MAX` digits, str, list, tuple (becomes
    a list), dict with str keys. Nothing is converted silently, as ``json`` and ``msgspec`` would.
    """
    _check(value, "$", 0)
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    encoded = text.encode()
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
    if value is None or kind is bool:
        return
    if kind is str:
        assert isinstance(value, str)
        if _holds_surrogate(value):
            raise InvalidValueError(f"{path}: the string holds a lone surrogate: it is no text")
        return
    if kind is int:
        assert isinstance(value, int)
        if abs(value) >= _INTEGER_LIMIT:
            raise InvalidValueError(
                f"{path}: an integer of more than {DIGITS_MAX} digits: return it as a string"
            )
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
                    f"{path}: the key {_shown(key)} is a {type(key).__name__}: "
                    "JSON keys are strings"
                )
            if _holds_surrogate(key):
                raise InvalidValueError(f"{path}: the key {key!r} holds a lone surrogate")
            _check(item, f"{path}.{key}", depth + 1)
        return
    raise InvalidValueError(
        f"{path}: {kind.__module__}.{kind.__qualname__} is not JSON: convert it to None, bool, "
        "int, float, str, list or dict (a DataFrame belongs in a file or table)"
    )


def _holds_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _shown(key: object) -> str:
    try:
        return repr(key)
    except Exception:  # What a person's class, or an endless integer, makes of it is not our end.
        return "…"
