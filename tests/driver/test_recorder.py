"""LinkRecorder: what is told of checkpoints that fail, and how often."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.clock import SystemClock
from understudy.driver import checkpointing
from understudy.driver.checkpointing import FAILED_PAUSE_S, LinkRecorder, counted
from understudy.errors import CheckpointError, StorageError
from understudy.model import Checkpoint, CheckpointKind, JobId
from understudy.rpc.messages import CheckpointsRecorded, CheckpointsTaken

TABLE = Checkpoint(kind=CheckpointKind.TABLE, name="flights", attempt=1)


class Link:
    """A recorder, and what it has sent."""

    def __init__(self) -> None:
        self.sent: list[CheckpointsTaken] = []
        self.clock = virtual_clock()
        self.recorder = LinkRecorder(self.sent.append, JobId("j"), 1, self.clock)

    def fail(self, error: BaseException) -> None:
        """Let a checkpoint come to nothing."""
        with pytest.raises(type(error)), counted(self.recorder, self.clock, TABLE):
            raise error

    @property
    def told(self) -> list[tuple[int, int]]:
        """Return of each message how many checkpoints it tells, and how many that failed."""
        return [(len(one.checkpoints), one.failed) for one in self.sent]


def test_a_failure_is_told_at_once_and_the_next_ones_with_what_comes() -> None:
    async def main() -> None:
        link = Link()
        for number in range(100):
            link.fail(OSError(f"no room {number}"))
        link.recorder.report(TABLE)
        last = link.sent[-1].last_failed

        assert [(0, 1), (1, 99)] == link.told
        assert last is not None
        assert last.failure is not None
        assert ("OSError", "no room 99") == (last.failure.type, last.failure.message)

    run_virtual(main())


@pytest.mark.parametrize(("stops_first", "wait_s"), [(True, 0.2), (False, 60.0)])
def test_a_checkpoint_does_not_return_to_a_function_that_is_handed_over(
    monkeypatch: pytest.MonkeyPatch, *, stops_first: bool, wait_s: float
) -> None:
    """What came before the order to stop has returned, however late the function wakes."""
    monkeypatch.setattr(checkpointing, "HANDED_OVER_S", wait_s)
    stopping = threading.Event()
    asked = threading.Event()
    recorder = LinkRecorder(lambda _: asked.set(), JobId("j"), 1, SystemClock(), stopping)
    took: list[float] = []

    def save() -> None:
        recorder.record(TABLE)
        took.append(time.monotonic())

    function = threading.Thread(target=save)
    function.start()
    assert asked.wait(30.0)
    began = time.monotonic()
    answer = CheckpointsRecorded(job_id=JobId("j"), attempt=1, sequence=1, numbers=(1,))
    for act in (stopping.set, lambda: recorder.answered(answer))[:: 1 if stops_first else -1]:
        act()
    function.join(30.0)

    (at,) = took
    assert stops_first == (at - began >= wait_s)


def test_an_attempt_that_ends_tells_the_rest() -> None:
    async def main() -> None:
        link = Link()
        for _ in range(3):
            link.fail(ValueError("x"))
        link.recorder.finish()
        link.recorder.finish()

        assert [(0, 1), (0, 2)] == link.told

    run_virtual(main())


def test_after_a_pause_a_failure_is_told_by_itself_again() -> None:
    async def main() -> None:
        link = Link()
        link.fail(ValueError("x"))
        await asyncio.sleep(FAILED_PAUSE_S)
        link.fail(StorageError("a bucket is gone"))

        assert [(0, 1), (0, 1)] == link.told

    run_virtual(main())


@pytest.mark.parametrize("error", [CheckpointError("refused"), KeyboardInterrupt()])
def test_what_is_refused_or_interrupted_is_none_that_failed(error: BaseException) -> None:
    async def main() -> None:
        link = Link()
        link.fail(error)
        link.recorder.finish()

        assert [] == link.told

    run_virtual(main())


def test_of_a_long_message_beginning_and_end_are_told_on_one_line() -> None:
    async def main() -> None:
        link = Link()
        link.fail(ValueError("a\n" * 10_000 + "the cause"))
        last = link.sent[0].last_failed
        assert last is not None
        assert last.failure is not None

        assert last.failure.message.startswith("a a a")
        assert last.failure.message.endswith("a a the cause")
        assert len(last.failure.message) < 600
        assert last.failure.traceback == ""

    run_virtual(main())
