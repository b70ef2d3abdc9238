"""Warnings that name the line of ``main`` at which Understudy was called."""

from __future__ import annotations

import sys
import warnings

_OWN = __name__.partition(".")[0]


def warn(problem: str) -> None:
    """Warn, at the innermost line on the stack that is not Understudy's own."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _OWN:
        level, frame = level + 1, frame.f_back
    warnings.warn(problem, stacklevel=level)
