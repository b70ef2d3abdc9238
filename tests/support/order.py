"""The order in which pytest's workers begin the files of a part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest


def longest_first(items: Iterable[pytest.Item], longest: Sequence[str]) -> list[pytest.Item]:
    """Return the tests, those of the named files first: ``page`` for ``test_page.py``.

    A file that begins last is waited for by all workers but one.
    """

    def place(item: pytest.Item) -> int:
        name = item.path.stem.removeprefix("test_")
        return longest.index(name) if name in longest else len(longest)

    return sorted(items, key=place)
