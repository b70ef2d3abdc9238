"""Writing attempts of a job, and the leader that records their checkpoints, without processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tests.support.frail_disk import FrailDisk, Killed
from tests.support.orders import deploy as order_of
from understudy.clock import SystemClock
from understudy.core import checkpoints
from understudy.driver.kept_state import StateKeeper
from understudy.driver.safe_writes import Batch, SafeWrites
from understudy.errors import CheckpointError
from understudy.ha.storage import FsspecStorage
from understudy.model import (
    ApplicationId,
    Checkpoint,
    Checkpoints,
    JobId,
)
from understudy.process.disk import Disk
from understudy.process.publishing import Mode

JOB = JobId("ab" * 16)

OLD = ["old-1", "old-2"]
NEW = ["new-1", "new-2", "new-3"]


class Leader:
    """Records the checkpoints of the current attempt only, as the CheckpointCoordinator does."""

    def __init__(self, job_id: JobId = JOB) -> None:
        self.job_id = job_id
        self.body = Checkpoints(application_id=ApplicationId("a"), job_id=job_id)
        self.attempt = 0
        self.writer = "understudy-a"
        self.failures: list[Checkpoint] = []
        self.storage = FsspecStorage("memory://safe-writes")

    def begin(self, disk: Disk | None = None) -> Attempt:
        """Begin the next attempt."""
        self.attempt += 1
        return Attempt(self, self.attempt, disk or Disk())

    def begin_anew(self, writer: str) -> Attempt:
        """Begin the next attempt without checkpoints, as after ``--rerun``."""
        self.writer = writer
        self.body = Checkpoints(application_id=ApplicationId("a"), job_id=self.job_id)
        return self.begin()

    def record(self, attempt: int, taken: Iterable[Checkpoint]) -> tuple[int, ...]:
        if attempt != self.attempt:
            raise CheckpointError("another attempt of the job is under way")
        self.body, numbered = checkpoints.record(self.body, list(taken), 1)
        return tuple(one.number for one in numbered)


class Attempt:
    """One attempt: its writes, its recorder, and a count of its computations."""

    def __init__(self, leader: Leader, number: int, disk: Disk) -> None:
        self._leader = leader
        self._number = number
        self._disk = disk
        self.computed = 0
        deploy = order_of(
            job_id=leader.job_id,
            attempt=number,
            writer=leader.writer,
            result_size_max=1000,
            checkpoints="job",
            restored=checkpoints.latest(leader.body),
        )
        clock = SystemClock()
        self.state = StateKeeper(deploy, self, leader.storage, clock)
        self.writes = SafeWrites(deploy, self, self.state, clock, disk)

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        """Record at the leader; raise `Killed` in a dead attempt."""
        if isinstance(self._disk, FrailDisk) and self._disk.dead:
            raise Killed
        return self._leader.record(self._number, taken)

    def report(self, *taken: Checkpoint) -> None:
        """Record at the leader, unless another attempt is current."""
        if self._number == self._leader.attempt:
            self.record(*taken)

    def failed(self, one: Checkpoint) -> None:
        """Note a failure at the leader."""
        self._leader.failures.append(one)

    def finish(self) -> None:
        """Do nothing."""

    def settle(self, timeout_s: float) -> bool:
        """Return True: there is nothing to wait for."""
        return True

    def write(
        self,
        target: Path,
        rows: Iterable[str],
        mode: Mode = Mode.APPEND,
        name: str | None = None,
        batch: Batch | None = None,
    ) -> None:
        """Write rows, each to its own file, as Spark would."""

        def emit(directory: Path) -> None:
            self.computed += 1
            directory.mkdir()
            for row in rows:
                file = directory / f"{row}-{self._number}-{os.urandom(4).hex()}"
                file.parent.mkdir(exist_ok=True)
                file.write_text(row)
            (directory / "_SUCCESS").write_text("")

        self.writes.write(target, mode, emit, name, batch)


def rows_of(target: Path) -> list[str]:
    """Return the rows that a reader finds, sorted."""
    files = [path for path in target.rglob("*") if path.is_file()]
    shown = [path for path in files if not path.name.startswith((".", "_"))]
    return sorted(path.read_text() for path in shown)


def hidden(target: Path) -> list[str]:
    """Return leftover files beside and in the target."""
    beside = [path.name for path in target.parent.iterdir() if path != target]
    return sorted(beside + [path.name for path in target.iterdir() if path.name.startswith(".")])


def calls_of(target: Path, mode: Mode, there: bool) -> int:
    """Return how many system calls an undisturbed write makes."""
    disk = FrailDisk()
    if there:
        Leader(JobId("00" * 16)).begin().write(target, OLD)
    Leader().begin(disk).write(target, NEW, mode)
    return len(disk.calls)
