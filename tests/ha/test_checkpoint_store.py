"""CompletedCheckpointStore and CheckpointIDCounter, on registers that work and that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from tests.ha import ground
from tests.support.faulty_register import Died, Durable, Fault, Faults
from tests.support.virtual_time import run_virtual
from understudy.core import checkpoints
from understudy.errors import CorruptDataError, ForeignDataError, LeadershipLost, NotFoundError
from understudy.ha.backends.filesystem import FilesystemRegister
from understudy.ha.checkpoint_store import CheckpointStore
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.registry import CHECKPOINTS_PREFIX
from understudy.ha.services import HighAvailabilityServices
from understudy.model import ApplicationId, Checkpoint, CheckpointKind, Checkpoints, JobEntry

JOB = ground.job(1)


@pytest.fixture(params=["embedded", "filesystem"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Durable:
    """What outlives the processes: in memory, and in files as ``filesystem`` keeps them."""
    kept = Durable()
    if request.param == "filesystem":
        kept.register = cast("Any", FilesystemRegister(tmp_path / "register"))
    return kept


def taken(batch_id: int, attempt: int = 1) -> Checkpoint:
    return Checkpoint(kind=CheckpointKind.BATCH, name="query", attempt=attempt, batch_id=batch_id)


def store_of(stores: HighAvailabilityServices, plans: ExecutionPlanStore) -> CheckpointStore:
    return CheckpointStore(stores.register, plans, ground.APPLICATION, JOB.job_id)


async def begun(durable: Durable, faults: Faults | None = None) -> CheckpointStore:
    """Submit the application with one job, as the leader of term 1."""
    stores = ground.services(durable, faults)
    plans = await ground.opened(stores)
    await plans.add(1, JOB)
    return store_of(stores, plans)


async def taken_over(durable: Durable, term: int) -> CheckpointStore:
    stores = ground.services(durable)
    _, plans = await ground.taken_over(stores, term)
    return store_of(stores, plans)


async def record(store: CheckpointStore, term: int, *told: Checkpoint) -> list[int]:
    """Record checkpoints; return their numbers."""
    numbers: list[int] = []

    def change(body: Checkpoints) -> Checkpoints:
        changed, numbered = checkpoints.record(body, told, 1)
        numbers[:] = [one.number for one in numbered]
        return changed

    await store.update(term, change)
    return numbers


def documents(durable: Durable) -> list[str]:
    return asyncio.run(durable.register.keys(CHECKPOINTS_PREFIX))


def test_after_the_first_a_checkpoint_costs_exactly_one_write_to_the_register(
    durable: Durable,
) -> None:
    async def main() -> None:
        store = await begun(durable)
        await record(store, 1, taken(0))
        (key,) = await durable.register.keys(CHECKPOINTS_PREFIX)
        before = len(durable.history)
        numbers = [await record(store, 1, taken(batch)) for batch in range(1, 21)]
        writes = [(one.verb, one.subject) for one in durable.history[before:]]

        assert [[number] for number in range(2, 22)] == numbers
        assert [("swap", key)] * 20 == writes

    asyncio.run(main())


def test_the_first_checkpoint_creates_the_document_and_links_it(durable: Durable) -> None:
    async def main() -> None:
        store = await begun(durable)
        before = len(durable.history)
        await record(store, 1, taken(0))
        (key,) = await durable.register.keys(CHECKPOINTS_PREFIX)
        _, plans = await ground.taken_over(ground.services(durable), 2)

        assert ["create", "swap"] == [one.verb for one in durable.history[before:]][:2]
        assert key == plans.entries[JOB.job_id].checkpoints

    asyncio.run(main())


def test_the_next_leader_goes_on_counting_and_the_one_before_can_write_no_more(
    durable: Durable,
) -> None:
    async def main() -> None:
        late = await begun(durable)
        await record(late, 1, taken(0), taken(1))
        store = await taken_over(durable, 2)
        body = await store.claim(2)

        assert [2] == [one.number for one in checkpoints.latest(body)]
        with pytest.raises(LeadershipLost):
            await record(late, 1, taken(2))
        assert [3] == await record(store, 2, taken(2))

    asyncio.run(main())


def test_claiming_shuts_out_the_leader_before_though_nothing_is_written_since(
    durable: Durable,
) -> None:
    async def main() -> None:
        late = await begun(durable)
        await record(late, 1, taken(0))
        store = await taken_over(durable, 2)
        await store.claim(2)
        with pytest.raises(LeadershipLost):
            await record(late, 1, taken(1))

        assert 1 == (await (await taken_over(durable, 3)).claim(3)).counter

    asyncio.run(main())


def test_what_nothing_links_is_swept_and_what_a_job_needs_stays(durable: Durable) -> None:
    async def main() -> None:
        store = await begun(durable)
        await record(store, 1, taken(0))
        (needed,) = await durable.register.keys(CHECKPOINTS_PREFIX)
        store.forget()
        store._plans.entries[JOB.job_id] = JOB  # As where the link was not acknowledged.
        await record(store, 1, taken(0))
        stores = ground.services(durable)
        swept = await stores.registry.sweep(2)

        assert [needed] == swept, "the second is what the job's entry names"
        assert 1 == len(await durable.register.keys(CHECKPOINTS_PREFIX))

    asyncio.run(main())


def test_nothing_is_swept_while_the_jobs_that_may_need_it_cannot_be_read(durable: Durable) -> None:
    async def main() -> None:
        store = await begun(durable)
        await record(store, 1, taken(0))
        (segment,) = await durable.register.keys("jobs-")
        entry = await durable.register.load(segment)
        assert entry is not None
        await durable.register.swap(segment, b"not yours", entry.version)
        await ground.services(durable).registry.sweep(2)

        assert 1 == len(await durable.register.keys(CHECKPOINTS_PREFIX))

    asyncio.run(main())


def test_a_document_is_deleted_with_its_job_and_a_second_time_too(durable: Durable) -> None:
    async def main() -> None:
        store = await begun(durable)
        await store.delete(1)
        await record(store, 1, taken(0))
        await store.delete(1)
        await (await taken_over(durable, 2)).delete(2)

    asyncio.run(main())

    assert [] == documents(durable)


@pytest.mark.parametrize("spoilt", [b"", b"{", b'{"format":"notes","version":99}'])
def test_a_document_that_cannot_be_read_is_named_and_left_in_place(
    durable: Durable, spoilt: bytes
) -> None:
    async def main() -> None:
        store = await begun(durable)
        await record(store, 1, taken(0))
        (key,) = await durable.register.keys(CHECKPOINTS_PREFIX)
        entry = await durable.register.load(key)
        assert entry is not None
        await durable.register.swap(key, spoilt, entry.version)
        late = await taken_over(durable, 2)
        with pytest.raises(CorruptDataError, match=key):
            await late.claim(2)

        assert not late.is_claimed
        left = await durable.register.load(key)
        assert left is not None
        assert spoilt == left.value

    asyncio.run(main())


def test_a_document_that_is_gone_is_not_taken_for_a_job_without_checkpoints(
    durable: Durable,
) -> None:
    async def main() -> None:
        await record(await begun(durable), 1, taken(0))
        (key,) = await durable.register.keys(CHECKPOINTS_PREFIX)
        entry = await durable.register.load(key)
        assert entry is not None
        await durable.register.swap(key, None, entry.version)
        with pytest.raises(NotFoundError, match=key):
            await (await taken_over(durable, 2)).claim(2)

    asyncio.run(main())


def test_the_document_of_another_application_is_refused() -> None:
    async def main() -> None:
        durable = Durable()
        store = await begun(durable)
        await record(store, 1, taken(0))
        stores = ground.services(durable)
        other = CheckpointStore(stores.register, store._plans, ApplicationId("b" * 32), JOB.job_id)
        with pytest.raises(ForeignDataError, match="b" * 32):
            await other.claim(1)

    run_virtual(main())


async def three(store: CheckpointStore) -> list[int]:
    """Record three checkpoints, each until its outcome is known, as the coordinator does."""
    numbers: list[int] = []
    for batch in range(3):
        while True:
            try:
                numbers += await record(store, 1, taken(batch))
            except (OSError, TimeoutError):
                continue
            break
    return numbers


def test_whatever_answer_is_lost_each_checkpoint_has_one_number() -> None:
    async def main(fault: Fault, number: int) -> bool:
        durable, faults = Durable(), Faults()
        store = await begun(durable, faults)
        before = len(faults.calls)
        # So many in a row that the outcome of the write is unknown to the document as well.
        faults.plan = dict.fromkeys(range(before + number, before + number + 6), fault)
        numbers = await three(store)
        body = await (await taken_over(durable, 2)).claim(2)

        assert [1, 2, 3] == numbers
        assert (3, 3) == (body.counter, body.completed_total)
        return len(faults.calls) > before + number

    for fault in (Fault.FAILS, Fault.ANSWER_LOST):
        met = [run_virtual(main(fault, number)) for number in range(8)]
        assert met.count(True) >= 4, "each call was struck"


def test_wherever_a_leader_dies_what_it_has_acknowledged_is_given_to_the_next() -> None:
    async def main(fault: Fault, number: int) -> bool:
        durable, faults = Durable(), Faults()
        store = await begun(durable, faults)
        before = len(faults.calls)
        faults.plan = {before + number: fault}
        acknowledged = 0
        try:
            for batch in range(4):
                await record(store, 1, taken(batch))
                acknowledged = batch + 1
        except Died:
            pass
        successor = await taken_over(durable, 2)
        body = await successor.claim(2)
        given = checkpoints.latest(body)
        stores = ground.services(durable)
        await stores.registry.sweep(2)
        left = await durable.register.keys(CHECKPOINTS_PREFIX)

        assert acknowledged <= (given[-1].batch_id + 1 if given else 0)
        assert [body.counter + 1] == await record(successor, 2, taken(9, attempt=2))
        assert left == [key for key in left if key == _link(successor, body)]
        return faults.dead

    for fault in (Fault.DIES_BEFORE, Fault.DIES_AFTER):
        died = [run_virtual(main(fault, number)) for number in range(8)]
        assert died[:4] == [True] * 4, "each call was died at"


def _link(store: CheckpointStore, body: Checkpoints) -> str:
    entry: JobEntry = store._plans.entries[body.job_id]
    return entry.checkpoints
