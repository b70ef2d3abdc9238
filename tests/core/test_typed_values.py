"""A value comes back with the types that JSON does not have, or is refused with its way out."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import subprocess
import sys
import uuid
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.values import DEPTH_MAX, decode_value, encode_value, plain_value
from understudy.errors import InvalidValueError

EXPLORE = settings(max_examples=300, deadline=None, derandomize=True)

SIZE_MAX = 256 * 1024

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ZONES = st.integers(-1439, 1439).map(
    lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes))
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.decimals(allow_nan=False)
    | st.datetimes()
    | st.datetimes(timezones=ZONES)
    | st.dates()
    | st.uuids()
    | TEXTS.map(pathlib.Path)
)
KEYS = TEXTS | st.sampled_from(["!tuple", "!!tuple", "!decimal", "!", "!set", "!!!date", "!other"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(LEAVES, max_size=4)
        | st.frozensets(st.tuples(LEAVES), max_size=4)
        | st.dictionaries(KEYS, inner, max_size=2)
    ),
    max_leaves=20,
)


def shape(value: object) -> object:
    """Return a value with its types: 1, True and 1.0 differ, the order of a set does not matter."""
    if isinstance(value, list | tuple):
        return type(value), [shape(one) for one in value]
    if isinstance(value, set | frozenset):
        return type(value), sorted(repr(shape(one)) for one in value)
    if isinstance(value, dict):
        return dict, [(key, shape(one)) for key, one in value.items()]
    return type(value), str(value)


@EXPLORE
@given(VALUES)
def test_a_value_comes_back_with_its_types(value: object) -> None:
    encoded = encode_value(value, SIZE_MAX)

    assert shape(value) == shape(decode_value(encoded))
    assert bytes(encoded) == bytes(encode_value(decode_value(encoded), SIZE_MAX))


NOON = datetime.datetime(2024, 1, 2, 12, 0, tzinfo=datetime.UTC)
AN_ID = uuid.UUID("6ebe9bc0-0000-4000-8000-000000000001")


@pytest.mark.parametrize(
    ("value", "stored", "plain"),
    [
        ((1, (2,)), '{"!tuple":[1,{"!tuple":[2]}]}', [1, [2]]),
        ({"b", "a"}, '{"!set":["a","b"]}', ["a", "b"]),
        ({10, 9}, '{"!set":[9,10]}', [9, 10]),
        (frozenset(), '{"!frozenset":[]}', []),
        ([decimal.Decimal("1.10")], '[{"!decimal":"1.10"}]', ["1.10"]),
        (NOON, '{"!datetime":"2024-01-02T12:00:00+00:00"}', "2024-01-02T12:00:00+00:00"),
        ({"day": NOON.date()}, '{"day":{"!date":"2024-01-02"}}', {"day": "2024-01-02"}),
        (AN_ID, f'{{"!uuid":"{AN_ID}"}}', str(AN_ID)),
        (pathlib.Path("a/b"), '{"!path":"a/b"}', "a/b"),
        ({"!tuple": [1]}, '{"!!tuple":[1]}', {"!tuple": [1]}),
        ({"!tuple": 1, "a": 2}, '{"!tuple":1,"a":2}', {"!tuple": 1, "a": 2}),
    ],
    # The order of a set differs between the processes that collect the tests.
    ids=lambda value: repr(sorted(value) if isinstance(value, set) else value),
)
def test_what_json_has_no_type_for_is_marked_in_storage_and_plain_for_people(
    value: object, stored: str, plain: object
) -> None:
    encoded = encode_value(value, SIZE_MAX)

    assert stored == bytes(encoded).decode()
    assert value == decode_value(encoded)
    assert plain == plain_value(encoded)


@pytest.mark.parametrize(
    "old",
    [
        b'{"!date":3}',
        b'{"!date":"tomorrow"}',
        b'{"!decimal":"many"}',
        b'{"!set":[[1]]}',
        b'{"!tuple":"ab"}',
        b'{"!other":[1]}',
        b'{"$set":[1],"$date":"2024-01-02"}',
        b"[1,[2]]",
    ],
)
def test_what_an_earlier_version_stored_keeps_its_meaning(old: bytes) -> None:
    expected = json.loads(old)

    assert expected == decode_value(old)
    assert expected == plain_value(old)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.uint8(7), 7),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.datetime64("2024-01-02"), datetime.date(2024, 1, 2)),
        (np.datetime64("2024-01-02T12:00:00", "us"), datetime.datetime(2024, 1, 2, 12)),  # noqa: DTZ001
    ],
    ids=repr,
)
def test_a_scalar_of_numpy_becomes_that_of_python(value: object, expected: object) -> None:
    actual = decode_value(encode_value({"rows": [value]}, SIZE_MAX))["rows"][0]

    assert (type(expected), expected) == (type(actual), actual)


def test_a_set_is_stored_in_the_same_order_by_each_process() -> None:
    code = (
        "from understudy.core.values import encode_value\n"
        "print(bytes(encode_value({('a', 1), ('b', 2), 'c', None, 'd', 2.5}, 1000)))"
    )
    actual = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert 1 == len(actual)


def test_a_tuple_may_be_nested_as_deep_as_a_list() -> None:
    deepest: tuple[object, ...] = ()
    for _ in range(DEPTH_MAX):
        deepest = (deepest,)

    assert deepest == decode_value(encode_value(deepest, SIZE_MAX))


class Color(enum.IntEnum):
    RED = 1


class Pair(NamedTuple):
    a: int


@dataclasses.dataclass
class Point:
    x: int


class Name(str):
    __slots__ = ()


def foreign(name: str, package: str) -> object:
    """Return an object that looks like one of a library which is not installed here."""
    return type(name, (), {"__module__": package})()


@pytest.mark.parametrize(
    ("value", "way"),
    [
        (
            foreign("DataFrame", "pyspark.sql.classic.dataframe"),
            "return ctx.table(df): a later job gets the DataFrame by ctx.read(handle)",
        ),
        (foreign("Row", "pyspark.sql.types"), "return row.asDict(recursive=True)"),
        (foreign("Timestamp", "pandas"), "return value.to_pydatetime()"),
        (np.array(1.0), "return array.tolist()"),
        (np.datetime64(1, "ns"), "return value.astype('datetime64[us]').item()"),
        (datetime.timedelta(1), "return value.total_seconds()"),
        (b"", "return value.hex(), or write the bytes to a file and return its path"),
        ((one for one in "a"), "return list(value)"),
        (Color.RED, "return value.value"),
        (Pair(1), "return value._asdict()"),
        (Point(1), "return dataclasses.asdict(value)"),
        (Name(), "return str(value)"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_is_refused_is_refused_with_its_way_out(value: object, way: str) -> None:
    kind = type(value)
    expected = f"$.rows: {kind.__module__}.{kind.__qualname__} cannot be kept: {way}"
    with pytest.raises(InvalidValueError) as caught:
        encode_value({"rows": value}, SIZE_MAX)

    assert expected == str(caught.value)
