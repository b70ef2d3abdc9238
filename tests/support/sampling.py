"""Parameters of which `make test` tries some, and `make test-all` all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def quickly(values: Iterable[T], kept: Collection[T]) -> list[Any]:
    """Return the values as parameters: those that are not in ``kept`` are marked ``long``.

    Raises ``ValueError`` for a value to keep that is not there.
    """
    found = list(values)
    if missing := [value for value in kept if value not in found]:
        raise ValueError(f"{missing} are no parameters: use some of {found}")
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if value in kept else pytest.mark.long,
        )
        for value in found
    ]
