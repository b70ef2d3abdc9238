"""What a driver tells of an attempt's checkpoints, and how it waits until they are durable."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from understudy.clock import Clock
from understudy.core.checkpoints import FAILURE_CHARS_MAX
from understudy.errors import CheckpointError, StorageError, UnderstudyError
from understudy.model import Checkpoint, Failure, JobId
from understudy.process.failures import failure_of
from understudy.process.forks import Home
from understudy.rpc import messages
from understudy.rpc.messages import CheckpointsRecorded, CheckpointsRefused, CheckpointsTaken

FAILED_PAUSE_S = 10.0
"""Between two messages that tell of nothing but failures: each is a write to the register."""


class Recorder(Protocol):
    """Makes an attempt's checkpoints durable."""

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        """Return their numbers once they are durable, however long no leader is there.

        Raises `CheckpointError` where they are refused, for instance since another attempt runs.
        """
        ...

    def tell(self, *taken: Checkpoint) -> None:
        """Have them recorded, without waiting."""
        ...

    def failed(self, one: Checkpoint) -> None:
        """Have one counted that came to nothing: at once, or soon where many do."""
        ...

    def finish(self) -> None:
        """Have all of these counted: the attempt ends."""
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
        self, send: Callable[[CheckpointsTaken], None], job_id: JobId, attempt: int, clock: Clock
    ) -> None:
        self._send = send
        self._job_id = job_id
        self._attempt = attempt
        self._clock = clock
        self._turn = threading.Lock()
        self._home = Home()
        self._sequence = 0
        self._failed: tuple[int, Checkpoint | None] = (0, None)
        """How many have failed and are not told, and the last of them."""
        self._quiet_until = 0.0
        """Until then those that fail wait for something else to be told."""
        self._pending: dict[int, _Pending] = {}
        self.refusal = ""
        """Why something that was told was not recorded; empty while everything was."""

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        """See `Recorder.record`."""
        pending = self._tell(taken)
        pending.answered.wait()
        answer = pending.answer
        if isinstance(answer, CheckpointsRecorded):
            return answer.numbers
        reason = answer.reason if answer else "the TaskManager is gone"
        raise CheckpointError(f"the checkpoint was not recorded: {reason}")

    def tell(self, *taken: Checkpoint) -> None:
        """See `Recorder.tell`."""
        self._tell(taken)

    def failed(self, one: Checkpoint) -> None:
        """See `Recorder.failed`."""
        self._home.demand("the record of a checkpoint that failed")
        now = self._clock.now()
        with self._turn:
            self._failed = (self._failed[0] + 1, one)
            if now < self._quiet_until:
                return
            self._quiet_until = now + FAILED_PAUSE_S
        self._tell(())

    def finish(self) -> None:
        """See `Recorder.finish`."""
        if self._failed[0]:
            self._tell(())

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

    def _tell(self, taken: tuple[Checkpoint, ...]) -> _Pending:
        self._home.demand("the record of a checkpoint")
        pending = _Pending()
        with self._turn:
            count, last = self._failed
            self._failed = (0, None)
            self._sequence += 1
            self._pending[self._sequence] = pending
            self._send(
                CheckpointsTaken(
                    job_id=self._job_id,
                    attempt=self._attempt,
                    sequence=self._sequence,
                    checkpoints=taken,
                    failed=count,
                    last_failed=last,
                )
            )
        return pending


@contextlib.contextmanager
def counted(recorder: Recorder, clock: Clock, one: Checkpoint) -> Iterator[None]:
    """Tell the recorder of a checkpoint that fails while it is computed and written.

    What Understudy refuses is none: nothing was begun, or the leader has counted it.
    """
    began = clock.now()
    try:
        yield
    except Exception as error:
        if isinstance(error, StorageError) or not isinstance(error, UnderstudyError):
            why = shortened(failure_of(error))
            recorder.failed(replace(one, failure=why, duration_s=clock.now() - began))
        raise


def shortened(failure: Failure) -> Failure:
    """Return of a failure what the register has room for, on one line: its beginning and end."""
    message = " ".join(failure.message.split())
    if len(message) > FAILURE_CHARS_MAX:
        half = FAILURE_CHARS_MAX // 2
        message = f"{message[:half]} … {message[-half:]}"
    return Failure(type=failure.type, message=message, time=failure.time)
