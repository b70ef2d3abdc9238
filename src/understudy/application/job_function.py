"""What a job's function tells before it runs: whether its value can be kept, whose a name is.

Each mistake here would be seen after the work was done, or never. Annotations count only where they
are certain; a decorated function may return something else than its annotation says.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
import warnings
from collections.abc import Callable
from typing import Annotated, Any, Union

from understudy.application.settings import JobSettings
from understudy.core.values import known_way_out, known_way_out_by_name
from understudy.errors import PlanError, SubmissionError

_OWN = __name__.partition(".")[0]
DECLARED = "__understudy_job__"
"""The attribute in which a decorated function has its `JobSettings`."""

OWN = ("name", "retries", "no_retry", "timeout")
"""Options of a job, which may be meant where a function has no such parameter."""

_CONTAINERS = (list, tuple, set, frozenset, dict)


class CallsOfJob:
    """The owner of the methods `run` and `submit` of a decorated function."""

    def __init__(self, function: Callable[..., Any], settings: JobSettings) -> None:
        self._function = function
        self._settings = settings


def check_function(function: object) -> None:
    """Raise `PlanError` for what is no function, or one whose value cannot be kept."""
    if not callable(function):
        raise PlanError(
            f"execute takes a function, but got {_shown(function)}: write execute(f, …), not "
            "execute(f(…))"
        )
    own: Any = _without_partials(function)
    called = getattr(own, "__name__", type(own).__name__)
    if isinstance(owner := getattr(own, "__self__", None), CallsOfJob):
        job = owner._function.__name__
        raise PlanError(
            f"`{job}.{called}` submits a job by itself: call {job}.{called}(…), or give `{job}` to "
            "execute"
        )
    if inspect.iscoroutinefunction(own):
        raise PlanError(
            f"`{called}` is async, so a call returns a coroutine: give a plain function that calls "
            f"asyncio.run({called}(…))"
        )
    if inspect.isgeneratorfunction(own):
        raise PlanError(f"`{called}` yields, so a call returns a generator: return a list")
    if refused := _refused(_announced(own)):
        kind, way = refused
        raise PlanError(
            f"`{called}` is annotated to return {kind}, which cannot be kept as a value: {way}"
        )


def bind_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, object]:
    """Return the arguments by the names of their parameters, defaults included.

    Raises `SubmissionError` where the function cannot be called with them.
    """
    try:
        # The signature of what is called: a decorator may add arguments to those of the function.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # Nobody knows it.
        placed = {f"argument {number}": one for number, one in enumerate(args, 1)}
        return {**placed, **dict(sorted(kwargs.items()))}
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError as error:
        called = getattr(_without_partials(function), "__name__", type(function).__name__)
        options = [one for one in kwargs if one in OWN and one not in signature.parameters]
        way = f"; give the job its {options[0]} by env.options({options[0]}=…)" if options else ""
        raise SubmissionError(
            f"`{called}` cannot be called with these arguments: {error}{way}. A job is called as "
            f"{called}(ctx, …), with a JobContext before the arguments that are given here"
        ) from None
    bound.apply_defaults()
    return _by_name(bound)


def _by_name(bound: inspect.BoundArguments) -> dict[str, object]:
    """Return bound arguments without the context; those of ``*args`` and ``**kwargs`` apart."""
    found: dict[str, object] = {}
    for place, (name, value) in enumerate(bound.arguments.items()):
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            items = value[1:] if place == 0 else value  # Here, ``*args`` take the context.
            found |= {f"{name}[{number}]": item for number, item in enumerate(items)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found |= dict(sorted(value.items()))
        elif place > 0:
            found[name] = value
    return found


def declared(function: object) -> JobSettings:
    """Return the settings that `understudy.job` has given to a function, if it has."""
    found = getattr(_without_partials(function), DECLARED, None)
    return found if isinstance(found, JobSettings) else JobSettings()


def check_own_name(function: object, args: tuple[Any, ...], name: str | None) -> None:
    """Raise `SubmissionError`, or warn, where ``name=`` may be meant for the function itself."""
    if name is None or not callable(function):
        return
    try:
        signature = inspect.signature(function)
        taken = signature.bind_partial(None, *args).arguments
    except (TypeError, ValueError):
        return  # The call is wrong in another way, or nobody knows the signature.
    own = signature.parameters.get("name")
    if own is None or "name" in taken or own.kind in (own.VAR_KEYWORD, own.POSITIONAL_ONLY):
        return
    called = getattr(function, "__name__", type(function).__name__)
    problem = (
        f"execute(…, name={name!r}) names the job, and `{called}` does not get it as its own "
        f"parameter `name`: write env.options(name='the job').execute({called}, …, name={name!r})"
    )
    if own.default is own.empty:
        raise SubmissionError(problem)
    warn(problem)


def _without_partials(function: object) -> object:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _announced(function: Callable[..., Any]) -> object:
    """Return the annotation of the value: a type, a text that is not understood, or None."""
    if hasattr(function, "__wrapped__"):
        return None
    try:
        annotation = getattr(function, "__annotations__", {}).get("return")
    except NameError:  # Python 3.14 looks at the names only now.
        return None
    if not isinstance(annotation, str):
        return annotation
    try:
        return typing.get_type_hints(function).get("return")
    except Exception:  # Names that only type checkers import, and anything that a name may be.
        return annotation


def _refused(annotation: object) -> tuple[str, str] | None:
    """Return the type that cannot be kept, and the way out; None if the value may be kept."""
    if isinstance(annotation, str):
        way = known_way_out_by_name(annotation)
        return (annotation, way) if way else None
    if isinstance(annotation, type):
        way = known_way_out(annotation)
        return (annotation.__qualname__, way) if way else None
    inner = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _refused(inner[0])
    if origin is Union or origin is types.UnionType:
        refused = [_refused(one) for one in inner if one is not type(None)]
        return refused[0] if refused and all(refused) else None
    if origin not in _CONTAINERS:
        return None
    if origin is dict and inner[0] in (int, float, bool, tuple):
        return (f"a dict with keys of {inner[0].__name__}", "keys are strings, so use str(key)")
    return next((found for one in inner if (found := _refused(one))), None)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # It is the user's: its ``__repr__`` may raise anything.
        text = "…"
    return f"{text if len(text) <= 40 else text[:40] + '…'} ({type(value).__name__})"


def warn(problem: str) -> None:
    """Warn, at the innermost line on the stack that is not Understudy's own."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _OWN:
        level, frame = level + 1, frame.f_back
    warnings.warn(problem, stacklevel=level)
