"""What a job can return instead of a value that cannot be kept: by its type, without importing it.

The same table serves a value that was returned and an annotation that announces one.
"""

from __future__ import annotations

import enum

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
