"""docs/flink-parity.md: each of Flink's tests has one of ours, or a reason why it has none."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache

import pytest

from tests.house.repository import ROOT, modules

METHODS = 719
"""Methods of Flink's that the document answers for."""

KEPT_MIN = 40
"""Behaviours of ours for which Flink has no test."""

KEPT = "Rows that we keep"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
REASON_WORDS_MIN = 4
"""A reason is a sentence."""


@dataclass(frozen=True)
class Row:
    """A line of a table: of Flink's methods, or a behaviour of ours; and what answers for it."""

    section: str
    left: str
    right: str

    @property
    def methods(self) -> list[str]:
        """Return Flink's methods."""
        return re.findall(r"`([\w.*]+)`", self.left)

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Return file and name of each test of ours."""
        return NAMED.findall(self.right)

    @property
    def reason(self) -> list[str]:
        """Return the words that are there beside the tests."""
        return re.findall(r"\w+", NAMED.sub("", self.right))


@cache
def rows() -> tuple[Row, ...]:
    found, section = [], ""
    for line in (ROOT / "docs" / "flink-parity.md").read_text().splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif line.startswith("|") and not re.match(r"\|(-| Flink \|| behaviour \|)", line):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            found.append(Row(section, *cells))
    return tuple(found)


@cache
def existing() -> frozenset[tuple[str, str]]:
    """Return file and name of each test that there is."""
    return frozenset(
        (str(path.relative_to(ROOT)), node.name)
        for path, text in modules()
        if path.name.startswith("test_")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name.startswith("test_")
    )


def flinks() -> list[Row]:
    return [row for row in rows() if row.section != KEPT]


def test_each_test_that_the_document_names_exists() -> None:
    expected: list[str] = []

    actual = [
        f"{row.section}: {path}::{name}"
        for row in rows()
        for path, name in row.tests
        if (path, name) not in existing()
    ]

    assert expected == actual


def test_each_test_that_the_document_speaks_of_is_named_with_its_file() -> None:
    expected: list[str] = []

    actual = [
        f"{row.section}: {word}"
        for row in rows()
        for word in re.findall(r"\btest_\w+", NAMED.sub("", row.right))
        if "/" + word not in row.right  # the name of a file
    ]

    assert expected == actual


def test_each_row_has_a_test_or_a_reason() -> None:
    expected: list[str] = []

    actual = [
        f"{row.section}: {row.left}"
        for row in flinks()
        if not row.tests and len(row.reason) < REASON_WORDS_MIN
    ]

    assert expected == actual


def test_each_row_is_about_a_method_of_flinks() -> None:
    expected: list[str] = []

    actual = [f"{row.section}: {row.left}" for row in flinks() if not row.methods]

    assert expected == actual


def test_no_method_of_a_class_is_answered_for_twice() -> None:
    named = [(row.section, method) for row in flinks() for method in row.methods]

    assert sorted(set(named)) == sorted(named)


def test_the_whole_catalogue_is_answered_for() -> None:
    actual = sum(len(row.methods) for row in flinks())

    assert actual == METHODS


def test_each_row_that_we_keep_has_a_test() -> None:
    kept = [row for row in rows() if row.section == KEPT]

    assert len(kept) >= KEPT_MIN
    assert [] == [row.left for row in kept if not row.tests]


@pytest.mark.parametrize("path", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_document_is_found_from(path: str) -> None:
    assert "](docs/flink-parity.md)" in (ROOT / path).read_text()
