"""The Python that runs an application: the one of its project, which has its packages.

All processes of a run use the interpreter of the command that starts them. So a command that a
person wants to run elsewhere (``--python``), or that is installed as a tool of its own (uv tool,
pipx) beside the project, executes itself once more with the project's interpreter. That needs the
same version of Understudy there: both read the same data.
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

from understudy.errors import UsageError
from understudy.installing import install_command
from understudy.version import VERSION

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
