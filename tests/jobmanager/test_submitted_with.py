"""What a job is submitted with is stored with it, for the next leader; other code changes it."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from tests.ha import ground
from tests.jobmanager.test_late_leader import context
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual
from understudy.core.ids import job_id
from understudy.jobmanager.application_jobs import ApplicationJobs
from understudy.jobmanager.job_master import JobMasterContext
from understudy.jobmanager.job_requests import JobRequests
from understudy.model import Limits, Pointer
from understudy.rpc.messages import Submit

LIMITS = Limits(retries=1, timeout_s=60.0)
OTHERS = Limits(retries=0)
JOB = job_id(ground.APPLICATION, "load", 0)


def submit(limits: Limits, arguments: dict[str, str] | None = None) -> Submit:
    return Submit(
        request=1,
        job_id=JOB,
        name="load",
        occurrence=0,
        plan=Pointer(path="plan", digest="", size=0),
        limits=limits,
        arguments=arguments or {},
    )


def jobs_in(shared: JobMasterContext, begun: list[asyncio.Task[Any]]) -> ApplicationJobs:
    return ApplicationJobs(
        shared,
        unreached_grace_s=5.0,
        lost_at=None,
        spawn=lambda work: begun.append(asyncio.ensure_future(work)),
        enqueue=lambda _: None,
    )


def test_limits_outlive_the_leader_and_change_with_the_code() -> None:
    async def main() -> list[Limits | int | None]:
        durable = Durable()
        stores = ground.services(durable)
        await ground.opened(stores)
        stored, _ = await ground.taken_over(stores, 2)
        shared = context(stores, stored, 2)
        await shared.plans.claim(2)
        begun: list[asyncio.Task[Any]] = []
        await JobRequests(jobs_in(shared, begun)).submit(submit(LIMITS))

        stored, _ = await ground.taken_over(stores, 3)
        shared = context(stores, stored, 3)
        await shared.plans.claim(3)
        jobs = jobs_in(shared, begun)
        jobs.recover()
        found = [jobs.entries[JOB].limits, jobs.masters[JOB]._strategy.retries]
        await JobRequests(jobs).submit(submit(OTHERS))
        found.append(jobs.entries[JOB].limits)

        redeployed = jobs_in(dataclasses.replace(shared, deployment=2), begun)
        redeployed.recover()
        await JobRequests(redeployed).submit(submit(OTHERS))
        found += [redeployed.entries[JOB].limits, redeployed.masters[JOB]._strategy.retries]
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        return found

    assert [LIMITS, 1, LIMITS, OTHERS, 0] == run_virtual(main())


def test_arguments_outlive_the_leader_and_change_with_the_code() -> None:
    async def main() -> list[dict[str, str]]:
        durable = Durable()
        stores = ground.services(durable)
        await ground.opened(stores)
        begun: list[asyncio.Task[Any]] = []
        found = []
        for term, digest in ((2, "first"), (3, "again")):
            stored, _ = await ground.taken_over(stores, term)
            shared = context(stores, stored, term)
            await shared.plans.claim(term)
            jobs = jobs_in(shared, begun)
            jobs.recover()
            requests = JobRequests(jobs)
            await requests.submit(submit(LIMITS, {"path": digest}))
            found.append(requests.arguments(JOB))

        redeployed = jobs_in(dataclasses.replace(shared, deployment=2), begun)
        redeployed.recover()
        requests = JobRequests(redeployed)
        found.append(requests.arguments(JOB))
        await requests.submit(submit(LIMITS, {"path": "other code"}))
        found.append(requests.arguments(JOB))
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        return found

    expected = [{"path": "first"}, {"path": "first"}, {}, {"path": "other code"}]

    assert expected == run_virtual(main())
