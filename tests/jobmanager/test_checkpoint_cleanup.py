"""What is retained of a job's checkpoints, and that all else goes, wherever they lie."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import fsspec
import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.jobmanager.test_savepoints import ABOUT
from tests.support.faulty_register import Durable
from understudy.core import checkpoints
from understudy.core.checkpoints import Retention
from understudy.ha.checkpoint_store import CheckpointStore
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.services import HighAvailabilityServices
from understudy.ha.storage import BlockingStorage, InlineStorage, open_storage, storage_of
from understudy.jobmanager import retained
from understudy.jobmanager.checkpoint_cleanup import clean_checkpoints
from understudy.jobmanager.effort import Effort
from understudy.model import (
    Checkpoint,
    CheckpointKind,
    Checkpoints,
    JobEntry,
    JobStatus,
)

CANCELED, FAILED, FINISHED = JobStatus.CANCELED, JobStatus.FAILED, JobStatus.FINISHED


@pytest.fixture(params=["path", "file", "memory"])
def chosen(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory that a person has chosen, as they may spell it."""
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()
        return f"memory://chosen-{tmp_path.name}"
    return f"{'file://' if request.param == 'file' else ''}{tmp_path}/points"


class Ended:
    """A job with a table and a state, and what attempts that died have left beside them."""

    def __init__(self, base: str) -> None:
        self.stores: HighAvailabilityServices = ground.services(Durable())
        self.plans: ExecutionPlanStore
        self.directory = f"{base}/{ground.job(1).job_id}" if base else ""
        self.there: BlockingStorage = open_storage(base) if base else cast("BlockingStorage", None)

    @property
    def entry(self) -> JobEntry:
        return self.plans.entries[ground.job(1).job_id]

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(
            self.stores.register, self.plans, ground.APPLICATION, self.entry.job_id
        )

    def files(self) -> list[str]:
        return sorted(self.there.sizes(ground.job(1).job_id))

    async def begin(self) -> None:
        self.plans = await ground.opened(self.stores)
        intent = ground.intent(self.directory)
        await self.plans.add(1, replace(ground.job(1), intent=intent))
        for path in ("tables/a-1-1/part-0", "tables/half-1-2/part-0", "state/1-2", "state/1-1"):
            self.there.publish(f"{self.entry.job_id}/{path}", b"data")
        at = f"{self.directory}/"
        taken = [
            Checkpoint(
                kind=CheckpointKind.TABLE, name="a", attempt=1, location=f"{at}tables/a-1-1"
            ),
            Checkpoint(kind=CheckpointKind.STATE, name="", attempt=1, location=f"{at}state/1-2"),
        ]
        await self.store.update(1, lambda body: checkpoints.record(body, taken, 1)[0])

    async def end(self, retention: Retention, status: JobStatus) -> str:
        """Record a result as a JobMaster does, and clean up."""
        store = self.store
        body = await store.claim(1)
        kept = await retained.retain(
            self.stores.storage, retention, self.entry, status, body, ABOUT
        )
        committed = ground.with_result(self.entry, "staged", b"")
        assert committed.result is not None
        result = replace(committed.result, status=status, checkpoint=kept)
        await self.plans.update(1, self.entry.job_id, lambda entry: replace(entry, result=result))
        for _ in range(2):  # A leader that died may have done it already.
            await self.clean()
        return kept

    async def clean(self) -> None:
        application = (await ground.taken_over(self.stores, 1))[0].body
        await clean_checkpoints(
            self.stores, self.plans, application, 1, self.entry, Effort(leave=False)
        )


def test_what_is_retained_is_listed_beside_its_bytes_and_the_rest_goes(chosen: str) -> None:
    async def main() -> tuple[str, Ended]:
        ended = Ended(chosen)
        await ended.begin()
        kept = await ended.end(Retention.RETAIN_ON_CANCELLATION, CANCELED)
        return kept, ended

    kept, ended = asyncio.run(main())
    holder, path = storage_of(ended.stores.storage.blocking, kept)
    body = retained.files.load(holder.read(path), kept).checkpoints

    assert f"{ended.directory}/checkpoint-2.json" == kept
    assert ["checkpoint-2.json", "state/1-2", "tables/a-1-1/part-0"] == ended.files()
    assert ["a", ""] == [one.name for one in body.completed]
    assert [] == asyncio.run(ended.stores.register.keys("checkpoints-"))


@pytest.mark.parametrize(
    ("retention", "status"),
    [
        (Retention.RETAIN_ON_CANCELLATION, FINISHED),
        (Retention.DELETE_ON_CANCELLATION, CANCELED),
        (Retention.NO_EXTERNALIZED_CHECKPOINTS, FAILED),
    ],
)
def test_what_is_not_retained_goes_with_its_document(
    chosen: str, retention: Retention, status: JobStatus
) -> None:
    async def main() -> tuple[str, Ended]:
        ended = Ended(chosen)
        await ended.begin()
        return await ended.end(retention, status), ended

    kept, ended = asyncio.run(main())

    assert "" == kept
    assert [] == ended.files()
    assert [] == asyncio.run(ended.stores.register.keys("checkpoints-"))


def test_a_document_that_nobody_can_read_goes_with_its_job_that_has_ended(tmp_path: Path) -> None:
    async def main() -> tuple[str, Ended]:
        ended = Ended(str(tmp_path))
        await ended.begin()
        register, key = ended.stores.register, ended.entry.checkpoints
        entry = await register.load(key)
        assert entry is not None
        await register.swap(key, entry.value[:100], entry.version)
        kept = await retained.retain(
            ended.stores.storage,
            Retention.RETAIN_ON_CANCELLATION,
            ended.entry,
            CANCELED,
            checkpoints_unread(ended),
            ABOUT,
        )
        committed = ground.with_result(ended.entry, "staged", b"").result
        assert committed is not None
        result = replace(committed, checkpoint=kept)
        await ended.plans.update(1, ended.entry.job_id, lambda entry: replace(entry, result=result))
        await ended.clean()
        return kept, ended

    kept, ended = asyncio.run(main())

    # Nobody can tell which are needed: so all that a person wanted retained is.
    assert ended.directory == kept
    assert 4 == len(ended.files())
    assert [] == asyncio.run(ended.stores.register.keys("checkpoints-"))


def checkpoints_unread(ended: Ended) -> Checkpoints:
    return ended.store.body


def test_nothing_is_retained_in_our_own_storage() -> None:
    """It goes with the application: whoever found it named would look for it in vain."""

    async def main() -> str:
        ended = Ended("")
        ended.there = ended.stores.storage.blocking
        await ended.begin()
        body = await ended.store.claim(1)
        return await retained.retain(
            ended.stores.storage, Retention.RETAIN_ON_CANCELLATION, ended.entry, FAILED, body, ABOUT
        )

    assert "" == asyncio.run(main())


def test_where_a_path_lies_is_told_by_how_it_is_spelt(tmp_path: Path) -> None:
    ours = InlineStorage(open_storage(str(tmp_path))).blocking

    assert (ours, "a/b") == storage_of(ours, "a/b")
    assert (str(tmp_path), "b") == _told(ours, f"{tmp_path}/b")
    assert (str(tmp_path), "b") == _told(ours, f"file://{tmp_path}/b/")
    assert ("/", "b") == _told(ours, "/b")
    assert ("memory://a", "b") == _told(ours, "memory://a/b")


def _told(ours: BlockingStorage, path: str) -> tuple[str, str]:
    holder, below = storage_of(ours, path)
    return holder.url, below
