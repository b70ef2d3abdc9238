"""Waiting for a death: as often as one likes, at the cost of one wait."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from pathlib import Path

from understudy.model import Incarnation
from understudy.runtime.liveness_lock import DeathNote, LivenessLocks

HELD = Incarnation("held")
TERMS = 50
PATIENCE_S = 30.0


def hold(directory: Path) -> int:
    descriptor = os.open(directory / HELD, os.O_CREAT | os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def waits() -> int:
    return sum(thread.name == "understudy-lock" for thread in threading.enumerate())


def test_who_leads_again_and_again_waits_once_for_each_that_lives(tmp_path: Path) -> None:
    """Each term watches all TaskManagers; the kernel's wait cannot be given up with the term."""

    async def main() -> None:
        holder, locks = hold(tmp_path), LivenessLocks(tmp_path)
        before = waits()
        for _ in range(TERMS):
            watching = asyncio.create_task(locks.dead(HELD))
            await asyncio.sleep(0)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        while_it_lives = waits() - before
        both = [asyncio.create_task(locks.dead(HELD)) for _ in range(2)]
        await asyncio.sleep(0)
        os.close(holder)
        async with asyncio.timeout(PATIENCE_S):
            notes = await asyncio.gather(*both)

        assert 1 == while_it_lives
        assert [DeathNote(None)] * 2 == notes

    asyncio.run(main())


def test_a_lock_that_is_not_there_yet_is_looked_for_anew_by_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        locks = LivenessLocks(tmp_path)
        nothing = asyncio.create_task(locks.dead(HELD))
        await asyncio.sleep(0)
        os.close(hold(tmp_path))
        async with asyncio.timeout(PATIENCE_S):
            note = await locks.dead(HELD)
        nothing.cancel()

        assert DeathNote(None) == note

    asyncio.run(main())
