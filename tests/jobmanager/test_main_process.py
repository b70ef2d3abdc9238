"""The process for `main` that is kept in waiting."""

from __future__ import annotations

import asyncio
import errno
import sys
from pathlib import Path
from typing import cast

import pytest

from understudy.jobmanager import main_process
from understudy.jobmanager.main_process import MainProcess, WarmMainProcesses
from understudy.process.processes import Output, Process, Spec
from understudy.rpc.gateway import Link
from understudy.rpc.messages import MainMessage


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


def test_whoever_waits_beside_another_does_not_wait_for_the_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two applications begin at once: the first one's process is no reason to rest."""
    monkeypatch.setattr(main_process, "REFILL_S", 600.0)

    async def launch(warm: WarmMainProcesses, python: str) -> MainProcess:
        await asyncio.sleep(0)
        return MainProcess(cast(Process, None), cast(Link[MainMessage], None))

    monkeypatch.setattr(WarmMainProcesses, "_launch", launch)
    monkeypatch.setattr(WarmMainProcesses, "_attend", lambda *_: None)

    async def main() -> None:
        warm = WarmMainProcesses(Failing(), 5.0, tmp_path, lambda: None)
        takers = [asyncio.ensure_future(warm.take(sys.executable)) for _ in range(2)]
        await asyncio.sleep(0)
        keeper = asyncio.ensure_future(warm.run())
        done, _ = await asyncio.wait(takers, timeout=5)
        for one in (keeper, *takers):
            one.cancel()
        await asyncio.wait({keeper})

        assert set(takers) == done

    asyncio.run(main())
