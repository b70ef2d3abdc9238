"""What the writes of lost attempts have left is removed with their job."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from tests.ha import ground
from tests.support.faulty_register import Durable
from tests.support.frail_disk import FrailDisk, Killed
from tests.support.writing import NEW, Leader, calls_of
from understudy.core import checkpoints
from understudy.ha.checkpoint_store import CheckpointStore
from understudy.runtime.checkpoint_cleanup import clean_checkpoints
from understudy.runtime.effort import Effort
from understudy.runtime.publishing import Mode

JOB = ground.job(1)


async def _ended(durable: Durable, leader: Leader) -> None:
    """Record what a leader was told, and clean up after its job."""
    stores = ground.services(durable)
    stored = await ground.submitted(stores)
    plans = stores.plans(stored)
    await plans.claim(1)
    await plans.add(1, JOB)
    store = CheckpointStore(stores.register, plans, ground.APPLICATION, JOB.job_id)
    told = leader.body.completed
    await store.update(1, lambda body: checkpoints.record(body, told, 1)[0])
    entry = plans.entries[JOB.job_id]
    await clean_checkpoints(stores, plans, stored.body, 1, entry, Effort(leave=False))


def test_the_area_of_a_lost_attempt_goes_with_its_job(tmp_path: Path) -> None:
    calls = calls_of(tmp_path / "probe" / "out", Mode.APPEND, False)
    target = tmp_path / "here" / "out"
    leader = Leader(JOB.job_id)
    with contextlib.suppress(Killed):
        leader.begin(FrailDisk(calls - 5)).write(target, NEW)
    before = [path.name for path in target.parent.iterdir()]
    asyncio.run(_ended(Durable(), leader))

    assert len(before) == 1
    assert [] == [path.name for path in target.parent.iterdir()]
