"""What a job is submitted with, apart from its function and arguments: its name and its own limits.

The values come from people, so each is checked where it is written, before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from understudy.config.option import INFINITE, PERIOD
from understudy.core import matching
from understudy.errors import SubmissionError
from understudy.model import Limits
from understudy.process.failures import shown

NoRetry = Iterable[type[BaseException] | str]
"""Classes of exceptions, or their names, with or without the module."""

NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings of one job; what is None is not said here."""

    name: str | None = None
    no_retry: tuple[str, ...] | None = None
    limits: Limits = NO_LIMITS

    def over(self, other: JobSettings) -> JobSettings:
        """Return these settings, with those of ``other`` where these say nothing."""
        mine, theirs = self.limits, other.limits
        limits = Limits(
            retries=theirs.retries if mine.retries is None else mine.retries,
            timeout_s=theirs.timeout_s if mine.timeout_s is None else mine.timeout_s,
            whole=mine.whole or theirs.whole,
        )
        return JobSettings(
            other.name if self.name is None else self.name,
            other.no_retry if self.no_retry is None else self.no_retry,
            limits,
        )


def job_settings(
    name: str | None = None,
    no_retry: NoRetry | None = None,
    retries: int | None = None,
    timeout: str | None = None,
) -> JobSettings:
    """Return what a person has said of a job, checked.

    Raises `SubmissionError`; `JobNameError`, its subclass, for the name.
    """
    if name is not None:
        matching.check_name(name)
    return JobSettings(name, _class_names(no_retry), Limits(_retries(retries), _timeout_s(timeout)))


def whole_job(name: str) -> JobSettings:
    """Return the settings of code that was not written as a job: no exception is retried."""
    return JobSettings(name, _class_names((BaseException,)), Limits(whole=True))


def _retries(retries: object) -> int | None:
    if retries is None:
        return None
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= INFINITE:
        raise SubmissionError(
            f"retries={shown(retries)}: give a whole number that is not negative, as retries=2"
        )
    return retries


def _timeout_s(timeout: object) -> float | None:
    if timeout is None:
        return None
    expected = "a text with a duration, such as '2 h' or '90 s'"
    if isinstance(timeout, str):
        try:
            return PERIOD.parse(timeout.strip())
        except ValueError as error:
            expected = str(error)
    raise SubmissionError(f"timeout={shown(timeout)}: give {expected}")


def _class_names(no_retry: NoRetry | None) -> tuple[str, ...] | None:
    """Return the names of exceptions as a plan holds them. Raises `SubmissionError`."""
    if no_retry is None:
        return None
    if isinstance(no_retry, str | type) or not isinstance(no_retry, Iterable):
        raise SubmissionError(
            f"no_retry={shown(no_retry)}: give a tuple of classes or names, as no_retry=(KeyError,)"
        )
    return tuple(_class_name(one) for one in no_retry)


def _class_name(one: object) -> str:
    if isinstance(one, type) and issubclass(one, BaseException):
        return f"{one.__module__}.{one.__qualname__}"
    if isinstance(one, str) and one:
        return one
    raise SubmissionError(
        f"no_retry holds {shown(one)}: give classes of exceptions, or their names"
    )
