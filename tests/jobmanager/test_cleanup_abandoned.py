"""A cleanup that fails for good: a person has it tried again, or leaves behind what fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.ha import ground
from tests.jobmanager.test_cleanup import JOBS, begin, commit_application, commit_job
from tests.support.faulty_register import Call, Durable, Faults
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.ha.application_store import StoredApplication
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.cleanup import Cleanup, CleanupSettings
from understudy.jobmanager.effort import CleanupStrategy
from understudy.jobmanager.retention import read_tombstone
from understudy.model import Tombstone

ONCE = CleanupStrategy("none", 0, 0.0, 0.0)
HOURLY = CleanupStrategy("fixed-delay", 100, 3600.0, 3600.0)

Stored = tuple[HighAvailabilityServices, StoredApplication, ExecutionPlanStore]


async def ended(durable: Durable, faults: Faults) -> Stored:
    """Return what a leader of term 2 has when everything has ended and nothing is cleaned up."""
    await begin(durable, len(JOBS))
    stores = ground.services(durable, faults)
    stored, plans = await ground.taken_over(stores, 2)
    for entry in list(plans.entries.values()):
        await commit_job(stores, 2, stored, plans, entry)
    await commit_application(stores, 2, stored)
    return stores, stored, plans


def cleanup_of(
    stored: Stored, strategy: CleanupStrategy = ONCE, *, term: int = 2, keep: bool = False
) -> Cleanup:
    """Return the cleanup that a leader does."""
    stores, application, plans = stored
    return Cleanup(application, plans, stores, term, CleanupSettings(strategy, keep))


def removal_of(part: str) -> Callable[[Call], bool]:
    """Return the fault of a place from which nothing can be removed."""
    return lambda call: call.verb.startswith("delete") and part in call.subject


def writing_of(part: str) -> Callable[[Call], bool]:
    """Return the fault of a place to which nothing can be written."""
    return lambda call: call.verb == "publish" and part in call.subject


def story(main: Callable[[], Awaitable[None]]) -> None:
    """Run a story in virtual time."""

    async def run() -> None:
        await main()

    run_virtual(run())


def test_what_was_given_up_is_tried_at_once_when_a_person_wants_it() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        cleanup = cleanup_of(await ended(durable, faults))
        faults.lasting = removal_of("/plans/")
        finishing = asyncio.ensure_future(cleanup.finish())
        await asyncio.sleep(3600)
        given_up = [(view.label, view.failures, view.given_up) for view in cleanup.failing]
        cleanup.retry()
        await asyncio.sleep(1)
        again = [(view.failures, view.given_up) for view in cleanup.failing]
        faults.lasting = lambda _: False
        cleanup.retry()
        tombstone = await finishing

        assert [(f"job {entry.name}", 1, True) for entry in JOBS] == given_up
        assert [(2, True)] * len(JOBS) == again
        assert () == tombstone.left_behind

    story(main)


def test_what_waits_for_its_next_try_is_tried_at_once_when_a_person_wants_it() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        cleanup = cleanup_of(await ended(durable, faults), HOURLY)
        faults.lasting = removal_of("/plans/")
        finishing = asyncio.ensure_future(cleanup.finish())
        await asyncio.sleep(1)
        waits = [view.next_try is not None for view in cleanup.failing]
        faults.lasting = lambda _: False
        began = virtual_clock().now()
        cleanup.retry()
        await finishing

        assert [True] * len(JOBS) == waits
        assert virtual_clock().now() - began < 1

    story(main)


def test_a_job_that_cannot_be_cleaned_up_after_does_not_hold_up_the_others() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        stored = await ended(durable, faults)
        cleanup = cleanup_of(stored)
        faults.lasting = removal_of(f"/plans/{JOBS[0].job_id}")
        finishing = asyncio.ensure_future(cleanup.finish())
        await asyncio.sleep(1)
        entries = stored[2].entries.values()
        cleaned = [entry.result.cleaned for entry in entries if entry.result]

        assert [False, True] == cleaned

        finishing.cancel()

    story(main)


def test_what_fails_is_left_behind_and_named_once_a_person_abandons_it() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        stored = await ended(durable, faults)
        directory = f"{ground.CLUSTER}/applications/{stored[1].body.directory}"
        cleanup = cleanup_of(stored)
        faults.lasting = removal_of(directory)
        finishing = asyncio.ensure_future(cleanup.finish())
        await asyncio.sleep(3600)
        await cleanup.abandon()
        tombstone = await finishing
        left = [path for path in durable.storage.files if path.startswith(directory)]

        assert directory in tombstone.left_behind
        for named in tombstone.left_behind:  # A file, or a directory that is not empty.
            assert any(f"{path}/".startswith(f"{named}/") for path in left), named
        assert {} == cleanup.open
        await shows_all_results(stored[0], tombstone)

    story(main)


def test_what_went_with_something_else_was_not_left_behind() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        cleanup = cleanup_of(await ended(durable, faults))
        faults.lasting = removal_of("/plans/")
        finishing = asyncio.ensure_future(cleanup.finish())
        await asyncio.sleep(3600)
        await cleanup.abandon()
        tombstone = await finishing

        assert () == tombstone.left_behind

    story(main)


def test_a_result_that_cannot_be_published_is_not_lost_when_it_is_abandoned() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        stored = await ended(durable, faults)
        cleanup = cleanup_of(stored)
        faults.lasting = writing_of("job-result-store")
        finishing = asyncio.ensure_future(cleanup.finish())
        await asyncio.sleep(3600)
        await cleanup.abandon()
        tombstone = await finishing

        assert () == tombstone.left_behind
        await shows_all_results(stored[0], tombstone)

    story(main)


def test_results_stay_where_no_tombstone_can_be_written() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        stored = await ended(durable, faults)
        cleanup = cleanup_of(stored)
        faults.lasting = writing_of("/tombstones/")
        finishing = asyncio.ensure_future(cleanup.finish())
        await asyncio.sleep(3600)
        await cleanup.abandon()
        tombstone = await finishing
        kept = [f"job-result-store/{ground.CLUSTER}/{entry.job_id}.json" for entry in JOBS]
        kept.append(f"application-result-store/{ground.CLUSTER}/{ground.APPLICATION}.json")

        assert sorted(kept) == sorted(tombstone.left_behind)
        assert sorted(kept) == sorted(durable.storage.files)

    story(main)


def test_what_is_tried_again_to_be_written_of_a_tombstone_is_what_was_read_first() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        stored = await ended(durable, faults)
        cleanup = cleanup_of(stored, HOURLY)
        faults.lasting = writing_of("/tombstones/")
        finishing = asyncio.ensure_future(cleanup.finish())
        await asyncio.sleep(1)
        for entry in JOBS:
            durable.storage.publish(stored[0].job_results.dirty_path(entry.job_id), b"altered")
        faults.lasting = lambda _: False
        cleanup.retry()

        await shows_all_results(stored[0], await finishing)

    story(main)


def test_the_next_leader_goes_on_leaving_behind_what_fails() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        stored = await ended(durable, faults)
        cleanup = cleanup_of(stored)
        faults.lasting = removal_of("-result-store/")
        finishing = asyncio.ensure_future(cleanup.finish())
        await asyncio.sleep(3600)
        await cleanup.abandon()
        finishing.cancel()
        await asyncio.gather(finishing, return_exceptions=True)
        faults = Faults(lasting=removal_of("-result-store/"))
        stores = ground.services(durable, faults)
        application, plans = await ground.taken_over(stores, 3)
        tombstone = await cleanup_of((stores, application, plans), term=3).finish()
        kept = [f"job-result-store/{ground.CLUSTER}/{entry.job_id}_DIRTY.json" for entry in JOBS]
        kept.append(f"application-result-store/{ground.CLUSTER}/{ground.APPLICATION}_DIRTY.json")

        assert sorted(kept) == sorted(tombstone.left_behind)
        await shows_all_results(stores, tombstone)

    story(main)


def test_what_only_the_register_can_do_is_not_abandoned() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        stored = await ended(durable, faults)
        cleanup = cleanup_of(stored)
        await cleanup.abandon()
        faults.lasting = lambda call: call.writes and call.subject.startswith("registry")
        finishing = asyncio.ensure_future(cleanup.finish())
        await asyncio.sleep(3600)
        open_tasks = [(view.label, view.given_up) for view in cleanup.failing]
        faults.lasting = lambda _: False
        cleanup.retry()
        await finishing

        assert [("unlink the application", True)] == open_tasks

    story(main)


async def shows_all_results(stores: HighAvailabilityServices, tombstone: Tombstone) -> None:
    """Check that what the jobs returned can still be read."""
    file = await read_tombstone(stores, tombstone)

    assert [(entry.job_id, b'{"rows":336776}') for entry in JOBS] == [
        (job.job_id, bytes(job.value)) for job in file.jobs
    ]
