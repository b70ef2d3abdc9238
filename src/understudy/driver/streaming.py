"""Checkpoints of an attempt's streaming queries: verified at its start, recorded as they grow.

And their places: `CheckpointLocation` is ``ctx.checkpoint_location``.
"""

from __future__ import annotations

import functools
import logging
import re
from typing import Any

from understudy.clock import Clock
from understudy.config import options
from understudy.driver.checkpointing import Recorder
from understudy.driver.query_location import batch_digest, look
from understudy.driver.query_observer import (
    CommittedBatch,
    KnownQueries,
    Observer,
    Queries,
    checkpoint,
)
from understudy.errors import CheckpointError, UsageError
from understudy.ha.storage import BlockingStorage
from understudy.model import Checkpoint, CheckpointKind
from understudy.process.persist import persist_blocking
from understudy.rpc.messages import Deploy
from understudy.spark import query_log
from understudy.spark.query_log import LocationContent
from understudy.spark.urls import plain_url, spark_url

NAME_CHARS_MAX = 100
"""Longer names could exceed a file system's limit."""

_NAME = re.compile(r"[\w=+-][\w.=+-]*", re.ASCII)
_OF_SPARK = frozenset({"metadata", "offsets", "commits", "sources", "state"})
"""Names that Spark itself uses in a checkpoint location."""

SETTLE_S = 10.0
"""How long an ended attempt waits for the record of its last batches. Without a leader the record
may take longer: then the TaskManager keeps reporting the batches."""

_log = logging.getLogger(__name__)


class CheckpointLocation(str):
    """A directory as Spark's path or URL; called with a name, a subdirectory."""

    __slots__ = ()

    def __call__(self, name: str) -> CheckpointLocation:
        """Return the location of the query ``name``. Raises `UsageError` for a bad name."""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
            raise UsageError(
                f"{name!r} cannot name a checkpoint location: give it letters and digits, and "
                f"'_', '-', '+', '=' or '.' within, {NAME_CHARS_MAX} at most"
            )
        if name in _OF_SPARK:
            raise UsageError(
                f"{name!r} cannot name a checkpoint location, since Spark puts files of that name "
                "into one: choose another name"
            )
        return CheckpointLocation(f"{self}/{name}")

    def __truediv__(self, name: str) -> CheckpointLocation:
        """Return the location of the query ``name``. Raises `UsageError` for a bad name."""
        return self(name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as plain text: executors may not have this package."""
        return str, (str(self),)


class StreamKeeper:
    """The streaming queries of one attempt."""

    def __init__(
        self, deploy: Deploy, recorder: Recorder, storage: BlockingStorage, clock: Clock
    ) -> None:
        self._deploy = deploy
        self._recorder = recorder
        self._clock = clock
        self.location = CheckpointLocation(
            spark_url(storage.url, f"{deploy.checkpoints}/streaming")
        )
        self._recorded = [one for one in deploy.restored if one.kind is CheckpointKind.BATCH]
        self._last: dict[str, int] = {}
        """The last batch committed by earlier attempts, by query id."""
        self._queries: Queries | None = None
        self._observer: Observer | None = None

    def verify(self) -> None:
        """Compare the checkpoint locations with the records, before the function is called.

        Raises `CheckpointError`, and writes nothing, if a location differs from its record.
        """
        self._last.update(self._verify())  # A running observer shares this dict.

    def watch(self, queries: Queries) -> None:
        """Record every batch that the queries commit from now on."""
        self._queries = queries
        self._observer = Observer(
            queries,
            self._recorder,
            self._deploy.attempt,
            KnownQueries(
                plain_url(str(self.location)),
                self._last,
                {one.name: one for one in self._recorded},
            ),
            self._clock,
        )

    def end(self) -> None:
        """Stop running queries and record their last batches, before an outcome is staged.

        Raises if a query does not stop: then the attempt must not be reported as ended.
        """
        if self._queries is None:
            return
        self._queries.stop()
        self._queries.close()
        if self._observer:
            self._observer.finish()
            self._observer = None
            if self._queries.any and not self._recorder.settle(SETTLE_S):
                _log.warning("the last batches are not recorded yet: they are told on")

    @property
    def was_stopped(self) -> bool:
        """Return whether the request to end the attempt stopped running queries."""
        return self._queries is not None and self._queries.any and self._queries.interrupted

    def _verify(self) -> dict[str, int]:
        """Return the last committed batch, by query id. Raises `CheckpointError`."""
        damage: list[str] = []
        last: dict[str, int] = {}
        more: list[Checkpoint] = []
        for one in self._recorded:
            found, what = _judge(one)
            if what:
                damage.append(_sentence(one, found, what))
            else:
                more.extend(self._committed_since(one, found))
            if found.query_id:
                last[found.query_id] = found.last
        if damage and not self._deploy.accept_found:
            raise CheckpointError(
                f"{'; '.join(damage)}. Going on would write rows twice, or leave some out, so "
                "nothing was started. Put back what was there; or set "
                f"{options.ACCEPT_FOUND.key} to true to go on from what is found"
            )
        for sentence in damage:
            _log.warning("%s; it is taken since %s is set", sentence, options.ACCEPT_FOUND.key)
        if more:
            self._recorder.report(*more)
        return last

    def _committed_since(self, one: Checkpoint, found: LocationContent) -> list[Checkpoint]:
        """Return the batches that an earlier attempt committed but did not record."""
        now = self._clock.wall()
        attempt = self._deploy.attempt
        return [
            checkpoint(
                CommittedBatch(one.name, one.location, one.query_id, number, found.batches[number]),
                attempt,
                now,
                None,
            )
            for number in found.committed
            if number > one.batch_id
        ]


def _judge(one: Checkpoint) -> tuple[LocationContent, str]:
    """Return the contents of a recorded location, and their problem; empty if none."""
    # An unreachable store proves nothing about its contents: another attempt tries again.
    look_there = functools.partial(look, one.location, one.batch_id)
    found = persist_blocking("look at a query's checkpoint", look_there)
    digest_found = batch_digest(found.batches.get(one.batch_id))
    return found, query_log.problem(one, found, digest_found)


def _sentence(one: Checkpoint, found: LocationContent, what: str) -> str:
    there = f"batch {found.last}" if found.last >= 0 else "none"
    name = f"streaming query {one.name!r}" if one.name else "the streaming query"
    return (
        f"{name} cannot go on at {one.location}: {what} (recorded: batch {one.batch_id} of query "
        f"{one.query_id}; found: {there})"
    )
