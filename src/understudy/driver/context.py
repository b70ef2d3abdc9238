"""What a job's function receives as its first argument."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from understudy.errors import UnderstudyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from understudy.driver.attempt import Keeping
    from understudy.driver.streaming import CheckpointLocation


class FencingToken(NamedTuple):
    """Orders attempts: a later attempt's token is greater. For sinks that can refuse the lower.

    Attributes:
        term: the term of the leader that started the attempt.
        attempt: the number of the attempt.
    """

    term: int
    attempt: int


@dataclass(frozen=True)
class WriteTarget:
    """Where a DataFrame is to be written, and how: the settings of Spark's ``df.write``."""

    path: str
    mode: str
    format: str
    partition_by: str | Iterable[str]
    options: Mapping[str, Any]


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
        self._keeping.home.demand("ctx.spark")
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
        ``ctx.checkpoint_location / "orders"``. Raises `CheckpointError` where the session does not
        reach it.
        """
        self._keeping.home.demand("ctx.checkpoint_location")
        location = self._keeping.streams.location
        if "://" in location:
            stores = importlib.import_module("understudy.spark.object_stores")
            stores.check_reachable(self.spark, location)
        return location

    @property
    def stopping(self) -> bool:
        """Say whether this host is to be left soon: save now, to continue from there elsewhere.

        From then on the attempt ends with its next checkpoint: `save` does not return, and the job
        continues in another attempt. Not true for a job that is cancelled, which is interrupted.
        """
        return self._keeping.stopping.is_set()

    def save(self, state: Any) -> int:
        """Keep a value that a restarted attempt continues from; return its number.

        When this returns it is durable, and replaces what was saved before. It may be what a job
        may return (``docs/jobs.md``). Raises `InvalidValueError` for anything else,
        `CheckpointError` where another attempt has begun.
        """
        self._keeping.home.demand("ctx.save")
        return self._keeping.state.save(state)

    def restored(self) -> Any:
        """Return what was saved last, in this attempt or an earlier one; None where nothing was.

        Raises `CheckpointError` where that is gone or damaged.
        """
        self._keeping.home.demand("ctx.restored")
        return self._keeping.state.restored()

    def write(
        self,
        df: DataFrame,
        path: str,
        mode: str = "errorifexists",
        format: str = "parquet",  # noqa: A002 -- Spark's own name
        *,
        name: str | None = None,
        partition_by: str | Iterable[str] = (),
        **options: Any,
    ) -> None:
        """Write a DataFrame to a directory, once, whatever becomes of this attempt.

        ``mode``, ``format``, ``partition_by`` and the options are those of ``df.write``. Readers
        see all of the rows or none. A restarted job passes over what was published, without
        computing ``df``. A write is known by its path and by how many there were to this path
        since the last ``ctx.save``; where that may differ from attempt to attempt, ``name`` it.

        Raises `CheckpointError`, before anything is computed, where this cannot be promised:
        ``docs/safe-writes.md`` says for which stores and formats it can.
        """
        self._keeping.home.demand("ctx.write")
        target = WriteTarget(path, mode, format, partition_by, options)
        self._keeping.writes.write(self.spark, df, target, name)

    def fenced_batch(
        self, function: Callable[[DataFrame, int], Any]
    ) -> Callable[[DataFrame, int], None]:
        """Return a function for ``foreachBatch`` whose writes are done once for each batch.

        A batch that is recorded as done is skipped. In the others, ``ctx.write`` and plain
        ``df.write`` of files and Delta tables are safe as above; what cannot be is refused with a
        `CheckpointError`. Any other effect of the function may happen twice: tell its sink
        ``batch_id`` and `fencing_token`, so that it can drop what it has seen.
        """
        self._keeping.home.demand("ctx.fenced_batch")
        return self._keeping.writes.fenced_batch(self.spark, function)

    def checkpoint(self, df: DataFrame, name: str, format: str = "parquet") -> DataFrame:  # noqa: A002
        """Write a DataFrame durably, and return one that reads it, with the same schema.

        A restarted job gets back what an earlier attempt has kept under this name, and ``df`` is
        not computed. ``format`` is ``parquet`` or ``orc``. Raises `UsageError` for a name that this
        attempt has used and for what cannot be kept, `CheckpointError` where what was kept is gone
        or altered, or where another attempt has begun.
        """
        self._keeping.home.demand("ctx.checkpoint")
        return self._keeping.tables.checkpoint(self.spark, df, name, format)

    def table(self, df: DataFrame, name: str = "table") -> dict[str, Any]:
        """Keep a DataFrame for later jobs of the application; return a handle for `read`.

        The handle is JSON: a job may return it, alone or inside of its value, and it may be an
        argument of another. A restarted job gets back the same handle, and ``df`` is not computed.
        What was kept goes with the application. Raises as `checkpoint` does.
        """
        self._keeping.home.demand("ctx.table")
        _ = self.spark  # Where there is none, that is what must be said.
        return self._keeping.tables.table(df, name)

    def read(self, handle: dict[str, Any]) -> DataFrame:
        """Return the DataFrame that a handle of `table` stands for.

        Raises `UsageError` for what is no handle of this application, `CheckpointError` where what
        was kept is gone or altered.
        """
        self._keeping.home.demand("ctx.read")
        return self._keeping.tables.read(self.spark, handle)


def fenced_batch(
    ctx: JobContext, function: Callable[[DataFrame, int], Any]
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` whose writes are done once for each batch.

    The same as ``ctx.fenced_batch(function)``; see `JobContext.fenced_batch`.
    """
    return ctx.fenced_batch(function)
