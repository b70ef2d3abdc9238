"""What a driver tells of an attempt's checkpoints, and how it waits until they are durable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from understudy.errors import CheckpointError
from understudy.model import Checkpoint, JobId
from understudy.rpc import messages
from understudy.rpc.messages import CheckpointsRecorded, CheckpointsRefused, CheckpointsTaken


class Recorder(Protocol):
    """Makes an attempt's checkpoints durable."""

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        """Return their numbers once they are durable, however long no leader is there.

        Raises `CheckpointError` where they are refused, for instance since another attempt runs.
        """
        ...

    def tell(self, *taken: Checkpoint, failed: int = 0) -> None:
        """Have them recorded, without waiting; ``failed`` counts those that came to nothing."""
        ...

    def settle(self, timeout_s: float) -> bool:
        """Wait until all that was told is recorded or refused; False where that takes longer."""
        ...


@dataclass
class _Pending:
    answered: threading.Event = field(default_factory=threading.Event)
    answer: CheckpointsRecorded | CheckpointsRefused | None = None


class LinkRecorder:
    """Tells the leader, over the TaskManager, which tells again until it is answered."""

    def __init__(
        self, send: Callable[[CheckpointsTaken], None], job_id: JobId, attempt: int
    ) -> None:
        self._send = send
        self._job_id = job_id
        self._attempt = attempt
        self._turn = threading.Lock()
        self._sequence = 0
        self._pending: dict[int, _Pending] = {}
        self.refusal = ""
        """Why something that was told was not recorded; empty while everything was."""

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        """See `Recorder.record`."""
        pending = self._tell(taken, 0)
        pending.answered.wait()
        answer = pending.answer
        if isinstance(answer, CheckpointsRecorded):
            return answer.numbers
        reason = answer.reason if answer else "the TaskManager is gone"
        raise CheckpointError(f"the checkpoint was not recorded: {reason}")

    def tell(self, *taken: Checkpoint, failed: int = 0) -> None:
        """See `Recorder.tell`."""
        self._tell(taken, failed)

    def settle(self, timeout_s: float) -> bool:
        """See `Recorder.settle`."""
        with self._turn:
            newest = self._pending.get(self._sequence)
        return newest is None or newest.answered.wait(timeout_s)

    def answered(self, answer: messages.CheckpointsRecorded | messages.CheckpointsRefused) -> None:
        """Take in what the leader says; called by the thread that receives."""
        if answer.attempt != self._attempt or answer.job_id != self._job_id:
            return
        with self._turn:
            pending = self._pending.pop(answer.sequence, None)
        if isinstance(answer, CheckpointsRefused):
            self.refusal = self.refusal or answer.reason
        if pending:
            pending.answer = answer
            pending.answered.set()

    def _tell(self, taken: tuple[Checkpoint, ...], failed: int) -> _Pending:
        pending = _Pending()
        with self._turn:
            self._sequence += 1
            self._pending[self._sequence] = pending
            self._send(
                CheckpointsTaken(
                    job_id=self._job_id,
                    attempt=self._attempt,
                    sequence=self._sequence,
                    checkpoints=taken,
                    failed=failed,
                )
            )
        return pending
