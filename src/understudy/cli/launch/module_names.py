"""What a module offers, read from its source: nothing is imported, so nothing of it is executed."""

from __future__ import annotations

import ast
import symtable
from importlib.util import decode_source

DYNAMIC = {"globals", "vars", "exec", "eval", "setattr", "modules", "__getattr__"}
"""Names with which a module may bind others in ways that its source does not show."""


def problem_of(source: bytes, place: str, name: str) -> str:
    """Return why a module has no function ``name`` that takes no argument; empty if it may have.

    Raises ``SyntaxError`` or ``ValueError`` for what Python cannot compile.
    """
    tree = ast.parse(source, place)
    if not _is_bound(symtable.symtable(decode_source(source), place, "exec"), name):
        known = [one.name for one in tree.body if isinstance(one, ast.FunctionDef)]
        if not _is_dynamic(tree):
            return f"has no {name!r}; its functions: {', '.join(known) or 'none'}"
    for one in tree.body:
        if isinstance(one, ast.AsyncFunctionDef) and one.name == name:
            return f"has {name!r}, which is asynchronous: give a function that calls asyncio.run"
        if isinstance(one, ast.FunctionDef) and one.name == name and not one.decorator_list:
            needed = _needed(one.args)
            if needed:
                return (
                    f"has {name!r}, which needs {', '.join(needed)}: it is called without "
                    "arguments, and finds those of the command in sys.argv"
                )
    return ""


def _is_bound(table: symtable.SymbolTable, name: str) -> bool:
    """Return whether the module binds a name itself, or a function of it by ``global``."""
    if name in table.get_identifiers():
        symbol = table.lookup(name)
        at_top = table.get_type() == "module"
        if (symbol.is_assigned() or symbol.is_imported()) and (
            at_top or symbol.is_declared_global()
        ):
            return True
    return any(_is_bound(one, name) for one in table.get_children())


def _is_dynamic(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names):
            return True
        if isinstance(node, ast.Name) and node.id in DYNAMIC:
            return True
        if isinstance(node, ast.Attribute) and node.attr in DYNAMIC:
            return True
        if isinstance(node, ast.FunctionDef) and node.name in DYNAMIC:
            return True
    return False


def _needed(arguments: ast.arguments) -> list[str]:
    """Return the names of the arguments that have no default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    found = positional[: len(positional) - len(arguments.defaults)]
    found += [
        one
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    return [one.arg for one in found]
