"""The option --python: the command executes itself once more with the project's interpreter.

All processes of a run use the interpreter of the command that starts them. So a command that a
person wants to run elsewhere (``--python``), or that is installed as a tool of its own (uv tool,
pipx) beside the project, executes itself once more with the interpreter that has the project's
packages. The same version of Understudy is needed there: both read the same data.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.errors import UsageError
from understudy.installing import install_command
from understudy.version import VERSION


def _there(ctx: typer.Context, value: str | None) -> str | None:
    """Replace this process where another interpreter is to run the command; else return its name.

    Called before the other options are read, whose meaning depends on that interpreter.
    """
    if ctx.resilient_parsing:  # A shell completes the line.
        return value
    program = wanted(value)
    if program is None:
        return None
    # Named there too: the printed command that resumes must not depend on what is active then.
    given = [] if value is not None else ["--python", program]
    first = 1 + _depth(ctx)
    command = command_there(program, [*sys.argv[1:first], *given, *sys.argv[first:]])
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

TOOL_MARKS = ("uv-receipt.toml", "pipx_metadata.json")
"""Files with which uv and pipx mark the environment of a tool."""

ANSWER_S = 60.0
"""How long an interpreter may take to answer; a cold one takes a second."""

_ASK = """
import json, sys
try:
    from understudy.version import VERSION
except ImportError:
    VERSION = None
print(json.dumps([sys.prefix, VERSION]))
"""


def wanted(named: str | None) -> str | None:
    """Return the interpreter that a run is to use; None for this one. Raises `UsageError`.

    Without a name: where Understudy is a tool of its own, that of the active virtual environment.
    """
    if named is not None:
        return _program(named, f"--python {named}")
    active = os.environ.get("VIRTUAL_ENV")
    if not active or not _is_tool():
        return None
    return _program(
        active, f"VIRTUAL_ENV is {active!r} (deactivate it, or name another with --python)"
    )


def command_there(program: str, arguments: Sequence[str]) -> list[str] | None:
    """Return the command that runs these arguments with another interpreter; None if it is this.

    Raises `UsageError` unless that interpreter has the same version of Understudy.
    """
    if Path(program).absolute() == Path(sys.executable).absolute():
        return None
    prefix, version = _ask(program)
    if prefix == sys.prefix:
        return None
    if version != VERSION:
        has = f"Understudy {version}" if version else "no Understudy"
        raise UsageError(
            f"{program} has {has}, and a run needs the version of this command there, {VERSION}: "
            f"{install_command(_source(), python=program)}"
        )
    return [program, "-P", "-m", "understudy", *arguments]


def _is_tool() -> bool:
    return any(Path(sys.prefix, mark).is_file() for mark in TOOL_MARKS)


def _program(named: str, said: str) -> str:
    """Return the absolute path of an interpreter, given as such, by name, or by environment."""
    path = Path(named).expanduser()
    if path.is_dir():
        path /= "bin/python"
    found = str(path.absolute()) if path.is_file() else shutil.which(named)
    if not found:
        raise UsageError(f"{said}: there is no Python interpreter")
    return found


def _ask(program: str) -> tuple[str, str | None]:
    """Return an interpreter's prefix, and the version of Understudy that it would run."""
    try:
        done = subprocess.run(
            [program, "-P", "-c", _ASK],
            capture_output=True,
            check=True,
            text=True,
            timeout=ANSWER_S,
        )
        prefix, version = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, TypeError) as error:
        told = getattr(error, "stderr", None) or getattr(error, "strerror", None) or str(error)
        last = (str(told).strip().splitlines() or [""])[-1]
        raise UsageError(f"{program} does not work as a Python of 3.11 or newer: {last}") from error
    return prefix, version


def _source() -> str:
    """Return what to install for the same version: the place that this one came from, or a name."""
    metadata = importlib.import_module("importlib.metadata")
    try:
        text = metadata.distribution("understudy").read_text("direct_url.json")
        url: str = json.loads(text or "{}").get("url", "")
    except (metadata.PackageNotFoundError, ValueError):
        url = ""
    return url.removeprefix("file://") or f"understudy=={VERSION}"
