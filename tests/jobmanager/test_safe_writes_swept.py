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
from understudy.jobmanager.checkpoint_cleanup import clean_checkpoints
from understudy.jobmanager.effort import Effort
from understudy.process.publishing import Area, Mode, area_of

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


def test_an_area_that_somebody_has_made_a_link_of_leads_to_nothing_that_is_removed(
    tmp_path: Path,
) -> None:
    """The directory beside the target may be writable by others."""
    theirs = tmp_path / "theirs"
    (theirs / "next-1").mkdir(parents=True)
    (theirs / "next-1/precious").write_text("precious")
    target = tmp_path / "here/out"
    area = area_of(target, "ab" * 16, 1, "w")
    area.parent.mkdir(parents=True, exist_ok=True)
    area.symlink_to(theirs)
    Area(area, target).discard()

    assert not area.is_symlink()
    assert (theirs / "next-1/precious").exists()
