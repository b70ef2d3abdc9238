"""Descriptions of user code's exceptions that survive their process."""

from __future__ import annotations

import traceback
import types
from pathlib import Path

from understudy.clock import SystemClock
from understudy.config.secrets import masked
from understudy.errors import JobCanceled, JobFailed, UnderstudyError
from understudy.model import Failure, JobId


def failure_of(error: BaseException) -> Failure:
    """Describe an exception; the traceback starts at user code."""
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
    """Return the job whose `JobFailed` or `JobCanceled` this is; in a group, a failed one first.

    Returns None if a group contains other exceptions, or for any other exception, even one raised
    because of a job. Tasks that await jobs concurrently raise a group.
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
"""Longest message or traceback that is stored: the beginning and the end are kept. An exception's
text may contain a table."""


_LOOKED_THROUGH = 1_000_000
"""How many characters are searched for secrets; only the ends of a longer text are kept."""


def storable(text: str) -> str:
    """Return text that can be stored and shown: without secrets, shortened, valid UTF-8.

    File names that are not UTF-8 contain surrogates.
    """
    text = masked(text[:_LOOKED_THROUGH]) + text[_LOOKED_THROUGH:]
    left_out = len(text) - TEXT_CHARS_MAX
    if left_out > 0:
        half = TEXT_CHARS_MAX // 2
        text = f"{text[:half]}\n… {left_out:,} characters are left out …\n{text[-half:]}"
        text = masked(text)
    return text.encode("utf-8", "backslashreplace").decode()


def shown(value: object) -> str:
    """Return a value's ``repr``, or its type if ``repr`` fails."""
    try:
        return repr(value)
    except BaseException:
        return f"<a {type(value).__name__}>"


def _message(error: BaseException) -> str:
    if isinstance(error, UnderstudyError) and error.args:
        return str(error.args[0])
    try:
        return str(error)
    except BaseException as broken:  # The exception is user code, and so is its ``__str__``.
        return f"<its text cannot be told: {type(broken).__name__}>"


def _user_frames(error: BaseException) -> types.TracebackType | None:
    """Return the traceback without this package's outer frames, which do not help the user."""
    frames = error.__traceback__
    package = Path(__file__).parents[1]
    while frames and frames.tb_next and package in Path(frames.tb_frame.f_code.co_filename).parents:
        frames = frames.tb_next
    return frames
