"""`Configuration` stops at the doors: components are given settings that are compiled once."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.house.repository import ROOT

SOURCE = ROOT / "src" / "understudy"

DOORS = ("cli/", "config/", "ha/backends/", "kubernetes/")
"""Rooms that read options: commands, launchers, options themselves, a backend its own, and
manifests what pods shall be."""

OTHERS = {
    "api/endpoint.py:bind_metrics": "opens the socket of a TaskManager before its server is loaded"
}
"""By file and function: why a function beside `Settings.of` is given a `Configuration`."""


def test_behind_the_doors_only_settings_are_made_of_a_configuration() -> None:
    actual = {
        f"{path.relative_to(SOURCE)}:{function.name}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not str(path.relative_to(SOURCE)).startswith(DOORS)
        for function in _given_a_configuration(path)
        if function.name != "of"
    }

    assert set(OTHERS) == actual


def test_a_configuration_is_read_where_settings_are_made_and_nowhere_else() -> None:
    expected: list[str] = []

    actual = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not str(path.relative_to(SOURCE)).startswith(DOORS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"get", "find", "redacted"}
        and ast.unparse(node.func.value).endswith("around.configuration")
    ]

    assert expected == actual


def _given_a_configuration(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if any(
            one.annotation is not None and "Configuration" in ast.unparse(one.annotation).split()
            for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        )
    ]
