"""Exceptions of user code, described so that they survive their process."""

from __future__ import annotations

import traceback
import types
from pathlib import Path

from understudy.clock import SystemClock
from understudy.config.secrets import masked
from understudy.errors import JobCanceled, JobFailed, UnderstudyError
from understudy.model import Failure, JobId


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


def uncaught_job(error: BaseException) -> JobId | None:
    """Return the job of whose end an exception tells: of a failed one rather than a cancelled one.

    None where it tells of anything else: tasks that await jobs side by side raise a group; whoever
    raises an exception of their own because of a job has made it theirs.
    """
    found = _jobs_in(error)
    if not found or None in found:
        return None
    failed = [one for one in found if not isinstance(one, JobCanceled)]
    return JobId(next(one for one in (*failed, *found) if one).job_id)


def _jobs_in(error: BaseException) -> list[JobFailed | None]:
    if isinstance(error, BaseExceptionGroup):
        return [one for each in error.exceptions for one in _jobs_in(each)]
    return [error if isinstance(error, JobFailed) else None]


TEXT_CHARS_MAX = 20_000
"""Of a message or a traceback so much is kept, beginning and end: it is stored and sent whole,
and what an exception holds may be a table."""


_LOOKED_THROUGH = 1_000_000
"""For secrets; of what is longer, only the beginning and the end are kept."""


def storable(text: str) -> str:
    """Return text that can be written down and shown: without secrets.

    File names that are no UTF-8 bring surrogates in.
    """
    text = masked(text[:_LOOKED_THROUGH]) + text[_LOOKED_THROUGH:]
    left_out = len(text) - TEXT_CHARS_MAX
    if left_out > 0:
        half = TEXT_CHARS_MAX // 2
        text = f"{text[:half]}\n… {left_out:,} characters are left out …\n{text[-half:]}"
        text = masked(text)
    return text.encode("utf-8", "backslashreplace").decode()


def shown(value: object) -> str:
    """Return what a value looks like, whatever its class makes of that."""
    try:
        return repr(value)
    except BaseException:
        return f"<a {type(value).__name__}>"


def _message(error: BaseException) -> str:
    if isinstance(error, UnderstudyError) and error.args:
        return str(error.args[0])
    try:
        return str(error)
    except BaseException as broken:  # The exception is a person's: so is what its text does.
        return f"<its text cannot be told: {type(broken).__name__}>"


def _user_frames(error: BaseException) -> types.TracebackType | None:
    """Leave out the frames of this package above the user's: they tell the user nothing."""
    frames = error.__traceback__
    package = Path(__file__).parents[1]
    while frames and frames.tb_next and package in Path(frames.tb_frame.f_code.co_filename).parents:
        frames = frames.tb_next
    return frames
