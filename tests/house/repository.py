"""What the repository holds."""

from __future__ import annotations

import ast
import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Function:
    """A function of ours, and its size."""

    place: str
    lines: int
    name: str
    """File and name."""
    parameters: int
    """Without ``self``, ``cls``, and what collects all others."""


@cache
def files() -> tuple[Path, ...]:
    """Return each file that is kept, or would be with the next commit."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:  # an unpacked archive
        found = [path for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return tuple(path for path in found if path.is_file())


@cache
def texts() -> tuple[tuple[Path, str], ...]:
    """Return each kept text file with its text."""
    found = []
    for path in files():
        with contextlib.suppress(UnicodeDecodeError):
            found.append((path, path.read_text()))
    return tuple(found)


def modules() -> Iterator[tuple[Path, str]]:
    """Return each Python file with its text."""
    return ((path, text) for path, text in texts() if path.suffix == ".py")


@cache
def functions() -> tuple[Function, ...]:
    """Return each function of ours."""
    return tuple(_functions())


def _functions() -> Iterator[Function]:
    for path, text in modules():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                place = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                yield Function(
                    place,
                    node.end_lineno - node.lineno + 1,
                    f"{path.relative_to(ROOT)}:{node.name}",
                    sum(one.arg not in {"self", "cls"} for one in given),
                )
