"""ExecutionPlanStore: jobs in segments, changed in one fenced write, in order of submission."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.support.faulty_register import Died, Durable, Fault, Faults
from tests.support.virtual_time import run_virtual
from understudy.errors import CorruptDataError, LeadershipLost
from understudy.ha import execution_plan_store
from understudy.ha.format import digest
from understudy.ha.registry import SEGMENT_PREFIX
from understudy.model import JobEntry, JobId, Pointer

A, B, C = ground.job(1), ground.job(2), ground.job(3)


def attempt(number: int) -> Callable[[JobEntry], JobEntry]:
    return lambda entry: replace(entry, attempt=number)


def displaced(entry: JobEntry) -> JobEntry:
    return replace(entry, displaced=True)


async def stored_jobs(durable: Durable, term: int) -> list[JobEntry]:
    """Return the jobs as a new leader finds them."""
    _, plans = await ground.taken_over(ground.services(durable), term)
    return list(plans.entries.values())


def test_an_added_job_is_found_by_the_next_leader() -> None:
    async def main() -> None:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        await plans.add(1, A)
        await plans.add(1, B)

        assert [A, B] == list(plans.entries.values())
        assert [A, B] == await stored_jobs(durable, 2)

    run_virtual(main())


def test_the_order_of_submission_is_kept_across_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_plan_store, "SEGMENT_JOBS_MAX", 3)

    async def main() -> None:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        order = [7, 2, 9, 4, 1, 8, 3, 6]
        for number in order[:5]:
            await plans.add(1, ground.job(number))
        stored, plans = await ground.taken_over(ground.services(durable), 2)
        for number in order[5:]:
            await plans.add(2, ground.job(number))
        await plans.update(2, JobId(f"{2:032x}"), attempt(4))
        _, later = await ground.taken_over(ground.services(durable), 3)
        expected = [f"job {number}" for number in order]

        assert expected == [entry.name for entry in plans.entries.values()]
        assert expected == [entry.name for entry in later.entries.values()]
        assert 3 == len(await durable.register.keys(SEGMENT_PREFIX))
        assert 3 == len(stored.body.segments)

    run_virtual(main())


def test_jobs_that_are_added_at_once_share_a_segment() -> None:
    async def main() -> None:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        await asyncio.gather(*(plans.add(1, ground.job(number)) for number in range(20)))

        assert 20 == len(await stored_jobs(durable, 2))
        assert 1 == len(await durable.register.keys(SEGMENT_PREFIX))

    run_virtual(main())


@pytest.mark.parametrize("fault", [Fault.DIES_BEFORE, Fault.DIES_AFTER])
def test_a_submission_cut_short_anywhere_is_there_or_not(fault: Fault) -> None:
    async def main(number: int) -> int:
        durable = Durable()
        await ground.submitted(ground.services(durable))
        faults = Faults()
        _, plans = await ground.taken_over(ground.services(durable, faults), 2)
        faults.plan = {len(faults.calls) + number: fault}
        acknowledged = 0
        try:
            for entry in (A, B):
                await plans.add(2, entry)
                acknowledged += 1
        except Died:
            pass
        found = await stored_jobs(durable, 3)

        assert found in ([A, B][:acknowledged], [A, B][: acknowledged + 1])

        stores = ground.services(durable)
        await stores.registry.sweep(4)
        stored, plans = await ground.taken_over(stores, 4)

        assert list(stored.body.segments) == await durable.register.keys(SEGMENT_PREFIX)

        return len(found)

    assert {0, 1, 2} == {run_virtual(main(number)) for number in range(5)}


def test_an_update_is_one_write_of_one_segment() -> None:
    async def main() -> None:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        await plans.add(1, A)
        await plans.add(1, B)
        writes = len(durable.history)

        assert replace(A, attempt=5) == await plans.update(1, A.job_id, attempt(5))
        assert writes + 1 == len(durable.history)
        assert [replace(A, attempt=5), B] == await stored_jobs(durable, 2)

    run_virtual(main())


def test_changing_every_job_is_one_write_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_plan_store, "SEGMENT_JOBS_MAX", 2)

    async def main() -> None:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        for entry in (A, B, C):
            await plans.add(1, entry)
        writes = len(durable.history)
        await plans.update_all(1, displaced)

        assert writes + 2 == len(durable.history)
        assert [displaced(entry) for entry in (A, B, C)] == await stored_jobs(durable, 2)
        assert [displaced(entry) for entry in (A, B, C)] == list(plans.entries.values())

    run_virtual(main())


# --- notes ----------------------------------------------------------------------------------------


def test_a_note_is_seen_at_once_and_written_with_the_next_write() -> None:
    async def main() -> None:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        await plans.add(1, A)
        await plans.add(1, B)
        writes = len(durable.history)
        plans.note(A.job_id, displaced)

        assert writes == len(durable.history)
        assert displaced(A) == plans.entries[A.job_id]

        await plans.update(1, B.job_id, attempt(2))

        assert writes + 1 == len(durable.history)
        assert [displaced(A), replace(B, attempt=2)] == await stored_jobs(durable, 2)

    run_virtual(main())


def test_an_update_returns_with_a_note_pending_on_the_same_job() -> None:
    """Once it looped for ever."""

    async def main() -> None:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        await plans.add(1, A)
        plans.note(A.job_id, displaced)
        plan = Pointer(path="plans/other", digest="sha256:1", size=2)
        changed = await plans.update(1, A.job_id, lambda entry: replace(entry, plan=plan))

        assert replace(A, displaced=True, plan=plan) == changed
        assert [changed] == await stored_jobs(durable, 2)

    run_virtual(main(), limit_s=60)


def test_a_note_made_while_a_write_is_under_way_is_seen_and_written_next() -> None:
    async def main() -> None:
        durable = Durable()
        faults = Faults()
        plans = await ground.opened(ground.services(durable, faults))
        await plans.add(1, A)
        faults.plan = {len(faults.calls): Fault.FAILS}
        writing = asyncio.ensure_future(plans.update(1, A.job_id, attempt(2)))
        await asyncio.sleep(0.01)  # Its first try has failed; it pauses before the second.
        plans.note(A.job_id, displaced)
        await writing
        expected = replace(A, attempt=2, displaced=True)

        assert expected == plans.entries[A.job_id]

        await plans.update_all(1, lambda entry: entry)

        assert expected == plans.entries[A.job_id]
        assert [expected] == await stored_jobs(durable, 2)

    run_virtual(main())


def test_a_note_is_kept_when_the_write_it_went_with_has_failed() -> None:
    async def main() -> None:
        durable = Durable()
        faults = Faults()
        plans = await ground.opened(ground.services(durable, faults))
        await plans.add(1, A)
        plans.note(A.job_id, displaced)
        first = len(faults.calls)
        faults.plan = dict.fromkeys(range(first, first + 5), Fault.FAILS)
        with pytest.raises(TimeoutError):
            await plans.update(1, A.job_id, attempt(2))
        await plans.update(1, A.job_id, attempt(3))

        assert [replace(A, attempt=3, displaced=True)] == await stored_jobs(durable, 2)

    run_virtual(main())


# --- fencing and damage ---------------------------------------------------------------------------


def test_a_deposed_leader_changes_no_job_and_adds_none() -> None:
    async def main() -> None:
        durable = Durable()
        old = await ground.opened(ground.services(durable))
        await old.add(1, A)
        assert [A] == await stored_jobs(durable, 2)
        for write in (
            old.add(1, B),
            old.update(1, A.job_id, attempt(9)),
            old.update_all(1, displaced),
        ):
            with pytest.raises(LeadershipLost):
                await write

        assert [A] == await stored_jobs(durable, 3)

    run_virtual(main())


def test_a_deposed_leader_opens_no_segment_that_counts() -> None:
    async def main() -> None:
        durable = Durable()
        old = await ground.opened(ground.services(durable))
        assert [] == await stored_jobs(durable, 2)
        with pytest.raises(LeadershipLost):
            await old.add(1, A)

        assert [] == await stored_jobs(durable, 3)
        assert 1 == len(await ground.services(durable).registry.sweep(3))

    run_virtual(main())


@pytest.mark.parametrize("value", [b"garbage", None])
def test_a_segment_that_is_damaged_or_gone_stops_its_application(value: bytes | None) -> None:
    async def main() -> None:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        await plans.add(1, A)
        (key,) = await durable.register.keys(SEGMENT_PREFIX)
        entry = await durable.register.load(key)
        assert entry is not None
        await durable.register.swap(key, value, entry.version)
        with pytest.raises(CorruptDataError if value else Exception, match=key):
            await ground.taken_over(ground.services(durable), 2)

    run_virtual(main())


def test_segments_are_deleted_by_their_keys_repeatedly() -> None:
    async def main() -> None:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        await plans.add(1, A)
        keys = tuple(await durable.register.keys(SEGMENT_PREFIX))
        for _ in range(2):
            await plans.delete_documents(1, keys)

        assert [] == await durable.register.keys(SEGMENT_PREFIX)

    run_virtual(main())


# --- plans ----------------------------------------------------------------------------------------


def test_the_bytes_of_a_plan_are_durable_when_their_pointer_is_known_and_removed_on_request() -> (
    None
):
    async def main() -> None:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        pointer = await plans.put_plan("app", A.job_id, b"a pickle")

        assert (b"a pickle", digest(b"a pickle"), 8) == (
            durable.storage.read(pointer.path),
            pointer.digest,
            pointer.size,
        )

        for _ in range(2):
            await plans.remove_plan(replace(A, plan=pointer))

        assert not durable.storage.exists(pointer.path)

    run_virtual(main())


def test_two_plans_of_one_job_do_not_overwrite_each_other() -> None:
    async def main() -> None:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        one = await plans.put_plan("app", A.job_id, b"old code")
        other = await plans.put_plan("app", A.job_id, b"new code")

        assert (b"old code", b"new code") == (
            durable.storage.read(one.path),
            durable.storage.read(other.path),
        )

    run_virtual(main())
