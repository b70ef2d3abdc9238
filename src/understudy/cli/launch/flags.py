"""Options of the command line that belong together: declared once, as fields of a value.

Typer reads a function's signature only. A command takes such a value as one parameter, and
`grouped` shows typer an option for each field. So commands that share options share their
declarations too.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any

Command = Callable[..., None]


def grouped(command: Command) -> Command:
    """Let the parameters of a command that are dataclasses be formed from the options typed.

    A field is an option or argument as typer declares it, or another such value. A class that has
    ``flags`` and ``formed`` declares and forms its values by itself.
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups = {one.name: one.annotation for one in own if dataclasses.is_dataclass(one.annotation)}
    flags: list[inspect.Parameter] = []
    for one in own:
        flags += _flags(groups[one.name]) if one.name in groups else [one]
    flags.sort(key=_panel)  # What has a panel of its own stands at the end of the help text.

    @functools.wraps(command)
    def typed(**given: Any) -> None:
        for name, kind in groups.items():
            if name not in given:  # Otherwise another command has taken the options.
                given[name] = _formed(kind, given)
        command(**given)

    typed.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    typed.__annotations__ = {one.name: one.annotation for one in flags}
    return typed


def flag(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """Return an option as a parameter of a command; ``annotation`` declares it."""
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
    )


def extended(command: Command, flags: list[inspect.Parameter], body: Command) -> Command:
    """Return ``body`` as a command that has the options of another, and further ones."""
    own = [*inspect.signature(command, eval_str=True).parameters.values(), *flags]
    body.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    body.__annotations__ = {one.name: one.annotation for one in own}
    return body


def _flags(kind: Any) -> Iterator[inspect.Parameter]:
    if hasattr(kind, "flags"):
        yield from kind.flags()
        return
    for name, default, annotation in _fields(kind):
        if dataclasses.is_dataclass(annotation):
            yield from _flags(annotation)
        elif _is_several(annotation):  # Typer reads lists.
            yield flag(name, Annotated[list[str] | None, *annotation.__metadata__])
        else:
            yield flag(name, annotation, default)


def _formed(kind: Any, given: dict[str, Any]) -> Any:
    """Return the value, and remove from ``given`` what it is formed of."""
    if hasattr(kind, "formed"):
        return kind.formed({one.name: given.pop(one.name, None) for one in kind.flags()})
    found: dict[str, Any] = {}
    for name, _, annotation in _fields(kind):
        if dataclasses.is_dataclass(annotation):
            found[name] = _formed(annotation, given)
        elif name in given:
            value = given.pop(name)
            found[name] = tuple(value or ()) if _is_several(annotation) else value
    return kind(**found)


def _fields(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """Return the name, default and annotation of each field."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for one in dataclasses.fields(kind):
        has_none = one.default is dataclasses.MISSING
        yield one.name, inspect.Parameter.empty if has_none else one.default, hints[one.name]


def _is_several(annotation: Any) -> bool:
    return typing.get_origin(getattr(annotation, "__origin__", None)) is tuple


def _panel(one: inspect.Parameter) -> str:
    declared = getattr(one.annotation, "__metadata__", (None,))[-1]
    return getattr(declared, "rich_help_panel", None) or ""
