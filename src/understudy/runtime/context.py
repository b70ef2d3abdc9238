"""What a job's function receives as its first argument."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from understudy.errors import UnderstudyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from understudy.runtime.checkpoint_location import CheckpointLocation
    from understudy.runtime.keeping import Keeping


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
    _keeping: Keeping
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

    @property
    def checkpoint_location(self) -> CheckpointLocation:
        """Say where a streaming query of this job keeps its checkpoint: the same in all attempts.

        It is text, for ``.option("checkpointLocation", ctx.checkpoint_location)``. A job with
        several queries gives each its own: ``ctx.checkpoint_location("orders")``, or
        ``ctx.checkpoint_location / "orders"``.
        """
        return self._keeping.streams.location

    def save(self, state: Any) -> int:
        """Keep a JSON value that a restarted attempt goes on from; return its number.

        When this returns it is durable, and replaces what was saved before. It may be as large as
        what a job returns. Raises `InvalidValueError` for what is not JSON, `CheckpointError` where
        another attempt has begun.
        """
        return self._keeping.state.save(state)

    def restored(self) -> Any:
        """Return what was saved last, in this attempt or an earlier one; None where nothing was.

        Raises `CheckpointError` where that is gone or damaged.
        """
        return self._keeping.state.restored()
