"""How to install a package for this interpreter, for messages that advise it."""

from __future__ import annotations

import importlib.util
import shlex
import sys


def install_command(*packages: str, python: str = "") -> str:
    """Return the command that installs packages for ``python``, or for this interpreter.

    A virtual environment of uv has no pip: then it is uv's command.
    """
    words = ["uv", "pip", "install", "--python", python or sys.executable, *packages]
    if not python and importlib.util.find_spec("pip"):
        words = [sys.executable, "-m", "pip", "install", *packages]
    return shlex.join(words)
