"""Single tasks of the cleanup: what a job's own cleanup removes, and how failures are shown."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.support.faulty_register import Call, Durable, Faults
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.config import Configuration
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.jobmanager.cleanup import Cleanup, CleanupSettings
from understudy.jobmanager.effort import CleanupStrategy
from understudy.jobmanager.retention import read_tombstone
from understudy.model import (
    ApplicationResultEntry,
    ApplicationStatus,
    JobId,
    Pointer,
)

PATIENT = CleanupStrategy("exponential-delay", 100, 1.0, 10.0)
ENTRY = ground.job(1, attempt=3)


async def ended(
    durable: Durable, faults: Faults | None = None, strategy: CleanupStrategy = PATIENT
) -> tuple[Cleanup, ExecutionPlanStore, JobId]:
    """Return the cleanup of an application that runs on; its job has ended in attempt 3."""
    stores = ground.services(durable, faults)
    stored = await ground.submitted(stores)
    plans = stores.plans(stored)
    await plans.claim(1)
    directory = stored.body.directory
    plan = await plans.put_plan(directory, ENTRY.job_id, b"plan")
    await plans.add(1, replace(ENTRY, plan=plan))
    for attempt in (1, 2, 3):
        path = ground.staged(directory, replace(ENTRY, attempt=attempt))
        await stores.storage.publish(path, ground.outcome(ENTRY))
    await plans.update(
        1, ENTRY.job_id, lambda entry: ground.with_result(entry, path, ground.outcome(ENTRY))
    )
    cleanup = Cleanup(stored, plans, stores, 1, CleanupSettings(strategy))
    return cleanup, plans, ENTRY.job_id


def files(durable: Durable) -> list[str]:
    """Return the names of the files that are left, without their directories."""
    return sorted(path.rpartition("/")[2] for path in durable.storage.files)


def test_a_job_is_cleaned_up_after_while_its_application_runs_on() -> None:
    async def main() -> None:
        durable = Durable()
        cleanup, plans, job_id = await ended(durable)
        await cleanup.clean_job(job_id)
        result = plans.entries[job_id].result

        assert sorted(["application.json", f"{job_id}_DIRTY.json"]) == sorted(files(durable))
        assert result is not None
        assert (True, False) == (result.cleaned, result.clean)
        assert {} == cleanup.open

    run_virtual(main())


def test_a_job_that_was_cleaned_up_after_is_left_alone() -> None:
    async def main() -> None:
        durable = Durable()
        faults = Faults()
        cleanup, _, job_id = await ended(durable, faults)
        await cleanup.clean_job(job_id)
        made = len(faults.calls)
        await cleanup.clean_job(job_id)

        assert made == len(faults.calls)

    run_virtual(main())


def test_a_result_whose_bytes_a_third_party_removed_does_not_stop_the_cleanup() -> None:
    async def main() -> None:
        durable = Durable()
        cleanup, plans, job_id = await ended(durable)
        result = plans.entries[job_id].result
        assert result is not None
        durable.storage.delete(result.source.path)
        await cleanup.clean_job(job_id)

        assert ["application.json"] == files(durable)

    run_virtual(main())


def plan_removal(call: Call) -> bool:
    return call.verb == "delete" and "/plans/" in call.subject


def test_a_failing_task_is_shown_and_tried_again_with_growing_pauses() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        cleanup, _, job_id = await ended(durable, faults)
        faults.lasting = plan_removal
        cleaning = asyncio.ensure_future(cleanup.clean_job(job_id))
        await asyncio.sleep(6.9)  # Tried at 0, 1, 3; not yet at 7.
        (view,) = cleanup.open.values()

        assert (f"job {ENTRY.name}", 3, False) == (view.label, view.failures, view.given_up)
        assert "injected into delete" in view.error

        faults.lasting = lambda _: False
        began = virtual_clock().now()
        await cleaning

        assert 0.1 == pytest.approx(virtual_clock().now() - began)
        assert {} == cleanup.open

    run_virtual(main())


def test_a_task_that_has_used_up_its_attempts_is_left_to_a_person() -> None:
    async def main() -> None:
        durable, faults = Durable(), Faults()
        strategy = CleanupStrategy("fixed-delay", 2, 1.0, 1.0)
        cleanup, _, job_id = await ended(durable, faults, strategy)
        faults.lasting = plan_removal
        cleaning = asyncio.ensure_future(cleanup.clean_job(job_id))
        await asyncio.sleep(3600)
        (view,) = cleanup.open.values()

        assert (3, True, False) == (view.failures, view.given_up, cleaning.done())

        cleaning.cancel()

    run_virtual(main())


@pytest.mark.parametrize(
    ("settings", "pauses"),
    [
        ({}, [1.0, 2.0, 4.0, 8.0]),
        ({"cleanup-strategy.type": "none"}, [None, None, None, None]),
        (
            {
                "cleanup-strategy.type": "fixed-delay",
                "cleanup-strategy.fixed-delay.attempts": "2",
                "cleanup-strategy.fixed-delay.delay": "3 s",
            },
            [3.0, 3.0, None, None],
        ),
    ],
    ids=["by default", "none", "fixed delay"],
)
def test_the_configured_strategy_says_when_to_try_again(
    settings: dict[str, str], pauses: list[float | None]
) -> None:
    strategy = CleanupStrategy.of(Configuration(settings))

    assert pauses == [strategy.pause_s(failures) for failures in (1, 2, 3, 4)]


def test_an_application_whose_results_bytes_are_lost_ends_with_what_the_register_knows() -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        cleanup, _, job_id = await ended(durable)
        registry = await stores.registry.claim(1, ephemeral=False)
        (stored,) = (await stores.applications.recover(1, registry)).sound
        source = Pointer(path="flights/lost.json", digest="sha256:0", size=7)
        lost = ApplicationResultEntry(
            status=ApplicationStatus.FAILED, source=source, end_time=300.0
        )
        await stored.update(1, lambda body: replace(body, status=lost.status, result=lost))
        plans = stores.plans(stored)
        await plans.claim(1)
        cleanup = Cleanup(stored, plans, stores, 1, CleanupSettings(PATIENT))
        stone = await cleanup.finish()
        file = await read_tombstone(stores, stone)

        assert (ApplicationStatus.FAILED, 300.0) == (stone.status, stone.ended_at)
        assert (ApplicationStatus.FAILED, None) == (file.result.status, file.result.failure)
        assert [(job_id, b'{"rows":336776}')] == [
            (job.job_id, bytes(job.value)) for job in file.jobs
        ], "what is known of its jobs is kept"
        assert [f"{ground.RUN}~1.json"] == files(durable)
        assert ["registry"] == await stores.register.keys("")

    run_virtual(main())
