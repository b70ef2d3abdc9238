from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.values import DEPTH_MAX, DIGITS_MAX, decode_value, encode_value
from understudy.errors import InvalidValueError

EXPLORE = settings(max_examples=200, deadline=None, derandomize=True)

SIZE_MAX = 256 * 1024

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


class Name(str):
    __slots__ = ()


class Row(dict[str, int]):
    pass


class Weight(float):
    pass


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def refusal(value: object, size_max: int = SIZE_MAX) -> str:
    with pytest.raises(InvalidValueError) as caught:
        encode_value(value, size_max)
    return str(caught.value)


@EXPLORE
@given(VALUES)
def test_what_is_json_comes_back_as_it_was(value: object) -> None:
    expected = value

    actual = decode_value(encode_value(value, SIZE_MAX))

    assert repr(expected) == repr(actual)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("x" * 100_000_000, 100_000_002),
        ([0] * 12_000_000, 12_000_001),
        ({"key": ["é" * 3_000_000]}, 3_000_012),
    ],
    ids=["text", "numbers", "a dictionary"],
)
def test_what_is_far_too_large_is_refused_before_it_is_encoded(value: object, size: int) -> None:
    expected = (
        f"$: the value is at least {size} bytes of JSON, job.result.max-size is {SIZE_MAX}: "
        "return less, and put data into files or tables"
    )

    actual = refusal(value)

    assert expected == actual


@EXPLORE
@given(VALUES)
def test_what_is_taken_for_too_large_is(value: object) -> None:
    size = len(bytes(encode_value([value] * 3, SIZE_MAX)))

    encode_value([value] * 3, size)

    assert f"is {size} bytes" in refusal([value] * 3, size - 1)


@EXPLORE
@given(VALUES)
def test_what_was_decoded_is_encoded_to_the_same_bytes(value: object) -> None:
    expected = bytes(encode_value(value, SIZE_MAX))

    actual = bytes(encode_value(decode_value(msgspec.Raw(expected)), SIZE_MAX))

    assert expected == actual


@EXPLORE
@given(VALUES)
def test_a_record_that_holds_a_value_is_sound_json(value: object) -> None:
    expected = json.loads(json.dumps({"value": value}))

    actual = json.loads(msgspec.json.encode({"value": encode_value(value, SIZE_MAX)}))

    assert repr(expected) == repr(actual)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, b"null"),
        (True, b"true"),
        (False, b"false"),
        (0, b"0"),
        (-0.0, b"-0.0"),
        (1.0, b"1.0"),
        (0.1, b"0.1"),
        (2**64 + 1, b"18446744073709551617"),
        ("", b'""'),
        ("größer", '"größer"'.encode()),
        ('"\n\x00', rb'"\"\n\u0000"'),
        ([], b"[]"),
        ({}, b"{}"),
        ({"b": [1, True], "a": None}, b'{"b":[1,true],"a":null}'),
    ],
)
def test_a_value_becomes_compact_json_in_its_own_order(value: object, expected: bytes) -> None:
    actual = bytes(encode_value(value, SIZE_MAX))

    assert expected == actual


ANYTHING = (
    "cannot be kept: return None, bool, int, float, str, list, tuple, set, dict, Decimal, "
    "datetime, date, UUID or Path"
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), "$: nan is not JSON: return None instead"),
        (float("inf"), "$: inf is not JSON: return None instead"),
        ([1, float("-inf")], "$[1]: -inf is not JSON: return None instead"),
        (
            {"rows": [{}, {}, {}, {"avg": float("nan")}]},
            "$.rows[3].avg: nan is not JSON: return None instead",
        ),
        (({"a": (0, float("nan"))},), "$[0].a[1]: nan is not JSON: return None instead"),
        ({1: "x"}, "$: the key 1 is a int: JSON keys are strings, so use str(key)"),
        (
            {"a": {None: 1}},
            "$.a: the key None is a NoneType: JSON keys are strings, so use str(key)",
        ),
        ([{True: 1}], "$[0]: the key True is a bool: JSON keys are strings, so use str(key)"),
        ({Name("a"): 1}, "$: the key 'a' is a Name: JSON keys are strings, so use str(key)"),
        ([object], f"$[0]: builtins.type {ANYTHING}"),
        ([Name("a")], f"$[0]: {__name__}.Name cannot be kept: return str(value)"),
        (Row(a=1), f"$: {__name__}.Row cannot be kept: return dict(value)"),
        (Weight(1.5), f"$: {__name__}.Weight cannot be kept: return float(value)"),
        (range(3), "$: builtins.range cannot be kept: return list(value)"),
        (1j, "$: builtins.complex cannot be kept: return (value.real, value.imag)"),
    ],
    ids=repr,
)
def test_what_is_not_json_is_refused_with_its_path(value: object, expected: str) -> None:
    actual = refusal(value)

    assert expected == actual


@EXPLORE
@given(VALUES, st.lists(st.integers(0, 5) | TEXTS, max_size=5))
def test_the_path_of_a_refused_value_leads_to_it(beside: object, steps: list[int | str]) -> None:
    value: object = float("nan")
    for step in reversed(steps):
        value = [beside] * step + [value, beside] if isinstance(step, int) else {step: value}
    path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    expected = f"{path}: nan is not JSON: return None instead"

    actual = refusal(value)

    assert expected == actual


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("\ud800", "$: the string holds a lone surrogate: it is no text"),
        (["", "\udfff"], "$[1]: the string holds a lone surrogate: it is no text"),
        (
            {"rows": [{}, {"name": "x\ud800y"}]},
            "$.rows[1].name: the string holds a lone surrogate: it is no text",
        ),
        ({"a": {"\ud800": 1}}, r"$.a: the key '\ud800' holds a lone surrogate"),
    ],
)
def test_a_lone_surrogate_is_refused_with_its_path(value: object, expected: str) -> None:
    actual = refusal(value)

    assert expected == actual


@pytest.mark.parametrize("value", [10**4299, -(10**4299)], ids=["positive", "negative"])
def test_an_integer_of_four_thousand_digits_comes_back(value: int) -> None:
    expected = value

    actual = decode_value(encode_value(value, SIZE_MAX))

    assert expected == actual


@pytest.mark.parametrize("value", [10**DIGITS_MAX, -(10**DIGITS_MAX)], ids=["positive", "negative"])
def test_an_integer_of_more_digits_is_refused_with_its_path(value: int) -> None:
    expected = "$.n[1]: an integer of more than 4300 digits: return it as a string"

    actual = refusal({"n": [0, value]})

    assert expected == actual


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("nobody may see me")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (10**DIGITS_MAX, "$: the key … is a int: JSON keys are strings, so use str(key)"),
        (Unspeakable(), "$: the key … is a Unspeakable: JSON keys are strings, so use str(key)"),
    ],
    ids=["endless", "unspeakable"],
)
def test_a_key_that_cannot_be_shown_is_refused_all_the_same(key: object, expected: str) -> None:
    actual = refusal({key: 1})

    assert expected == actual


@pytest.mark.parametrize(
    ("value", "size"), [("é" * 10, 22), ([1, 2, 3], 7), ({"a": 1}, 7), (None, 4)]
)
def test_the_size_is_counted_in_bytes_of_json(value: object, size: int) -> None:
    expected = (
        f"$: the value is {size} bytes of JSON, job.result.max-size is {size - 1}: "
        "return less, and put data into files or tables"
    )

    encode_value(value, size)
    actual = refusal(value, size - 1)

    assert expected == actual


def test_a_value_may_be_nested_so_deep_and_no_deeper() -> None:
    deepest = nested(DEPTH_MAX)
    expected = f"$[0]{'[0]' * DEPTH_MAX}: nested deeper than {DEPTH_MAX}"

    actual = refusal(nested(DEPTH_MAX + 1))

    assert deepest == decode_value(encode_value(deepest, SIZE_MAX))
    assert expected == actual


def test_a_dict_counts_as_a_level_too() -> None:
    value: object = 0
    for _ in range(DEPTH_MAX + 1):
        value = {"a": value}
    expected = f"${'.a' * (DEPTH_MAX + 1)}: nested deeper than {DEPTH_MAX}"

    actual = refusal(value)

    assert expected == actual


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)

    actual = refusal(value)

    assert actual.endswith(f": nested deeper than {DEPTH_MAX}")


def test_a_job_that_replaces_dumps_returns_the_same_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "dumps", lambda *_, **__: "patched")
    monkeypatch.setattr(json, "loads", lambda *_, **__: "patched")

    assert [1, "a"] == decode_value(encode_value([1, "a"], SIZE_MAX))
