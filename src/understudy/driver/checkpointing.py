"""How a driver reports an attempt's checkpoints and waits until they are durable."""

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

HANDED_OVER_S = 30.0
"""How long an attempt that was handed over waits for its end, which takes milliseconds."""

FAILED_PAUSE_S = 10.0
"""Pause between two messages with failures only: each costs a write to the register."""


class Recorder(Protocol):
    """Makes an attempt's checkpoints durable."""

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        """Return the checkpoints' numbers once durable, however long there is no leader.

        Raises `CheckpointError` if they are refused, for instance because another attempt runs.
        """
        ...

    def report(self, *taken: Checkpoint) -> None:
        """Report checkpoints without waiting for their record."""
        ...

    def failed(self, one: Checkpoint) -> None:
        """Count a failed checkpoint: at once, or soon if many fail."""
        ...

    def finish(self) -> None:
        """Report the failures not yet reported: the attempt ends."""
        ...

    def settle(self, timeout_s: float) -> bool:
        """Wait until all reports are recorded or refused; False on timeout."""
        ...


@dataclass
class _Pending:
    answered: threading.Event = field(default_factory=threading.Event)
    answer: CheckpointsRecorded | CheckpointsRefused | None = None
    is_last: bool = False
    """The TaskManager, which drains, has seen the answer and is about to end this process."""


class LinkRecorder:
    """Reports to the leader through the TaskManager, which repeats until it gets an answer."""

    def __init__(
        self,
        send: Callable[[CheckpointsTaken], None],
        job_id: JobId,
        attempt: int,
        clock: Clock,
        stopping: threading.Event | None = None,
    ) -> None:
        self._send = send
        self._job_id = job_id
        self._attempt = attempt
        self._clock = clock
        self._stopping = stopping or threading.Event()
        self._turn = threading.Lock()
        self._home = Home()
        self._sequence = 0
        self._failed: tuple[int, Checkpoint | None] = (0, None)
        """How many failures are not yet reported, and the last of them."""
        self._quiet_until = 0.0
        """Until then failures wait for another report that carries them."""
        self._pending: dict[int, _Pending] = {}
        self.refusal = ""
        """Why a reported checkpoint was refused; empty if none was."""

    def record(self, *taken: Checkpoint) -> tuple[int, ...]:
        """Send the checkpoints and block until the leader answers."""
        pending = self._post(taken)
        pending.answered.wait()
        answer = pending.answer
        if isinstance(answer, CheckpointsRecorded):
            if pending.is_last:  # What the function did now, the next attempt would do again.
                threading.Event().wait(HANDED_OVER_S)
            return answer.numbers
        reason = answer.reason if answer else "the TaskManager is gone"
        raise CheckpointError(f"the checkpoint was not recorded: {reason}")

    def report(self, *taken: Checkpoint) -> None:
        """Send the checkpoints."""
        self._post(taken)

    def failed(self, one: Checkpoint) -> None:
        """Count a failure; send at most one message per ``FAILED_PAUSE_S``."""
        self._home.demand("the record of a checkpoint that failed")
        now = self._clock.now()
        with self._turn:
            self._failed = (self._failed[0] + 1, one)
            if now < self._quiet_until:
                return
            self._quiet_until = now + FAILED_PAUSE_S
        self._post(())

    def finish(self) -> None:
        """Send the failures that wait."""
        if self._failed[0]:
            self._post(())

    def settle(self, timeout_s: float) -> bool:
        """Wait for the answer to the newest message."""
        with self._turn:
            newest = self._pending.get(self._sequence)
        return newest is None or newest.answered.wait(timeout_s)

    def answered(self, answer: messages.CheckpointsRecorded | messages.CheckpointsRefused) -> None:
        """Process the leader's answer; called by the receiving thread."""
        if answer.attempt != self._attempt or answer.job_id != self._job_id:
            return
        with self._turn:
            pending = self._pending.pop(answer.sequence, None)
        if isinstance(answer, CheckpointsRefused):
            self.refusal = self.refusal or answer.reason
        if pending:
            pending.answer, pending.is_last = answer, self._stopping.is_set()
            pending.answered.set()

    def _post(self, taken: tuple[Checkpoint, ...]) -> _Pending:
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
    """Report a checkpoint that fails while its data is computed and written.

    A refusal by Understudy does not count: nothing began, or the leader has counted it.
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
    """Return the failure with its message on one line, cut in the middle to fit the register."""
    message = " ".join(failure.message.split())
    if len(message) > FAILURE_CHARS_MAX:
        half = FAILURE_CHARS_MAX // 2
        message = f"{message[:half]} … {message[-half:]}"
    return Failure(type=failure.type, message=message, time=failure.time)
