"""Return values of jobs: exactly JSON, so that every execution of ``main`` sees the same value."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from understudy.errors import InvalidValueError

DEPTH_MAX = 200
"""Deepest nesting of a value: encoders recurse, and no real data nests deeper."""

DIGITS_MAX = 4300
"""Longest integer: by default Python neither prints nor parses a longer one."""

_INTEGER_LIMIT = 10**DIGITS_MAX

_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().decode
"""Held since the import: a job that replaces ``json.dumps`` returns the same value."""

MEASURED_BYTES_MAX = 1 << 20
"""A value that exceeds the limit by more than this is refused before encoding, which would take
seconds and as much memory again; the message then gives the size counted so far."""


def encode_value(value: object, size_max: int) -> msgspec.Raw:
    """Return the value as JSON text, or raise `InvalidValueError` that names the path.

    Allowed: None, bool, finite float, int of up to `DIGITS_MAX` digits, str, list, tuple (becomes
    a list), dict with str keys. Unlike ``json`` and ``msgspec``, this converts nothing silently.
    """
    _Check(size_max).see(value, "$", 0)
    encoded = _encode(value).encode()
    if len(encoded) > size_max:
        raise _too_large(str(len(encoded)), size_max)
    return msgspec.Raw(encoded)


def _too_large(size: str, size_max: int) -> InvalidValueError:
    return InvalidValueError(
        f"$: the value is {size} bytes of JSON, job.result.max-size is {size_max}: "
        "return less, and put data into files or tables"
    )


def decode_value(encoded: msgspec.Raw) -> Any:
    """Return what `encode_value` encoded."""
    return _decode(bytes(encoded).decode())


class _Check:
    """Validates a value recursively and counts a lower bound of its JSON size."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0

    def see(self, value: object, path: str, depth: int) -> None:
        """Raise `InvalidValueError` if the value is not JSON or is far too large."""
        if depth > DEPTH_MAX:
            raise InvalidValueError(f"{path}: nested deeper than {DEPTH_MAX}")
        kind = type(value)
        if value is None or kind is bool:
            self._count(len("true"))
        elif kind is str:
            assert isinstance(value, str)
            self._count(len(value) + len('""'))
            if _holds_surrogate(value):
                raise InvalidValueError(f"{path}: the string holds a lone surrogate: it is no text")
        elif kind is int:
            assert isinstance(value, int)
            self._count(1)
            if abs(value) >= _INTEGER_LIMIT:
                raise InvalidValueError(
                    f"{path}: an integer of more than {DIGITS_MAX} digits: return it as a string"
                )
        elif kind is float:
            assert isinstance(value, float)
            self._count(len("0.0"))
            if not math.isfinite(value):
                raise InvalidValueError(f"{path}: {value} is not JSON: return None instead")
        elif kind is list or kind is tuple:
            assert isinstance(value, list | tuple)
            self._count(len(value) + len("]"))
            for index, item in enumerate(value):
                self.see(item, f"{path}[{index}]", depth + 1)
        elif kind is dict:
            assert isinstance(value, dict)
            self._count(len(value) + len("}"))
            for key, item in value.items():
                self._key(key, path)
                self.see(item, f"{path}.{key}", depth + 1)
        else:
            raise InvalidValueError(
                f"{path}: {kind.__module__}.{kind.__qualname__} is not JSON: convert it to None, "
                "bool, int, float, str, list or dict (a DataFrame belongs in a file or table)"
            )

    def _key(self, key: object, path: str) -> None:
        if type(key) is not str:
            raise InvalidValueError(
                f"{path}: the key {_shown(key)} is a {type(key).__name__}: JSON keys are strings"
            )
        assert isinstance(key, str)
        self._count(len(key) + len('"":'))
        if _holds_surrogate(key):
            raise InvalidValueError(f"{path}: the key {key!r} holds a lone surrogate")

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._size_max + MEASURED_BYTES_MAX:
            raise _too_large(f"at least {self._size}", self._size_max)


def _holds_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _shown(key: object) -> str:
    try:
        return repr(key)
    except Exception:  # The user's __repr__ or a huge integer may raise anything.
        return "…"
