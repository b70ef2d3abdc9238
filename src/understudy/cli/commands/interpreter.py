"""The option --python: the command executes itself once more with the project's interpreter."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from understudy.cli.launch import interpreter


def _there(ctx: typer.Context, value: str | None) -> str | None:
    """Replace this process where another interpreter is to run the command; else return its name.

    Called before the other options are read, whose meaning depends on that interpreter.
    """
    if ctx.resilient_parsing:  # A shell completes the line.
        return value
    program = interpreter.wanted(value)
    if program is None:
        return None
    # Named there too: the printed command that resumes must not depend on what is active then.
    given = [] if value is not None else ["--python", program]
    first = 1 + _depth(ctx)
    command = interpreter.command_there(program, [*sys.argv[1:first], *given, *sys.argv[first:]])
    if command:
        sys.stdout.flush()
        os.execv(command[0], command)  # noqa: S606
    return program


def _depth(ctx: Any) -> int:
    """Return the number of words that name the command: two for one of a group."""
    return 1 + _depth(ctx.parent) if ctx.parent else 0


Python = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PYTHON",
        is_eager=True,
        callback=_there,
        help="The interpreter or virtual environment that runs APP; it needs the same Understudy. "
        "Default: this one, or VIRTUAL_ENV where understudy is installed by uv tool or pipx.",
        show_default=False,
    ),
]
