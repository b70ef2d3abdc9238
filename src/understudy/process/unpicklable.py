"""Who is to blame when a job cannot be pickled: the variable, its type, its function, the way out.

cloudpickle says "cannot pickle '_thread.lock' object". A person needs to know which variable of
which function holds it. So this pickles the parts one by one and descends into those that fail, by
the same paths as cloudpickle: globals, captured variables and defaults of functions, items of
containers, attributes of objects. It runs only after a job was refused, and blames at most
`BLAMED_MAX` values.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

BLAMED_MAX = 3
"""Values that a message names: the first ones are enough to see the pattern."""

DEPTH_MAX = 20
"""How deep to descend: beyond, the name would be longer than its use."""

_SESSIONS = {"SparkSession": "ctx.spark", "SparkContext": "ctx.spark.sparkContext"}

_TABLE = (
    "pass its path and read it in the job, or return ctx.table(df) from an earlier job and pass "
    "the handle"
)

_SUBMITS = "only main submits jobs, with what other jobs have returned"

_WAYS = {
    "pyspark.DataFrame": _TABLE,
    "pyspark.RDD": _TABLE,
    "pyspark.Column": "build it inside the function",
    "understudy.Environment": _SUBMITS,
    "understudy.JobOptions": _SUBMITS,
    "understudy.JobClient": "pass client.result().value",
    "understudy.JobContext": "each function gets its own as its first argument",
}
"""By the package of a class, or of a base of it, and the name of that class."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A value that is pickled with a job, and how a person finds it."""

    value: Any
    where: str
    """What leads to the name, such as "`load` uses the global"."""
    name: str
    user: str
    """The function that uses it."""
    has_context: bool
    """That function is the job's own, which is called with a context."""

    def inner(self, value: Any, step: str) -> _Part:
        """Return an item or an attribute of this value."""
        return replace(self, value=value, name=f"{self.name}{step}")


def blame(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[str]:
    """Return a sentence for each value that cannot be pickled; empty if none is found."""
    search = _Search(_own(function))
    user = _called(function)
    search.descend(_Part(function, "it is", user, user, has_context=True), 0)
    names = _parameters(function)
    for index, value in enumerate(args):
        name = names[index] if index < len(names) else str(index + 1)
        search.descend(_Part(value, "it has the argument", name, user, has_context=True), 0)
    for name, value in kwargs.items():
        search.descend(_Part(value, "it has the argument", name, user, has_context=True), 0)
    return [_sentence(one) for one in search.found]


class _Search:
    """A descent into the parts of a job that cannot be pickled."""

    def __init__(self, own: object) -> None:
        self.found: list[_Part] = []
        self._own = own
        self._seen: set[int] = set()

    def descend(self, part: _Part, depth: int) -> None:
        """Blame the innermost parts of this one that cannot be pickled, else the part itself."""
        if len(self.found) >= BLAMED_MAX or id(part.value) in self._seen or _pickles(part.value):
            return
        self._seen.add(id(part.value))
        before = len(self.found)
        if depth < DEPTH_MAX and not _known_way_out(part):
            for inner in self._parts(part):
                self.descend(inner, depth + 1)
        if len(self.found) == before:
            self.found.append(part)

    def _parts(self, part: _Part) -> Iterator[_Part]:
        value = part.value
        if isinstance(value, types.FunctionType):
            yield from _of_function(value, has_context=value is self._own)
        elif isinstance(value, types.MethodType):
            yield replace(part, value=value.__func__)
            yield _Part(value.__self__, "it holds", "self", part.user, has_context=True)
        elif isinstance(value, functools.partial):
            yield replace(part, value=value.func)
            for key, item in [*enumerate(value.args), *value.keywords.items()]:
                yield _Part(item, "its partial holds", str(key), part.user, part.has_context)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield part.inner(item, f"[{_short(key)}]")
        elif isinstance(value, list | tuple | set | frozenset):
            for index, item in enumerate(value):
                yield part.inner(item, f"[{index}]")
        else:
            for name, item in _attributes(value).items():
                yield part.inner(item, f".{name}")


def _pickles(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def _of_function(function: types.FunctionType, *, has_context: bool) -> Iterator[_Part]:
    user, code = _called(function), function.__code__
    for name in sorted(_globals_used(code)):
        if name in function.__globals__:
            value = function.__globals__[name]
            yield _Part(value, f"`{user}` uses the global", name, user, has_context)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # It is not assigned yet.
            value = cell.cell_contents
            yield _Part(value, f"`{user}` captures the variable", name, user, has_context)
    defaults = function.__defaults__ or ()
    with_default = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    given = {**dict(zip(with_default, defaults, strict=True)), **(function.__kwdefaults__ or {})}
    for name, value in given.items():
        yield _Part(value, f"`{user}` has the default", name, user, has_context)


def _globals_used(code: types.CodeType) -> set[str]:
    used = {str(one.argval) for one in dis.get_instructions(code) if one.opname.endswith("_GLOBAL")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            used |= _globals_used(constant)
    return used


def _attributes(value: Any) -> dict[str, Any]:
    """Return an object's or a class's own attributes; empty for objects of libraries of ours."""
    if type(value).__module__.partition(".")[0] in {"pyspark", "py4j", "understudy"}:
        return {}
    try:
        return {name: item for name, item in vars(value).items() if not name.startswith("__")}
    except TypeError:
        return {}


def _sentence(part: _Part) -> str:
    kind = type(part.value)
    known = _known_way_out(part)
    bare = known or kind.__module__ in {"builtins", "__main__"}
    name = kind.__name__ if bare else f"{kind.__module__}.{kind.__qualname__}"
    article = "an" if name[0].lower() in "aeio" else "a"
    way = known or f"create it inside `{part.user}`"
    return f"{part.where} `{part.name}`, {article} {name}: {way}"


def _known_way_out(part: _Part) -> str:
    """Return the way out for a type that is known; empty for any other."""
    for base in type(part.value).__mro__:
        package = base.__module__.partition(".")[0]
        if package == "pyspark" and (instead := _SESSIONS.get(base.__name__)):
            return f"use `{instead}`" if part.has_context else f"pass `{instead}` to `{part.user}`"
        if way := _WAYS.get(f"{package}.{base.__name__}"):
            return way
    return ""


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters after ``ctx``, as far as arguments go by position."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in parameters if one.kind in positional][1:]


def _own(function: Any) -> object:
    """Return the function that is called with the context in the end."""
    while isinstance(function, functools.partial | types.MethodType):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return function


def _called(function: Any) -> str:
    own = _own(function)
    return str(getattr(own, "__name__", type(own).__name__))


def _short(key: Any) -> str:
    try:
        text = repr(key)
    except Exception:  # A key is the user's: its ``__repr__`` may raise anything.
        text = "…"
    return text if len(text) <= 40 else f"{text[:40]}…"
