"""What a job's function receives as its first argument."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from understudy.errors import UnderstudyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FencingToken(NamedTuple):
    """Orders attempts: a later attempt's token is greater. For sinks that can refuse the lower.

    Attributes:
        term: the term of the leader that started the attempt.
        attempt: the number of the attempt.
    """

    term: int
    attempt: int


@dataclass(frozen=True)
class JobContext:
    """The first argument of a job's function.

    Attributes:
        job_id: the job's id, 32 hexadecimal digits; the same in every attempt.
        name: the job's name.
        attempt: the number of this attempt, from 1.
        fencing_token: (term, attempt), growing from attempt to attempt.
        log: a logger whose lines are marked with the job's name.
    """

    job_id: str
    name: str
    attempt: int
    fencing_token: FencingToken
    log: logging.Logger
    _open: Callable[[], SparkSession | None]

    @property
    def spark(self) -> SparkSession:
        """Return this job's session: clean, and what ``builder.getOrCreate()`` gives too."""
        session = self._open()
        if session is None:
            raise UnderstudyError(
                "this driver has no SparkSession: taskmanager.driver.type is 'session-less'"
            )
        return session
