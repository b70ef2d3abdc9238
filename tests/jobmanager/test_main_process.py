"""The process for `main` that is kept in waiting."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from understudy.jobmanager import main_process
from understudy.jobmanager.main_process import WarmMainProcesses
from understudy.process.processes import Output, Process, Spec


class Failing:
    """Starts nothing."""

    def __init__(self) -> None:
        self.tries = asyncio.Semaphore(0)

    async def start(self, spec: Spec, output: Output | None) -> Process:
        """See `Processes.start`."""
        self.tries.release()
        raise OSError(errno.EAGAIN, "there is no place for one more process")


def test_one_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or nobody would ever execute `main`, while this process leads."""
    monkeypatch.setattr(main_process, "FAILED_START_MAX_S", 0.01)
    monkeypatch.setattr(main_process, "REFILL_S", 0.01)

    async def main() -> None:
        processes = Failing()
        keeper = asyncio.ensure_future(
            WarmMainProcesses(processes, 5.0, tmp_path, lambda: None).run()
        )
        async with asyncio.timeout(20):
            for _ in range(3):
                await processes.tries.acquire()
        keeper.cancel()
        await asyncio.wait({keeper})

        assert keeper.cancelled()

    asyncio.run(main())
