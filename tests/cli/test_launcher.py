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


@pytest.mark.parametrize("holder", ["another", "own", ""])
def test_only_what_is_its_own_is_removed_from_register_and_locks(
    holder: str, tmp_path: Path
) -> None:
    configuration = Configuration(
        {options.HA_TYPE.key: "filesystem", options.STORAGE_DIR.key: str(tmp_path / "state")}
    )
    plan = ClusterPlan(configuration, CLUSTER, False, "run", NOT_NEEDED, 1, 1, changes=NOT_NEEDED)
    locks = locks_directory(configuration, CLUSTER)
    assert locks is not None
    another = take_lock(str(locks / "another")) if holder == "another" else None
    os.close(take_lock(str(locks / "own")))
    register = open_services(configuration, CLUSTER).register
    record = encode_leader(LeaderRecord(Incarnation(holder), Term(2), "session"))

    async def end() -> bool:
        await register.swap(LEADER_KEY, record, None)
        launcher = LocalCluster(plan, Story(time.time), lambda _: None)
        launcher._started.add("own")
        launcher._finished.set()
        await launcher._end()
        return await register.load(LEADER_KEY) is not None

    assert (holder == "another") == asyncio.run(end())
    assert (["another"] if another else []) == [path.name for path in locks.glob("*")]
    if another:
        os.close(another)


@pytest.mark.parametrize("another", ["", "leads", "stands by"])
def test_the_first_interrupt_ends_this_start_only_while_another_jobmanager_lives(
    another: str, tmp_path: Path
) -> None:
    configuration = Configuration(
        {options.HA_TYPE.key: "filesystem", options.STORAGE_DIR.key: str(tmp_path / "state")}
    )
    plan = ClusterPlan(configuration, CLUSTER, False, "run", NOT_NEEDED, 1, 1, changes=NOT_NEEDED)
    locks = locks_directory(configuration, CLUSTER)
    assert locks is not None
    held = [take_lock(str(locks / one)) for one in ("own", *(["another"] if another else []))]
    register = open_services(configuration, CLUSTER).register
    holder = Incarnation("another" if another == "leads" else "own")

    async def interrupt() -> bool:
        record = LeaderRecord(holder, Term(2), "session")
        await register.swap(LEADER_KEY, encode_leader(record), None)
        launcher = LocalCluster(plan, Story(time.time), lambda _: None)
        launcher._started.add("own")
        launcher._on_signal(signal.SIGINT)
        (deciding,) = launcher._tasks
        asked = asyncio.ensure_future(launcher._ending.asked.wait())
        await asyncio.wait(
            [deciding, asked, asyncio.ensure_future(asyncio.sleep(CANCEL_RETRY_S))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        deciding.cancel()
        return asked.done()

    assert bool(another) == asyncio.run(interrupt())
    for descriptor in held:
        os.close(descriptor)


def test_a_start_that_outlives_the_other_one_says_how_to_resume(tmp_path: Path) -> None:
    configuration = Configuration(
        {options.HA_TYPE.key: "filesystem", options.STORAGE_DIR.key: str(tmp_path / "state")}
    )
    plan = ClusterPlan(configuration, CLUSTER, False, "run", NOT_NEEDED, 1, 1, changes=NOT_NEEDED)
    locks = locks_directory(configuration, CLUSTER)
    assert locks is not None
    held = take_lock(str(locks / "another"))
    launcher = LocalCluster(plan, Story(time.time), lambda _: None)
    while_it_lives = asyncio.run(launcher.continues_elsewhere())
    os.close(held)

    assert while_it_lives
    assert not asyncio.run(launcher.continues_elsewhere())


@pytest.mark.parametrize(("status", "closes"), [("RUNNING", True), ("FINISHED", False)])
def test_a_run_that_cannot_be_cancelled_just_now_is_closed_and_kept(
    status: str, closes: bool, tmp_path: Path
) -> None:
    configuration = Configuration({options.STORAGE_DIR.key: str(tmp_path / "state")})
    plan = ClusterPlan(configuration, CLUSTER, False, "run", NOT_NEEDED, 1, 1, changes=NOT_NEEDED)
    said: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"status": status})

    async def refused() -> bool:
        launcher = LocalCluster(plan, Story(time.time), lambda event: said.append(str(event)))
        launcher._story.rest, launcher._story.application_id = "http://leader", "a" * 32
        refusal = httpx.Response(409, json={"errors": ["it needs attention"]})
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            await launcher._keep_unless_ended(client, refusal)
        return launcher._ending.asked.is_set()

    assert closes == asyncio.run(refused())
    assert closes == any("it needs attention" in line for line in said)
