"""Whether an application knows Understudy, decided by what its sources import.

A script that does not import ``understudy``, directly or through modules that are stored with it,
has not been converted: it runs as one job.
"""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping

PACKAGE = "understudy"

_ONE_AT_A_TIME = threading.Lock()
"""CPython 3.11 counts the depth of all trees that its threads build in one place, and ends a build
with ``SystemError`` when another one has counted meanwhile. Filters of warnings are shared, too."""


def imports_understudy(entry: str, sources: Mapping[str, bytes]) -> bool:
    """Return whether the module ``entry`` imports Understudy, itself or through other ``sources``.

    ``sources`` holds the stored modules by their dotted names; a package has the name of its
    directory, and is executed before its modules. A string names a module in a call such as
    ``import_module("name")``, and where it ends in ``.py``. What Python cannot compile imports
    nothing.
    """
    seen: set[str] = set()
    waiting = [*_with_packages(entry)]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in sources:
            continue
        seen.add(name)
        for found in _named(name, sources[name]):
            if found.partition(".")[0] == PACKAGE:
                return True
            waiting.extend(_with_packages(found))
    return False


def module_name(path: str) -> str:
    """Return the dotted name of a source below Python's path; empty if it cannot be imported."""
    stem, dot, suffix = path.rpartition(".")
    if not dot or suffix != "py":
        return ""
    return stem.removesuffix("/__init__").replace("/", ".")


def builder_settings(source: bytes, function: str = "") -> dict[str, str]:
    """Return the Spark settings that a script writes down as ``.config("spark.…", "…")`` and
    ``.master("…")``; a setting with several values is left out.

    What is executed on a condition does not count, nor do functions that nothing refers to.
    ``function`` is the one that is called from outside: then the module is not ``__main__``.
    """
    found: dict[str, set[str]] = {}
    for node in _executed(source, function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            values = [one.value for one in node.args if isinstance(one, ast.Constant)]
            if node.func.attr == "master" and len(values) == 1:
                values.insert(0, "spark.master")
            elif node.func.attr != "config":
                continue
            key, value = values if len(values) == 2 else ("", None)
            if isinstance(key, str) and key.startswith("spark.") and value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                found.setdefault(key, set()).add(text)
    return {key: texts.pop() for key, texts in found.items() if len(texts) == 1}


def _parsed(source: bytes) -> ast.Module:
    try:
        # Warnings are shown when the code runs.
        with _ONE_AT_A_TIME, warnings.catch_warnings(action="ignore"):
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _executed(source: bytes, function: str) -> Iterator[ast.AST]:
    """Yield the nodes of a module that are executed on no condition."""
    tree = _parsed(source)
    functions: dict[str, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.setdefault(node.name, []).extend(node.body)
    waiting: list[ast.AST] = [*tree.body, *functions.pop(function.rpartition(".")[2], ())]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(_unconditional(node, is_main=not function))
        name = getattr(node, "id", getattr(node, "attr", None))
        if isinstance(name, str):  # Each function once: it may call itself.
            waiting.extend(functions.pop(name, ()))


def _unconditional(node: ast.AST, *, is_main: bool) -> Iterable[ast.AST]:
    """Return the parts of a node that are executed whenever it is."""
    match node:
        case ast.If(test=test, body=body):
            asks_for_main = ast.unparse(test) in _MAIN
            return body if asks_for_main and is_main else [test]
        case ast.IfExp(test=test):
            return [test]
        case ast.Match(subject=subject):
            return [subject]
        case ast.Try() | ast.TryStar():
            return [*node.body, *node.orelse, *node.finalbody]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            return []
    return ast.iter_child_nodes(node)


_MAIN = {"__name__ == '__main__'", "'__main__' == __name__"}


def _named(name: str, source: bytes) -> Iterator[str]:
    """Yield the dotted names that a module imports, or names in a string."""
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            for base in _bases(name, node):
                yield base
                yield from (f"{base}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Call):
            yield from _imported_by_call(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # ``spark.table("orders")`` imports nothing; ``exec(open("orders.py").read())`` does.
            yield module_name(node.value.removeprefix("./"))


def _imported_by_call(call: ast.Call) -> Iterator[str]:
    called = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if called in {"import_module", "__import__", "run_module", "run_path"}:
        names = (one.value for one in call.args[:1] if isinstance(one, ast.Constant))
        yield from (name for name in names if isinstance(name, str))


def _bases(name: str, node: ast.ImportFrom) -> Iterator[str]:
    """Yield the packages that ``from … import`` may mean: a name does not tell a package."""
    if not node.level:
        yield node.module or ""
        return
    parts = name.split(".")
    for up in (node.level - 1, node.level):  # In a package's own file, and in a module of it.
        around = parts[: len(parts) - up]
        if around:
            yield ".".join([*around, *([node.module] if node.module else [])])


def _with_packages(name: str) -> Iterator[str]:
    """Yield a module and the packages around it, which an import executes first."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])
