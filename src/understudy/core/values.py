"""Return values of jobs: JSON, so that every execution of ``main`` sees the same value.

A value comes back with its type. What JSON has no type for is an object with one key, which begins
with an exclamation mark: ``{"!decimal": "1.10"}``, ``{"!tuple": [1, 2]}``. A dict of the user that
looks like that has one mark more, ``{"!!tuple": 1}``. Text without such objects, as earlier
versions wrote it, has the same meaning as ever.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from understudy.errors import InvalidValueError

DEPTH_MAX = 200
"""Deepest nesting of a value: encoders recurse, and no real data nests deeper."""

DIGITS_MAX = 4300
"""Longest integer: by default Python neither prints nor parses a longer one."""

_INTEGER_LIMIT = 10**DIGITS_MAX

MEASURED_BYTES_MAX = 1 << 20
"""A value that exceeds the limit by more than this is refused before encoding, which would take
seconds and as much memory again; the message then gives the size counted so far."""


ONCE_BYTES_MAX = 64 << 10
"""Limit for all values of ``env.once`` in a run: the register holds them."""

MARK = "!"

_TEXTS: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    Decimal: ("decimal", str, Decimal),
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("date", date.isoformat, date.fromisoformat),
    UUID: ("uuid", str, UUID),
    type(Path()): ("path", str, Path),
}
"""Types that are kept as text: the name behind the mark, and how the text is written and read."""

_LISTS: dict[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset"}
"""Types that are kept as lists, with the name behind the mark."""

_READ_TEXT = {name: read for name, _, read in _TEXTS.values()}
_READ_LIST: dict[str, Callable[[list[Any]], Any]] = {name: kind for kind, name in _LISTS.items()}


def _name(key: str) -> str:
    """Return the name behind the marks of a key; empty if it is an ordinary key."""
    name = key.lstrip(MARK)
    return name if name != key and (name in _READ_TEXT or name in _READ_LIST) else ""


def _typed(mapping: dict[str, Any]) -> Any:
    """Return what an object of JSON stands for."""
    ((key, item),) = mapping.items() if len(mapping) == 1 else (("", None),)
    name = _name(key)
    if not name:
        return mapping
    if key != MARK + name:
        return {key.removeprefix(MARK): item}
    try:
        if isinstance(item, str) and name in _READ_TEXT:
            return _READ_TEXT[name](item)
        if isinstance(item, list) and name in _READ_LIST:
            return _READ_LIST[name](item)
    except (TypeError, ValueError, ArithmeticError):
        pass  # A dict of a user, written before there were marks.
    return mapping


def _shown_plainly(mapping: dict[str, Any]) -> Any:
    """Return an object of JSON without its mark."""
    ((key, item),) = mapping.items() if len(mapping) == 1 else (("", None),)
    name = _name(key)
    if not name or _typed(mapping) is mapping:
        return mapping
    return item if key == MARK + name else {key.removeprefix(MARK): item}


_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
_decode = json.JSONDecoder(object_hook=_typed).decode
_decode_plain = json.JSONDecoder(object_hook=_shown_plainly).decode
"""Held since the import: a job that replaces ``json.dumps`` returns the same value."""


def encode_value(value: object, size_max: int) -> msgspec.Raw:
    """Return the value as JSON text, or raise `InvalidValueError` that names the path.

    Kept with their types: None, bool, finite float, int of up to `DIGITS_MAX` digits, str, list,
    tuple, set, frozenset, dict with str keys, Decimal, datetime (its time zone as an offset), date,
    UUID and Path. A scalar of numpy becomes the Python scalar of its value. Nothing else is
    converted.
    """
    encoded = _encode(_Check(size_max).see(value, "$", 0)).encode()
    if len(encoded) > size_max:
        raise _too_large(str(len(encoded)), size_max)
    return msgspec.Raw(encoded)


def _too_large(size: str, size_max: int) -> InvalidValueError:
    return InvalidValueError(
        f"$: the value is {size} bytes of JSON, job.result.max-size is {size_max}: "
        "return less, and put data into files or tables"
    )


def decode_value(encoded: msgspec.Raw | bytes) -> Any:
    """Return what `encode_value` encoded, with its types."""
    return _decode(bytes(encoded).decode())


def plain_value(encoded: msgspec.Raw | bytes) -> Any:
    """Return what `encode_value` encoded as plain JSON, for people and REST.

    A tuple and a set are lists; a Decimal, a time, a UUID and a Path are strings.
    """
    return _decode_plain(bytes(encoded).decode())


class _Check:
    """Converts a value recursively to JSON, and counts a lower bound of its size."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0

    def see(self, value: Any, path: str, depth: int) -> Any:
        """Return JSON; raise `InvalidValueError` if the value cannot be kept or is too large."""
        if depth > DEPTH_MAX:
            raise InvalidValueError(f"{path}: nested deeper than {DEPTH_MAX}")
        value = _without_numpy(value)
        kind = type(value)
        if kind is str:
            return self._text(value, path)
        if kind is list:
            return self._items(value, path, depth)
        if kind is dict:
            return self._mapping(value, path, depth)
        if kind in _LISTS:
            items = self._items(value, path, depth)
            return self._marked(_LISTS[kind], items if kind is tuple else _ordered(items))
        if kind in _TEXTS:
            name, write, _ = _TEXTS[kind]
            return self._marked(name, self._text(write(value), path))
        return self._atom(value, path)

    def _atom(self, value: Any, path: str) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            self._count(len("true"))
        elif kind is int:
            self._count(1)
            if abs(value) >= _INTEGER_LIMIT:
                raise InvalidValueError(
                    f"{path}: an integer of more than {DIGITS_MAX} digits: return it as a string"
                )
        elif kind is float:
            self._count(len("0.0"))
            if not math.isfinite(value):
                raise InvalidValueError(f"{path}: {value} is not JSON: return None instead")
        else:
            raise InvalidValueError(
                f"{path}: {kind.__module__}.{kind.__qualname__} cannot be kept: {way_out(kind)}"
            )
        return value

    def _text(self, value: str, path: str) -> str:
        self._count(len(value) + len('""'))
        if _holds_surrogate(value):
            raise InvalidValueError(f"{path}: the string holds a lone surrogate: it is no text")
        return value

    def _items(self, value: Any, path: str, depth: int) -> list[Any]:
        self._count(len(value) + len("]"))
        return [self.see(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]

    def _mapping(self, value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
        self._count(len(value) + len("}"))
        seen = {}
        for given, item in value.items():
            key = self._key(_without_numpy(given), path)
            seen[key] = self.see(item, f"{path}.{key}", depth + 1)
        if len(seen) == 1 and _name(key):
            return {MARK + key: seen[key]}
        return seen

    def _marked(self, name: str, item: Any) -> dict[str, Any]:
        self._count(len(name) + len('{"!":}'))
        return {MARK + name: item}

    def _key(self, key: Any, path: str) -> str:
        if type(key) is not str:
            raise InvalidValueError(
                f"{path}: the key {_shown(key)} is a {type(key).__name__}: JSON keys are strings, "
                "so use str(key)"
            )
        self._count(len(key) + len('"":'))
        if _holds_surrogate(key):
            raise InvalidValueError(f"{path}: the key {key!r} holds a lone surrogate")
        return key

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._size_max + MEASURED_BYTES_MAX:
            raise _too_large(f"at least {self._size}", self._size_max)


def _without_numpy(value: Any) -> Any:
    """Return a scalar of numpy as the Python scalar of its value; anything else as it is."""
    kind = type(value)
    if kind.__module__ != "numpy" or all(base.__name__ != "generic" for base in kind.__mro__):
        return value
    item = value.item()
    if kind.__name__ == "datetime64":  # Of nanoseconds, ``item`` is an int without its unit.
        return item if type(item) in (date, datetime) else value
    return (
        item if type(item) in (bool, int, float, str) and kind.__name__ != "timedelta64" else value
    )


def _ordered(items: list[Any]) -> list[Any]:
    """Return the items of a set in an order that is the same in each process."""
    if {type(item) for item in items} in ({str}, {int}, {float}):
        return sorted(items)
    return sorted(items, key=_encode)


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


# --- what a job can return instead of a value that cannot be kept ---------------------------------
#
# By the name of its type, without importing the type. The table serves a value that was returned,
# and an annotation that announces one.


_TABLE = "return ctx.table(df): a later job gets the DataFrame by ctx.read(handle)"
_OWN_SESSION = "return data: each job has a session of its own, ctx.spark"
_LIST = "return list(value)"
_BYTES = "return value.hex(), or write the bytes to a file and return its path"

_BY_NAME = {
    "pyspark.DataFrame": _TABLE,
    "pyspark.RDD": "write the rows to a place and return its path",
    "pyspark.Row": "return row.asDict(recursive=True)",
    "pyspark.Column": "return data: a column has a value only within a DataFrame",
    "pyspark.SparkSession": _OWN_SESSION,
    "pyspark.SparkContext": _OWN_SESSION,
    "pandas.DataFrame": "return df.to_dict('records'), or write df to a file and return its path",
    "pandas.Series": "return series.to_dict()",
    "pandas.Timestamp": "return value.to_pydatetime()",
    "numpy.ndarray": "return array.tolist()",
    "numpy.datetime64": "return value.astype('datetime64[us]').item()",
    "numpy.timedelta64": "return value / numpy.timedelta64(1, 's'), in seconds",
    "datetime.timedelta": "return value.total_seconds()",
    "datetime.time": "return value.isoformat()",
    "builtins.bytes": _BYTES,
    "builtins.bytearray": _BYTES,
    "builtins.complex": "return (value.real, value.imag)",
    "builtins.range": _LIST,
    "builtins.generator": _LIST,
    "builtins.dict_keys": _LIST,
    "builtins.dict_values": _LIST,
    "builtins.dict_items": _LIST,
    "builtins.map": _LIST,
    "builtins.filter": _LIST,
    "builtins.zip": _LIST,
    "builtins.coroutine": "return the awaited value: asyncio.run(…) inside the function",
}
"""By the package that defines a class, or a base of it, and the name of that class."""

_ALIASES = {"": "pyspark", "pyspark": "pyspark", "sql": "pyspark", "pd": "pandas", "np": "numpy"}
"""The package that is meant by what stands before a name in an annotation; often nothing."""

_KEPT = (str, int, float, list, dict, tuple, set, frozenset)


def known_way_out(kind: type) -> str:
    """Return what to do instead of keeping a value of this type; empty if nothing is known."""
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if way := _BY_NAME.get(f"{package}.{base.__name__}"):
            return way
    if issubclass(kind, enum.Enum):
        return "return value.value"
    if hasattr(kind, "__dataclass_fields__"):
        return "return dataclasses.asdict(value)"
    if issubclass(kind, tuple) and hasattr(kind, "_asdict"):
        return "return value._asdict()"
    return ""


def known_way_out_by_name(annotation: str) -> str:
    """Return the same for an annotation in a text that only type checkers understand."""
    prefix, _, name = annotation.strip().rpartition(".")
    package = _ALIASES.get(prefix.partition(".")[0], "")
    return _BY_NAME.get(f"{package}.{name}", "")


def way_out(kind: type) -> str:
    """Return what to do instead of keeping a value of this type."""
    if known := known_way_out(kind):
        return known
    for base in _KEPT:
        if issubclass(kind, base):
            return f"return {base.__name__}(value)"
    return (
        "return None, bool, int, float, str, list, tuple, set, dict, Decimal, datetime, date, UUID "
        "or Path"
    )
