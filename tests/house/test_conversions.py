"""Few lines are edited to convert a script; docs/convert.md shows these lines and no others."""

from __future__ import annotations

import difflib

import pytest

from tests.house.repository import ROOT
from tests.support.pages import blocks

PLAIN, CONVERTED = ROOT / "examples" / "plain", ROOT / "examples" / "converted"
SCRIPTS = sorted(path.name for path in PLAIN.glob("*.py"))
EDITED_MAX = {"etl.py": 4}
OTHERS_MAX = 6


def edited(plain: list[str], converted: list[str]) -> int:
    """Count the lines that a person edits, adds or removes; indentation and empty lines do not."""
    before, after = (
        [line.strip() for line in lines if line.strip()] for lines in (plain, converted)
    )
    matcher = difflib.SequenceMatcher(a=before, b=after, autojunk=False)
    return sum(
        max(end - begin, last - first)
        for kind, begin, end, first, last in matcher.get_opcodes()
        if kind != "equal"
    )


def difference(name: str) -> str:
    """Return the difference of both versions of a script as docs/convert.md shows it."""
    lines = difflib.unified_diff(
        (PLAIN / name).read_text().splitlines(), (CONVERTED / name).read_text().splitlines(), n=0
    )
    shown = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return "\n".join(line for line in shown if line[1:].strip()) + "\n"


@pytest.mark.parametrize("name", SCRIPTS)
def test_few_lines_are_edited(name: str) -> None:
    plain, converted = ((folder / name).read_text() for folder in (PLAIN, CONVERTED))

    actual = edited(plain.splitlines(), converted.splitlines())

    assert actual <= EDITED_MAX.get(name, OTHERS_MAX)
    assert (actual > 0) == ("SparkSession" in plain), "a script is converted, a module is not"


def test_the_page_shows_each_difference() -> None:
    expected = {difference(name) for name in SCRIPTS} - {"\n"}

    actual = {
        block.text for block in blocks(ROOT / "docs" / "convert.md") if block.language == "diff"
    }

    assert len(expected) == 4
    assert expected == actual


@pytest.mark.parametrize(
    ("plain", "converted", "expected"),
    [
        (["a", "b"], ["a", "b"], 0),
        (["a", "b"], ["a", "", "    b"], 0),
        (["a", "b"], ["a", "c", "b"], 1),
        (["a", "b"], ["c", "d"], 2),
        (["a", "b"], ["b"], 1),
    ],
)
def test_lines_are_counted(plain: list[str], converted: list[str], expected: int) -> None:
    assert expected == edited(plain, converted)
