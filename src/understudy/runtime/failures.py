"""Exceptions of user code, described so that they survive their process."""

from __future__ import annotations

import traceback
import types
from pathlib import Path

from understudy.clock import SystemClock
from understudy.errors import UnderstudyError
from understudy.model import Failure


def failure_of(error: BaseException) -> Failure:
    """Describe an exception, with the traceback from user code on."""
    clock = SystemClock()
    lines = traceback.format_exception(type(error), error, _user_frames(error))
    name = type(error).__qualname__
    if type(error).__module__ not in {"builtins", "__main__"}:
        name = f"{type(error).__module__}.{name}"
    return Failure(
        type=storable(name),
        message=storable(_message(error)),
        traceback=storable("".join(lines)),
        time=clock.wall(),
    )


def storable(text: str) -> str:
    """Return text that can be written down: file names that are no UTF-8 bring surrogates in."""
    return text.encode("utf-8", "backslashreplace").decode()


def _message(error: BaseException) -> str:
    if isinstance(error, UnderstudyError) and error.args:
        return str(error.args[0])
    try:
        return str(error)
    except Exception as broken:  # The exception is a person's: so is what its text does.
        return f"<its text cannot be told: {type(broken).__name__}>"


def _user_frames(error: BaseException) -> types.TracebackType | None:
    """Leave out the frames of this module, which tell the user nothing."""
    frames = error.__traceback__
    here = Path(__file__).parent
    while frames and frames.tb_next and Path(frames.tb_frame.f_code.co_filename).parent == here:
        frames = frames.tb_next
    return frames
