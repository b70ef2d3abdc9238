"""A query's checkpoint location as Spark 4 writes it, and what an attempt needs beside it."""

from __future__ import annotations

import json
import queue
import threading
from pathlib import Path
from typing import Any

import msgspec

from tests.support.orders import deploy as order_of
from understudy.clock import SystemClock
from understudy.core.handover import Handover
from understudy.driver.query_location import batch_digest
from understudy.driver.streaming import StreamKeeper
from understudy.ha.storage import LocalStorage
from understudy.model import (
    ApplicationId,
    Checkpoint,
    CheckpointKind,
    Failure,
    JobId,
    RunId,
)
from understudy.rpc.messages import Deploy
from understudy.spark.query_log import BatchFiles, SeenQuery

QUERY = "3f0ae1e8-5f6c-4f12-8b7d-6f4f0f4b2f11"
OTHER = "aaaaaaaa-5f6c-4f12-8b7d-6f4f0f4b2f11"
HEAD = '{"batchWatermarkMs":0,"batchTimestampMs":1502872590006,"conf":{}}'

HANDOVER = Handover(
    port=1,
    secret="s",
    jvm_pid=2,
    context="o1",
    session="o2",
    java_conf="o3",
    conf={"spark.master": "local[1]"},
    environment={"A": "b"},
    path=("/a",),
    includes=("x",),
    worker_environment={},
    temporary="/tmp/t",
    encrypted=False,
    group="g",
    label="l",
    per_attempt=True,
)


def write_query(place: Path, query_id: str = QUERY) -> None:
    """Write what a query writes when it is first started."""
    for name in ("offsets", "commits", "sources/0", "sources/1"):
        (place / name).mkdir(parents=True)
    (place / "metadata").write_text(json.dumps({"id": query_id}))


def write_offsets(place: Path, number: int, sources: int = 2) -> bytes:
    """Write what is written before a batch runs."""
    for source in range(sources):
        write_source(place / "sources" / str(source) / str(number), number)
    lines = ["v1", HEAD, *[json.dumps({"logOffset": number})] * sources]
    data = "\n".join(lines).encode()
    (place / "offsets" / str(number)).write_bytes(data)
    return data


def write_source(file: Path, *numbers: int) -> None:
    """Write which files belong to some batches of a file source, as Spark's log of it has them."""
    entries = (
        json.dumps({"path": f"file:///in/{number}.json", "timestamp": 1, "batchId": number})
        for number in numbers
    )
    file.write_text("\n".join(["v1", *entries]))


def write_batch(place: Path, number: int, sources: int = 2) -> BatchFiles:
    """Write what is there of a batch that was committed."""
    offsets = write_offsets(place, number, sources)
    commit = b'v1\n{"nextBatchWatermarkMs":0}'
    (place / "commits" / str(number)).write_bytes(commit)
    return BatchFiles(offsets, commit)


def write_batches(place: Path, last: int, query_id: str = QUERY) -> None:
    """Write a location of which the batches from 0 on were committed, and one more is begun."""
    write_query(place, query_id)
    for number in range(last + 1):
        write_batch(place, number)
    write_offsets(place, last + 1)


def recorded(place: Path, number: int, name: str = "orders") -> Checkpoint:
    """Return what the register holds of a batch that lies there."""
    batch = BatchFiles(
        (place / "offsets" / str(number)).read_bytes(),
        (place / "commits" / str(number)).read_bytes(),
    )
    return Checkpoint(
        kind=CheckpointKind.BATCH,
        name=name,
        attempt=1,
        number=number + 1,
        location=str(place),
        digest=batch_digest(batch),
        batch_id=number,
        query_id=QUERY,
    )


def deploy(*restored: Checkpoint, accept_found: bool = False) -> Deploy:
    """Return the order to run an attempt that goes on from these."""
    return order_of(
        application_id=ApplicationId("a"),
        run_id=RunId("r"),
        job_id=JobId("j"),
        name="live",
        attempt=2,
        writer="w",
        result_size_max=1000,
        checkpoints="c/applications/a/checkpoints/j",
        restored=restored,
        accept_found=accept_found,
    )


class Told:
    """A recorder that remembers."""

    def __init__(self) -> None:
        self.checkpoints: list[Checkpoint] = []
        self.messages: list[int] = []
        self.failures: list[Checkpoint] = []

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        """See `Recorder.record`."""
        self.report(*taken)
        return tuple(range(len(taken)))

    def report(self, *taken: Checkpoint) -> None:
        """See `Recorder.report`."""
        self.checkpoints.extend(taken)
        self.messages.append(len(taken))

    def failed(self, one: Checkpoint) -> None:
        """See `Recorder.failed`."""
        self.failures.append(one)

    def finish(self) -> None:
        """See `Recorder.finish`."""

    def settle(self, timeout_s: float) -> bool:
        """See `Recorder.settle`."""
        return True

    @property
    def batches(self) -> list[tuple[str, int, int]]:
        """Return name, batch and rows of what was told."""
        return [(one.name, one.batch_id, one.rows) for one in self.checkpoints]


def keeper(storage: Path, told: Told, order: Deploy) -> StreamKeeper:
    """Return the streaming part of an attempt."""
    return StreamKeeper(order, told, LocalStorage(storage), SystemClock())


def report(number: int, rows: int, seconds: float = 0.25) -> dict[str, Any]:
    """Return what Spark says of a batch."""
    return {
        "batchId": number,
        "numInputRows": rows,
        "timestamp": "2026-11-21T10:00:00.000Z",
        "durationMs": {"triggerExecution": int(seconds * 1000)},
    }


class Scripted:
    """Queries that report what a test says."""

    def __init__(self, location: str, name: str = "", *, temporary: bool = False) -> None:
        self.changed = threading.Event()
        self.interrupted = False
        self.any = True
        self.stopped = False
        self.failure: Failure | None = None
        self.looks: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._seen = SeenQuery(QUERY, "run", name, location, temporary, ())
        self._reports: list[dict[str, Any]] = []

    def said(self, *reports: dict[str, Any]) -> None:
        """Let the query have reported this."""
        self._reports.extend(reports)

    def look(self) -> list[SeenQuery]:
        """See `Queries.look`."""
        self.looks.put(None)
        reports, self._reports = self._reports, []
        return [
            SeenQuery(
                self._seen.query_id,
                self._seen.run_id,
                self._seen.name,
                self._seen.location,
                self._seen.temporary,
                tuple(reports),
                self.failure,
            )
        ]

    def looked_at(self) -> None:
        """Let everything that was said be dealt with."""
        for _ in range(2):  # The second look begins when the first is over.
            self.changed.set()
            self.looks.get(timeout=10)

    def settle(self, value: Any) -> Any:
        """See `Queries.settle`."""
        return value

    def stop(self) -> None:
        """See `Queries.stop`."""
        self.stopped = True

    def close(self) -> None:
        """See `Queries.close`."""


def offsets_of(one: Checkpoint) -> Any:
    """Return the recorded offsets."""
    return msgspec.json.decode(bytes(one.offsets))
