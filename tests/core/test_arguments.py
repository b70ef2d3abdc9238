"""Arguments of a job that differ between two executions of ``main``."""

from __future__ import annotations

from datetime import date, datetime, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from understudy.core.arguments import (
    ARGUMENT_BYTES_MAX,
    ARGUMENTS_MAX,
    NAME_BYTES_MAX,
    different,
    digests,
)

DEEP: list[Any] = []
DEEP.append(DEEP)


class Own:
    """A value that is no JSON."""


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {}, ()),
        ({"path": "x", "count": 1}, {"path": "x", "count": 1}, ()),
        ({"path": "x", "count": 1}, {"path": "x", "count": 2}, ("count",)),
        ({"path": "x", "count": 1}, {"path": "y", "count": 2}, ("path", "count")),
        ({"day": date(2024, 5, 1)}, {"day": "2024-05-01"}, ("day",)),
        ({"options": {"a": 1, "b": 2}}, {"options": {"b": 2, "a": 1}}, ()),
        ({"options": [{"a": {1}, "b": 2}]}, {"options": [{"b": 2, "a": {1}}]}, ()),
        ({"days": set("abcdef")}, {"days": set("fedcba")}, ()),
        ({"days": {("b", 1), ("a", 2)}}, {"days": {("a", 2), ("b", 1)}}, ()),
        ({"path": Path("x"), "rate": Decimal("1.1")}, {"path": Path("x"), "rate": 1.1}, ("rate",)),
        ({"rows[0]": 1}, {"rows[0]": 1, "rows[1]": 2}, ("rows[1]",)),
        ({"rows[0]": 1, "rows[1]": 2}, {"rows[0]": 1}, ("rows[1]",)),
        ({"model": Own()}, {"model": Own()}, ()),
        ({"model": Own()}, {"model": None}, ()),
        ({"model": "x" * ARGUMENT_BYTES_MAX}, {"model": "y" * ARGUMENT_BYTES_MAX}, ()),
        ({"deep": DEEP, "count": 1}, {"deep": DEEP, "count": 2}, ("count",)),
        ({"n" * (NAME_BYTES_MAX + 1): 1}, {"n" * (NAME_BYTES_MAX + 1): 2}, ()),
    ],
)
def test_what_differs_is_named_and_equal_values_never_are(
    before: dict[str, Any], now: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert expected == different(digests(before), digests(now))


def test_a_job_of_an_earlier_version_is_not_compared() -> None:
    assert () == different({}, digests({"path": "x"}))


def test_what_is_stored_of_arguments_is_small() -> None:
    stored = digests({f"argument_{number}": "x" * 1000 for number in range(1000)})

    assert ARGUMENTS_MAX == len(stored)
    assert {16} == {len(one) for one in stored.values()}


def test_a_value_that_cannot_be_read_is_not_compared() -> None:
    class Broken(tzinfo):
        def utcoffset(self, _: datetime | None) -> timedelta:
            raise RuntimeError("no such zone")

        def dst(self, _: datetime | None) -> timedelta:
            return timedelta()

        def tzname(self, _: datetime | None) -> str:
            return "nowhere"

    assert {"at": ""} == digests({"at": datetime(2024, 5, 1, tzinfo=Broken())})
