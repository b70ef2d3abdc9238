"""One name for one class."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.house.repository import ROOT

PACKAGE = ROOT / "src" / "understudy"


def test_no_name_stands_for_two_classes() -> None:
    """Whoever searches for a name finds one class, also where modules are read side by side."""
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    expected: dict[str, list[str]] = {}

    actual = {name: places for name, places in found.items() if len(places) > 1}

    assert expected == actual
