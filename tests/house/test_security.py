"""docs/security.md: each defence names a test that is there."""

from __future__ import annotations

import re

import pytest

from tests.house.repository import ROOT

TEXT = (ROOT / "docs" / "security.md").read_text()
ROWS = [
    line
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| attack", "| where", "| what user"))
]


def named(row: str) -> list[tuple[str, str]]:
    """Return the files of a row's last cell, each with a test of it if that is named."""
    found, file = [], ""
    for path, test in re.findall(r"`([\w/.]*\.py)?(?:::(\w+))?`", row.rsplit("|", 2)[1]):
        file = path or file
        found.append((file, test))
    return found


@pytest.mark.parametrize("row", ROWS)
def test_each_defence_has_its_test(row: str) -> None:
    assert named(row), "a row without a test"
    for file, test in named(row):
        source = (ROOT / "tests" / file).read_text()
        assert f"def {test}" in source, f"{file} has no {test}"


def test_readers_find_the_page() -> None:
    assert "](docs/security.md)" in (ROOT / "README.md").read_text()
