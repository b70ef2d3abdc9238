"""``ctx.write`` and ``ctx.fenced_batch``: the calls of a job's function, checked."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from understudy.clock import Clock
from understudy.driver.checkpointing import Recorder
from understudy.driver.context import WriteTarget
from understudy.driver.kept_state import StateKeeper
from understudy.driver.safe_writes import Batch, SafeWrites
from understudy.errors import CheckpointError
from understudy.process.forks import Home
from understudy.process.publishing import Mode
from understudy.rpc.messages import Deploy

NAME_BYTES_MAX = 200
"""The register holds a write's name while its job runs."""

_log = logging.getLogger(__name__)

_MODES = {
    "append": Mode.APPEND,
    "overwrite": Mode.OVERWRITE,
    "ignore": Mode.IGNORE,
    "error": Mode.ERROR,
    "errorifexists": Mode.ERROR,
    "default": Mode.ERROR,
}


class JobWrites:
    """The writes of one attempt, in Spark's terms."""

    def __init__(self, writes: SafeWrites) -> None:
        self._writes = writes

    @classmethod
    def of(cls, deploy: Deploy, recorder: Recorder, state: StateKeeper, clock: Clock) -> JobWrites:
        """Return the writes of an attempt."""
        return cls(SafeWrites(deploy, recorder, state, clock))

    def write(self, session: Any, df: Any, target: WriteTarget, name: str | None) -> None:
        """Write a DataFrame once (`JobContext.write`). Raises `CheckpointError`."""
        spark = _spark()
        spark.check(df, session)
        if name is not None and not (name and len(name.encode()) <= NAME_BYTES_MAX):
            raise CheckpointError(f"name={name!r}: a name has 1 to {NAME_BYTES_MAX} bytes")
        fence = spark.fence_of(df)
        batch = None
        if isinstance(fence, _Fence) and fence.writes is self:
            batch = fence.batch
        elif spark.is_in_batch(session):
            raise CheckpointError(
                "ctx.write in a batch of a streaming query does not know what earlier batches "
                "wrote: give foreachBatch ctx.fenced_batch(function)"
            )
        writing = spark.writing(
            df, target.path, target.mode, target.format, target.partition_by, target.options
        )
        self.carry_out(session, writing, name, batch)

    def carry_out(self, session: Any, writing: Any, name: str | None, batch: Batch | None) -> None:
        """Write files through staging, Delta tables through transactions; refuse other formats."""
        spark = _spark()
        mode = _MODES.get(writing.mode.lower())
        if mode is None:
            raise CheckpointError(
                f"mode={writing.mode!r}: choose append, overwrite, errorifexists or ignore"
            )
        if writing.format == "delta":
            spark.check_delta(session)
            spark.check_reachable(session, writing.path)
            self._transact(writing, mode, name, batch)
            return
        if writing.format not in spark.FILE_FORMATS:
            raise CheckpointError(spark.unsafe(writing.format))
        if mode is Mode.OVERWRITE and writing.dynamic:
            mode = Mode.PARTITIONS
        target: Path = spark.local_path(session, writing.path)

        def emit(rows: Path) -> None:
            spark.check_seen(session, rows.parent)
            writing.emit(spark.url(rows), {})

        with self._writes.counted(name or str(target), batch):
            self._writes.write(target, mode, emit, name, batch)
        spark.refresh(session, writing.path)

    def _transact(self, writing: Any, mode: Mode, name: str | None, batch: Batch | None) -> None:
        if mode is Mode.ERROR:
            raise CheckpointError(
                "mode='errorifexists' cannot be kept for a Delta table: a restarted job would find "
                "what it wrote itself; choose append, overwrite or ignore"
            )
        with self._writes.counted(name or writing.path, batch):
            self._writes.transact(
                writing.path, lambda options: writing.emit(writing.path, options), name, batch
            )

    def fenced_batch(
        self, session: Any, function: Callable[[Any, int], Any]
    ) -> Callable[[Any, int], None]:
        """Return a foreachBatch function that skips done batches (`JobContext.fenced_batch`)."""
        if not callable(function):
            raise CheckpointError(f"fenced_batch takes a function, not a {type(function).__name__}")
        home = Home()

        def run(df: Any, batch_id: int) -> None:
            spark = _spark()
            query = spark.query_of(df) or getattr(function, "__qualname__", "batches")
            batch = self._writes.begin(query, batch_id)
            if batch is None:
                _log.info("batch %d of query %s is recorded as done: skipped", batch_id, query)
                return
            with home.user_code(), spark.fenced(df, _Fence(self, session, batch)):
                function(df, batch_id)
            self._writes.end(batch)

        return run


class _Fence:
    """Passes the writes of a batch to `JobWrites` (an `understudy.spark.writes.Fence`)."""

    def __init__(self, writes: JobWrites, session: Any, batch: Batch) -> None:
        self.writes = writes
        self._session = session
        self.batch = batch

    def write(self, writing: Any) -> None:
        """Carry out a write requested from Spark's own writer."""
        self.writes.carry_out(self._session, writing, None, self.batch)


def _spark() -> Any:
    return importlib.import_module("understudy.spark.writes")
