"""How a launcher ends its cluster while the next run of it has begun."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from understudy.cli.launch.cluster import CANCEL_RETRY_S, ClusterPlan, LocalCluster
from understudy.cli.launch.compose import locks_directory, open_services
from understudy.cli.launch.story import Story
from understudy.config import Configuration, options
from understudy.ha.retrieval import LEADER_KEY, encode_leader
from understudy.model import Incarnation, LeaderRecord, Term
from understudy.process.guardian import take_lock

CLUSTER = "flights"
NOT_NEEDED: Any = None


class Ground:
    """What a launcher of a cluster on files finds; `said` is what it tells."""

    def __init__(self, place: Path) -> None:
        settings = {options.HA_TYPE.key: "filesystem", options.STORAGE_DIR.key: str(place)}
        configuration = Configuration(settings)
        locks = locks_directory(configuration, CLUSTER)
        assert locks is not None
        self.locks = locks
        self.register = open_services(configuration, CLUSTER).register
        self.said: list[str] = []
        plan = ClusterPlan(
            configuration, CLUSTER, False, "run", NOT_NEEDED, 1, 1, changes=NOT_NEEDED
        )
        self.launcher = LocalCluster(
            plan, Story(time.time), lambda event: self.said.append(str(event))
        )
        self.launcher._started.add("own")

    def lock(self, *holders: str) -> list[int]:
        """Let these processes live; return what `os.close` ends them by."""
        return [take_lock(str(self.locks / one)) for one in holders if one]

    async def led_by(self, holder: str) -> None:
        """Let a JobManager lead."""
        record = LeaderRecord(Incarnation(holder), Term(2), "session")
        await self.register.swap(LEADER_KEY, encode_leader(record), None)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """Return a launcher with a place of its own."""
    return Ground(tmp_path / "state")


@pytest.mark.parametrize("holder", ["another", "own", ""])
def test_only_what_is_its_own_is_removed_from_register_and_locks(
    holder: str, ground: Ground
) -> None:
    another = ground.lock("another" if holder == "another" else "")
    os.close(*ground.lock("own"))

    async def end() -> bool:
        await ground.led_by(holder)
        ground.launcher._finished.set()
        await ground.launcher._end()
        return await ground.register.load(LEADER_KEY) is not None

    assert (holder == "another") == asyncio.run(end())
    assert (["another"] if another else []) == [path.name for path in ground.locks.glob("*")]
    for descriptor in another:
        os.close(descriptor)


@pytest.mark.parametrize("another", ["", "leads", "stands by"])
def test_the_first_interrupt_ends_this_start_only_while_another_jobmanager_lives(
    another: str, ground: Ground
) -> None:
    held = ground.lock("own", "another" if another else "")

    async def interrupt() -> bool:
        await ground.led_by("another" if another == "leads" else "own")
        ground.launcher._on_signal(signal.SIGINT)
        (deciding,) = ground.launcher._tasks
        asked = asyncio.ensure_future(ground.launcher._ending.asked.wait())
        await asyncio.wait(
            [deciding, asked, asyncio.ensure_future(asyncio.sleep(CANCEL_RETRY_S))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        deciding.cancel()
        return asked.done()

    assert bool(another) == asyncio.run(interrupt())
    for descriptor in held:
        os.close(descriptor)


def test_a_start_that_outlives_the_other_one_says_how_to_resume(ground: Ground) -> None:
    (held,) = ground.lock("another")
    while_it_lives = asyncio.run(ground.launcher.continues_elsewhere())
    os.close(held)

    assert while_it_lives
    assert not asyncio.run(ground.launcher.continues_elsewhere())


@pytest.mark.parametrize(("status", "closes"), [("RUNNING", True), ("FINISHED", False)])
def test_a_run_that_cannot_be_cancelled_just_now_is_closed_and_kept(
    status: str, closes: bool, ground: Ground
) -> None:
    launcher = ground.launcher

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"status": status})

    async def refused() -> bool:
        launcher._story.rest, launcher._story.application_id = "http://leader", "a" * 32
        refusal = httpx.Response(409, json={"errors": ["it needs attention"]})
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            await launcher._keep_unless_ended(client, refusal)
        return launcher._ending.asked.is_set()

    assert closes == asyncio.run(refused())
    assert closes == any("it needs attention" in line for line in ground.said)
