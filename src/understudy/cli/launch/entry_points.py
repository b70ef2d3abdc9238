"""Where an application begins: a script, a notebook, a URL, a module, or a function of a module.

Modules are looked for as ``python -m`` does, first in the current directory, and are not imported:
what a module offers is read from its source.
The modules that lie beside are stored with them, except those of Python and of installed packages,
which are the same for every process.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import symtable
import sys
import urllib.parse
import warnings
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType

from understudy.errors import ConfigurationError, UsageError
from understudy.model import MODULE
from understudy.process import code, notebooks
from understudy.process.code import SourceFile

_INSTALLED = {"site-packages", "dist-packages"}

DYNAMIC = {"globals", "vars", "exec", "eval", "setattr", "modules", "__getattr__"}
"""Names with which a module may bind others in ways that its source does not show."""


@dataclass(frozen=True)
class EntryPoint:
    """Where an application begins, and what is stored for it."""

    target: str
    """What is recorded: the script's file name, ``-m module``, or ``module:function``."""
    script: str
    """The script's absolute path or URL; empty for a module and for a function."""
    title: str
    begins: SourceFile | None
    """The file that is executed first; None where it is built into Python."""
    files: tuple[SourceFile, ...]

    @property
    def function(self) -> str:
        """The function's name in its module; empty for a script and for a module."""
        return "" if self.script else self.target.partition(":")[2]


@dataclass(frozen=True)
class ScriptFile(SourceFile):
    """The script itself, which may lie in a store, and be a notebook."""

    url: str = ""

    def read(self) -> bytes:
        """Return the script. Raises `UsageError`, and ``OSError``."""
        if self.url:
            body: bytes = _remote_files().fetch(self.url)
        else:
            body = self.path.read_bytes()
        is_notebook = self.path.suffix == notebooks.SUFFIX
        return notebooks.as_script(body, self.path.name) if is_notebook else body

    def is_there(self) -> bool:
        """Return whether the file may still be read; the store decides, as the script is read."""
        return bool(self.url) or super().is_there()


def _remote_files() -> ModuleType:
    """Return the module that reads URLs, which few applications need."""
    return importlib.import_module("understudy.ha.remote_files")


def is_function(app: str) -> bool:
    """Return whether a person means a function of a module."""
    module, _, name = app.partition(":")
    is_dotted = bool(name) and all(part.isidentifier() for part in module.split("."))
    return is_dotted and "://" not in app and not Path(app).exists()


def full_name(app: str) -> str:
    """Return a script's absolute path, or its URL; a function or module as it is."""
    if is_function(app):
        return app
    scheme, separator, path = app.partition("://")
    if separator and not Path(app).exists():
        if scheme.lower() not in {"file", "local"}:
            return app
        app = urllib.parse.unquote(path)
    return str(Path(app).absolute())


def entry_point(app: str, cwd: str, *, is_module: bool = False) -> EntryPoint:
    """Return the entry point that ``app`` names, a `full_name`. Raises `UsageError`."""
    if is_module:
        return _module(app, cwd)
    if is_function(app):
        return _function(app, cwd)
    if "://" in app and not Path(app).exists():
        return _remote(app)
    path = Path(app)
    if path.is_dir():
        raise UsageError(f"{app}: is a directory: give the script in it")
    if not path.is_file():
        raise UsageError(f"{app}: no such script (or give module:function, or -m and a module)")
    _check_kind(path, app)
    script = ScriptFile(path, f"app/{path.name}")
    return EntryPoint(path.name, app, path.stem, script, (script, *code.beside(path)[1:]))


def check(entry: EntryPoint) -> None:
    """Raise `UsageError` for an entry point that cannot begin; nothing is executed."""
    file = entry.begins
    if file is None or not (entry.script or file.path.suffix == ".py"):
        return  # Built into Python, or compiled.
    place = entry.script or str(file.path)
    body = _compiled(file, place)
    function = entry.function.partition(".")[0]
    if function and (problem := problem_of(body, place, function)):
        raise UsageError(f"{entry.target}: {place} {problem}")


def _check_kind(path: Path, shown: str) -> None:
    if path.suffix in {".jar", ".r", ".R"}:
        raise UsageError(f"{shown}: only Python applications can be run")


def _compiled(file: SourceFile, place: str) -> bytes:
    """Return what a file holds, if Python can compile it. Raises `UsageError`."""
    try:
        body = file.read()
        if len(body) > code.CODE_BYTES_MAX:
            raise UsageError(f"{place}: is larger than {code.CODE_BYTES_MAX >> 20} MB")
        with warnings.catch_warnings(action="ignore"):  # They are shown when the script runs.
            compile(body, place, "exec", dont_inherit=True)
        return body
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise UsageError(f"{place}{where}: {error.msg}: correct the script") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{place}: Python cannot compile it: {error}") from error
    except ConfigurationError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        why = error.strerror or str(error).removeprefix(f"{place}: ")
        raise UsageError(f"{place}: cannot be read: {why}") from error


def _remote(url: str) -> EntryPoint:
    # fsspec's chains name the file first: zip://app.py::…, simplecache::s3://bucket/app.py
    link = next(one for one in url.split("::") if "://" in one)
    name = link.partition("?")[0].partition("://")[2].rpartition("/")[2]
    path = Path(urllib.parse.unquote(name))
    if not path.name:
        raise UsageError(f"{url}: names no file: give the URL of a script")
    _check_kind(path, url)
    script = ScriptFile(path, f"app/{path.name}", url=url)
    return EntryPoint(path.name, url, path.stem, script, (script,))


# --- modules --------------------------------------------------------------------------------------


def _module(name: str, cwd: str) -> EntryPoint:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"-m {name}: is no module's name: give package.module, or a script")
    found = _found(f"-m {name}", name, cwd)
    if found.submodule_search_locations is not None:
        inner = _inner(f"{name}.__main__", found)
        if inner is None:
            raise UsageError(f"-m {name}: is a package without __main__: give a module of it")
        found = inner
    return _of_module(MODULE + name, name.rpartition(".")[2], found)


def _function(app: str, cwd: str) -> EntryPoint:
    module, _, function = app.partition(":")
    found = _found(app, module, cwd)
    if found.origin is None:
        raise UsageError(f"{app}: {module!r} is a directory without __init__.py: give its module")
    return _of_module(app, function, found)


def _found(shown: str, name: str, cwd: str) -> ModuleSpec:
    """Return where a module is. Raises `UsageError`."""
    importlib.invalidate_caches()
    top, *inner = name.split(".")
    # One search: a plain directory counts only if no package of that name is further along.
    found = PathFinder.find_spec(top, [cwd, *sys.path])
    if found is None:
        try:
            found = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            found = None
    walked = top
    for part in inner:
        if found is None:
            break
        walked = f"{walked}.{part}"
        found = _inner(walked, found)
    if found is None:
        raise UsageError(
            f"{shown}: no module {walked!r} in {cwd} or on the path of {sys.executable}"
        )
    return found


def _inner(name: str, package: ModuleSpec) -> ModuleSpec | None:
    """Return a module in a package; None if it is not there, or the package is none."""
    locations = package.submodule_search_locations
    if locations is None:
        return None
    # By its last part: for the whole name of a plain directory, Python asks sys.modules.
    found = PathFinder.find_spec(name.rpartition(".")[2], locations)
    if found:
        found.name = name
    return found


def _of_module(target: str, title: str, found: ModuleSpec) -> EntryPoint:
    origin = Path(found.origin or "")
    if not found.has_location or not origin.is_file():
        return EntryPoint(target, "", title, None, ())
    if _INSTALLED & {*origin.parts} or origin.is_relative_to(Path(os.__file__).parent):
        return EntryPoint(target, "", title, SourceFile(origin, f"app/{origin.name}"), ())
    depth = found.name.count(".") + (origin.name == "__init__.py")
    files = tuple(code.beside(origin, origin.parents[depth]))
    return EntryPoint(target, "", title, files[0], files)


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
