"""Turns for processes of ``main``: a few start at once, not too many live, in the right order."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.support.virtual_time import run_virtual
from understudy.jobmanager.main_queue import STARTING_MAX, MainQueue


class Mains:
    """Starts a process in a second; see `MainProcesses`."""

    def __init__(self) -> None:
        self.starting = 0
        self.most = 0

    async def take(self, python: str) -> str:
        """See `MainProcesses.take`."""
        self.starting += 1
        self.most = max(self.most, self.starting)
        await asyncio.sleep(1)
        self.starting -= 1
        return "process"


class Scene:
    """A queue, and applications that hold their turn for a time."""

    def __init__(self, limit: int) -> None:
        self.mains = Mains()
        mains: Any = self.mains
        self.queue = MainQueue(mains, limit)
        self.begun: list[str] = []
        self.living = 0
        self.most = 0

    async def live(self, name: str, rank: float, lasts_s: float = 10.0) -> None:
        """Execute ``main`` for so long."""
        async with self.queue.turn((rank,)) as turn:
            self.begun.append(name)
            self.living += 1
            self.most = max(self.most, self.living)
            await turn.take("python")
            await asyncio.sleep(lasts_s)
            self.living -= 1


def test_a_few_start_at_once_and_no_more_live_than_the_limit() -> None:
    async def main() -> None:
        scene = Scene(5)
        await asyncio.gather(*(scene.live(str(number), 0.0) for number in range(20)))

        assert (STARTING_MAX, 5) == (scene.mains.most, scene.most)
        assert [str(number) for number in range(20)] == scene.begun

    run_virtual(main())


def test_lower_ranks_come_first() -> None:
    async def main() -> None:
        scene = Scene(1)
        ranks = {"held": 9.0, "late": 3.0, "urgent": -1.0, "later": 3.0}
        works = [asyncio.create_task(scene.live(name, rank)) for name, rank in ranks.items()]
        await asyncio.gather(*works)

        assert ["held", "urgent", "late", "later"] == scene.begun

    run_virtual(main())


def test_who_gives_up_takes_no_turn_from_the_others() -> None:
    async def main() -> None:
        scene = Scene(1)
        works = [asyncio.create_task(scene.live(name, 0.0)) for name in ("one", "two", "three")]
        await asyncio.sleep(0.5)
        works[1].cancel()
        works[0].cancel()
        await asyncio.sleep(1)
        third = list(scene.begun)
        works[2].cancel()
        await asyncio.gather(*works, return_exceptions=True)
        await asyncio.wait_for(scene.live("four", 0.0), 60)

        assert ["one", "three"] == third
        assert ["one", "three", "four"] == scene.begun

    run_virtual(main())


def test_a_main_that_is_executed_again_waits_for_nobody() -> None:
    async def main() -> None:
        scene = Scene(1)
        asked = asyncio.create_task(scene.live("waits", 0.0))
        async with scene.queue.turn((0.0,)) as turn:
            await turn.take("python")
            await turn.take("python")
        asked.cancel()

        assert 1 == scene.mains.most

    run_virtual(main())


def test_who_has_no_process_holds_up_nobody_and_waits_for_the_next_in_its_rank() -> None:
    async def main() -> None:
        scene = Scene(1)

        async def loops() -> None:
            async with scene.queue.turn((0.0,)) as turn:
                for number in range(3):
                    await turn.take("python")
                    scene.begun.append(f"loops {number}")
                    await asyncio.sleep(1)
                    turn.leave()
                    await asyncio.sleep(5)

        works = [asyncio.create_task(loops())]
        works += [asyncio.create_task(scene.live(name, 9.0, 4.0)) for name in ("a", "b", "c")]
        await asyncio.gather(*works)

        assert ["loops 0", "a", "loops 1", "b", "loops 2", "c"] == scene.begun
        assert 1 == scene.most

    run_virtual(main())


def test_who_gives_up_while_a_turn_is_granted_gives_it_back() -> None:
    async def main() -> None:
        scene = Scene(1)
        first = asyncio.create_task(scene.live("first", 0.0))
        second = asyncio.create_task(scene.live("second", 0.0))
        await asyncio.sleep(0.5)
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await asyncio.wait_for(scene.live("third", 0.0), 30)

        assert "third" == scene.begun[-1]

    run_virtual(main())


def test_who_waits_is_told_for_what_and_at_which_place() -> None:
    async def main() -> None:
        scene = Scene(1)
        works = [asyncio.create_task(scene.live("first", 0.0))]
        await asyncio.sleep(0.5)
        turns = [scene.queue.turn((rank,)) for rank in (2.0, 1.0)]
        works += [asyncio.create_task(turn.wait()) for turn in turns]
        await asyncio.sleep(0.5)
        told = [turn.waits for turn in turns]
        await asyncio.sleep(20)

        live = "waits to execute main: 1 of 1 processes of main live"
        option = "(jobmanager.application-process.max)"
        assert [f"{live} {option} (place {place} of 2)" for place in (2, 1)] == told
        assert "" == turns[1].waits
        for work in works:
            work.cancel()

    run_virtual(main())


def test_a_place_is_that_of_the_moment_and_thousands_are_told_at_once() -> None:
    async def main() -> None:
        scene = Scene(1)
        turns = [scene.queue.turn((0.0,)) for _ in range(3_000)]
        waiting = [asyncio.create_task(turn.wait()) for turn in turns]
        await asyncio.sleep(0)
        began = time.process_time()
        told = [turn.waits for turn in turns]
        took_s = time.process_time() - began
        waiting[1].cancel()
        await asyncio.sleep(0)
        without_one = turns[-1].waits
        turns[0].leave()
        await asyncio.sleep(0)

        assert "" == told[0]
        assert "(place 1 of 2999)" in told[1]
        assert "(place 2999 of 2999)" in told[-1]
        assert took_s < 1.0
        assert "(place 2998 of 2998)" in without_one
        assert "" == turns[2].waits
        assert "(place 2997 of 2997)" in turns[-1].waits
        for one in waiting:
            one.cancel()

    run_virtual(main())
