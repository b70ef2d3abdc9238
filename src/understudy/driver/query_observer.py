"""Watching a job's streaming queries: each committed batch becomes a checkpoint.

A thread reads Spark's new progress reports. Only the file ``commits/<batch>`` proves a commit:
a trigger that found no data reports a batch too, which was not committed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from understudy.clock import Clock
from understudy.core.checkpoints import lightened
from understudy.driver.checkpointing import Recorder, shortened
from understudy.driver.query_location import (
    Location,
    batch_digest,
    open_location,
    read_batch,
)
from understudy.model import NULL, Checkpoint, CheckpointKind, Failure
from understudy.spark import query_log
from understudy.spark.query_log import BatchFiles, SeenQuery
from understudy.spark.urls import plain_url

POLL_S = 1.0
"""Interval between polls while queries run: each costs a few JVM calls per query. If the driver is
lost between two polls, the next attempt records the missed batches from the files."""

PENDING_MAX = 100
"""How many reports Spark itself keeps per query."""

FOUND = msgspec.Raw(b'{"found":true}')
"""Marks a batch recorded from its files alone: its rows and duration are unknown."""

_log = logging.getLogger(__name__)


class Queries(Protocol):
    """The streaming queries that a job starts."""

    changed: threading.Event
    """Set when a query starts, or by anyone who wants the observer to look."""
    interrupted: bool

    @property
    def any(self) -> bool:
        """Return whether the job has started a query."""
        ...

    def look(self) -> list[SeenQuery]:
        """Return the queries not known to have ended, with their reports since the last call."""
        ...

    def settle(self, value: Any) -> Any:
        """Wait until all queries have ended; return ``value``, or None if it is a query."""
        ...

    def stop(self) -> None:
        """Stop all queries and wait for their end. Raises if one does not stop."""
        ...

    def close(self) -> None:
        """Stop listening to queries."""
        ...


@dataclass(frozen=True)
class KnownQueries:
    """What an attempt knows of its queries before they start."""

    own: str
    """``ctx.checkpoint_location``, which nobody else uses."""
    restored: Mapping[str, int]
    """Each query's last recorded batch, by query id."""
    recorded: Mapping[str, Checkpoint]
    """The checkpoints of earlier attempts, by name."""


@dataclass(frozen=True)
class CommittedBatch:
    """One batch that a query has committed."""

    query: str
    """The query's name in checkpoints."""
    location: str
    query_id: str
    number: int
    files: BatchFiles


@dataclass
class _Followed:
    """One query, and its last recorded batch."""

    slot: str
    location: str
    place: Location
    last: int | None
    pending: list[dict[str, Any]] = field(default_factory=list)
    """Reports of batches not yet committed, oldest first."""


class Observer:
    """Reports to a recorder each batch that the queries of one attempt commit."""

    def __init__(
        self,
        queries: Queries,
        recorder: Recorder,
        attempt: int,
        known: KnownQueries,
        clock: Clock,
    ) -> None:
        self._queries = queries
        self._recorder = recorder
        self._attempt = attempt
        self._own = known.own
        self._restored = known.restored
        self._recorded = known.recorded
        self._clock = clock
        self._followed: dict[str, _Followed] = {}
        self._over = threading.Event()
        self._complained: set[str] = set()
        self._thread = threading.Thread(
            target=self._watch, name="understudy-checkpoints", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Record the last committed batches, then end the thread."""
        self._over.set()
        self._queries.changed.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self._queries.changed.wait(POLL_S if self._queries.any else None)
            self._queries.changed.clear()
            over = self._over.is_set()
            try:
                self._look()
            except Exception as error:
                self._complain("", f"streaming queries cannot be watched: {error}")
            if over:
                return

    def _look(self) -> None:
        taken: list[Checkpoint] = []
        broken: list[Checkpoint] = []
        ended: dict[str, Failure] = {}
        for seen in self._queries.look():
            if seen.temporary:
                self._complain(
                    seen.query_id,
                    f"streaming query {seen.name or seen.query_id!r} has no checkpointLocation: a "
                    "restarted attempt begins it from the start; use ctx.checkpoint_location",
                )
                continue
            try:
                followed = self._followed.get(seen.query_id) or self._follow(seen)
            except OSError as error:
                self._complain(seen.location, f"{seen.location}: cannot be looked at: {error}")
                continue
            followed.pending.extend(seen.progress)
            if seen.failure:
                ended[seen.query_id] = seen.failure
        for query_id, followed in self._followed.items():
            try:
                taken.extend(self._committed(query_id, followed))
                if failure := ended.get(query_id):
                    broken.extend(self._broken(query_id, followed, failure))
            except OSError as error:
                self._complain(
                    followed.location, f"{followed.location}: cannot be looked at: {error}"
                )
        if taken:
            self._recorder.report(*_lightened(taken))
        for one in broken:
            self._recorder.failed(one)

    def _follow(self, seen: SeenQuery) -> _Followed:
        location = plain_url(seen.location)
        slot = self._slot(seen, location)
        last = self._restored.get(seen.query_id)
        before = self._recorded.get(slot)
        if last is None and before is not None:
            self._complain(
                seen.query_id,
                f"streaming query {slot!r} does not go on from batch {before.batch_id}, which is "
                f"recorded at {before.location}: it was started at {location}",
            )
        if last is None and self._is_own(location):
            last = -1
        followed = _Followed(slot, location, open_location(location), last)
        self._followed[seen.query_id] = followed
        return followed

    def _slot(self, seen: SeenQuery, location: str) -> str:
        """Return the name of a query's checkpoints, the same in every attempt."""
        name = seen.name
        if not name and self._is_own(location):
            name = location.removeprefix(self._own).strip("/")
        elif not name:
            return location
        taken = any(
            one.slot == name and one.location != location for one in self._followed.values()
        )
        return location if taken else name

    def _is_own(self, location: str) -> bool:
        return f"{location}/".startswith(f"{self._own}/")

    def _committed(self, query_id: str, followed: _Followed) -> Iterator[Checkpoint]:
        pending, followed.pending = followed.pending[-PENDING_MAX:], []
        while pending:
            report = pending[0]
            number = int(report["batchId"])
            if followed.last is None:
                followed.last = number - 1  # Earlier commits are not this job's.
            if number > followed.last:
                try:
                    batch = read_batch(followed.place, number)
                    passed = self._passed(query_id, followed, number) if batch.commit else []
                except OSError:
                    followed.pending = [*pending, *followed.pending]
                    raise
                if batch.commit is None or batch.offsets is None:
                    followed.pending.append(pending.pop(0))
                    continue
                yield from passed
                yield self._checkpoint(query_id, followed, number, batch, report)
                followed.last = number
            pending.pop(0)

    def _passed(self, query_id: str, followed: _Followed, number: int) -> list[Checkpoint]:
        """Return committed batches whose reports Spark has dropped."""
        assert followed.last is not None
        if number == followed.last + 1:
            return []
        found = []
        for one in query_log.batch_numbers(followed.place.names("commits")):
            if followed.last < one < number:
                batch = read_batch(followed.place, one)
                found.append(self._checkpoint(query_id, followed, one, batch, None))
        return found

    def _broken(self, query_id: str, followed: _Followed, failure: Failure) -> Iterator[Checkpoint]:
        """Yield the batch in which a query failed: started, not committed."""
        begun, done = (
            max(query_log.batch_numbers(followed.place.names(log)), default=-1)
            for log in ("offsets", "commits")
        )
        if begun > done:
            yield Checkpoint(
                kind=CheckpointKind.BATCH,
                name=followed.slot,
                attempt=self._attempt,
                location=followed.location,
                batch_id=begun,
                query_id=query_id,
                failure=replace(shortened(failure), time=self._clock.wall()),
            )

    def _checkpoint(
        self,
        query_id: str,
        followed: _Followed,
        number: int,
        batch: BatchFiles,
        report: Mapping[str, Any] | None,
    ) -> Checkpoint:
        committed = CommittedBatch(followed.slot, followed.location, query_id, number, batch)
        return checkpoint(committed, self._attempt, self._clock.wall(), report)

    def _complain(self, about: str, sentence: str) -> None:
        if about not in self._complained:
            self._complained.add(about)
            _log.warning("%s", sentence)


def checkpoint(
    committed: CommittedBatch, attempt: int, now: float, report: Mapping[str, Any] | None
) -> Checkpoint:
    """Return a committed batch as a checkpoint; ``report`` is Spark's progress report, if any."""
    files = committed.files
    offsets, commit = files.offsets or b"", files.commit or b""
    rows, duration_s = 0, 0.0
    if report is not None:
        rows = int(report.get("numInputRows") or 0)
        durations = report.get("durationMs") or {}
        duration_s = float(durations.get("triggerExecution", report.get("batchDuration", 0))) / 1e3
        with contextlib.suppress(KeyError, ValueError, TypeError):
            now = datetime.fromisoformat(report["timestamp"]).timestamp() + duration_s
    return Checkpoint(
        kind=CheckpointKind.BATCH,
        name=committed.query,
        attempt=attempt,
        location=committed.location,
        digest=batch_digest(files),
        batch_id=committed.number,
        query_id=committed.query_id,
        offsets=msgspec.Raw(query_log.offsets_json(offsets)),
        rows=rows,
        size=len(offsets) + len(commit),
        duration_s=duration_s,
        completed_at=now,
        note=NULL if report is not None else FOUND,
    )


def _lightened(taken: list[Checkpoint]) -> list[Checkpoint]:
    """Drop the large offsets of all but each query's newest batch."""
    newest = {one.query_id: one.batch_id for one in taken}
    return [one if one.batch_id == newest[one.query_id] else lightened(one) for one in taken]
