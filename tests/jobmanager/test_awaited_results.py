"""How a job ended, as `main` is told: read until it can be had, and told to whoever lives."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec.structs import replace as replace_struct

from tests.ha import ground
from tests.jobmanager.test_late_leader import context, end_job
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual
from understudy.core.ids import job_id
from understudy.core.matching import Assignment
from understudy.errors import CorruptDataError, LostDataError
from understudy.ha.result_store import ResultStore
from understudy.ha.storage import InlineStorage
from understudy.jobmanager.application_jobs import ApplicationJobs
from understudy.jobmanager.job_requests import JobRequests
from understudy.jobmanager.main_desk import Jobs, MainDesk
from understudy.model import Incarnation, JobId, JobStatus, Outcome, Pointer, RunId
from understudy.rpc import messages
from understudy.rpc.local import LocalLink, link_pair
from understudy.rpc.messages import MainMessage

JOB = JobId("job")


async def nothing_recorded(name: str, value: str) -> str:
    """Record nothing: these mains ask for no values."""
    return value


class Away(InlineStorage):
    """A storage that does not answer for a while."""

    asked = 0

    async def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """See `Storage.run`."""
        self.asked += 1
        if self.asked < 4:
            raise OSError("nobody answers")
        return await super().run(function, *args, **kwargs)


def test_a_result_that_cannot_be_read_just_now_is_read_later() -> None:
    """And is no reason to end the term, with `main`."""

    async def main() -> Outcome:
        durable = Durable()
        stores = ground.services(durable)
        await (await ground.opened(stores)).add(1, ground.job(1))
        stored, _ = await ground.taken_over(stores, 2)
        await end_job(stores, 2, stored)
        shared = context(stores, stored, 2)
        await shared.plans.claim(2)
        (entry,) = shared.plans.entries.values()
        away = ResultStore(Away(durable.storage), stores.locations.job_results)
        jobs = ApplicationJobs(
            replace(shared, results=away),
            unreached_grace_s=5.0,
            lost_at=None,
            spawn=asyncio.ensure_future,
            enqueue=lambda _: None,
        )
        return await JobRequests(jobs).outcome(entry.job_id)

    outcome = run_virtual(main())

    assert outcome.failure is not None
    assert "by term 2" == outcome.failure.message


def test_a_result_that_is_gone_is_unavailable_and_the_others_are_read() -> None:
    """And what it is told by names the file."""

    async def main() -> list[MainMessage]:
        durable = Durable()
        stores = ground.services(durable)
        opened = await ground.opened(stores)
        await opened.add(1, ground.job(1))
        stored, _ = await ground.taken_over(stores, 2)
        await end_job(stores, 2, stored)
        shared = context(stores, stored, 2)
        await shared.plans.claim(2)
        await shared.plans.add(2, ground.job(2))
        first, second = shared.plans.entries.values()
        assert first.result
        source = durable.storage.files[first.result.source.path]
        same = replace_struct(second, result=first.result)
        await shared.plans.update(2, second.job_id, lambda _: same)
        dirty = stores.job_results.dirty_path(second.job_id)
        durable.storage.publish(dirty, source)
        for path in (first.result.source.path, stores.job_results.dirty_path(first.job_id)):
            durable.storage.delete(path)
        jobs = ApplicationJobs(
            shared,
            unreached_grace_s=5.0,
            lost_at=None,
            spawn=asyncio.ensure_future,
            enqueue=lambda _: None,
        )
        ends: tuple[LocalLink[MainMessage], LocalLink[MainMessage]] = link_pair(
            Incarnation("main"), Incarnation("jm")
        )
        desk = MainDesk(
            ends[1],
            JobRequests(jobs),
            Assignment(ground.APPLICATION),
            asyncio.ensure_future,
            nothing_recorded,
        )
        serving = asyncio.ensure_future(desk.serve())
        answers = []
        for number, entry in enumerate((first, second), start=1):
            ends[0].send(messages.AwaitJob(request=number, job_id=entry.job_id))
            envelope = await ends[0].receive()
            assert envelope is not None
            answers.append(envelope.message)
        serving.cancel()
        return answers

    gone, there = run_virtual(main())

    assert isinstance(gone, messages.Refusal)
    assert "result-unavailable" == gone.code
    assert "_DIRTY.json: the result file was removed or altered" in gone.message
    assert isinstance(there, messages.JobDone)


class Slow:
    """Jobs that end when it is time; see `main_desk.Jobs`."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.delivered: list[JobId] = []

    async def outcome(self, job_id: JobId) -> Outcome:
        """See `Jobs.outcome`."""
        await self.ended.wait()
        return Outcome(
            job_id=job_id,
            job_name="job",
            application_id=ground.APPLICATION,
            run_id=RunId("run"),
            status=JobStatus.FINISHED,
            attempt=1,
            start_time=0.0,
            end_time=1.0,
        )

    def kept(self, job_id: JobId) -> tuple[str, str]:
        """See `Jobs.kept`."""
        return "", ""

    def arguments(self, job_id: JobId) -> dict[str, str]:
        """See `Jobs.arguments`."""
        return {}

    def result_delivered(self, job_id: JobId) -> None:
        """See `Jobs.result_delivered`."""
        self.delivered.append(job_id)


@pytest.mark.parametrize("lives", [True, False])
def test_a_result_was_delivered_only_to_a_main_that_lives(*, lives: bool) -> None:
    async def main() -> list[JobId]:
        jobs, spawned = Slow(), list[asyncio.Task[None]]()
        ends: tuple[LocalLink[MainMessage], LocalLink[MainMessage]] = link_pair(
            Incarnation("main"), Incarnation("leader")
        )
        mine, theirs = ends
        desk = MainDesk(
            theirs,
            cast("Jobs", jobs),
            Assignment(ground.APPLICATION),
            lambda work: spawned.append(asyncio.ensure_future(work)),
            nothing_recorded,
        )
        serving = asyncio.ensure_future(desk.serve())
        mine.send(messages.AwaitJob(request=1, job_id=JOB))
        await asyncio.sleep(1)
        if not lives:
            mine.close()
            await serving
        jobs.ended.set()
        await asyncio.gather(*spawned)
        mine.close()
        await serving
        return jobs.delivered

    assert ([JOB] if lives else []) == run_virtual(main())


ASKED: list[MainMessage] = [
    messages.Submit(
        request=1,
        job_id=job_id(ground.APPLICATION, "job 2", 0),
        name="job 2",
        occurrence=0,
        plan=Pointer(path="plans/2", digest="sha256:0", size=1),
    ),
    messages.CancelJob(request=1, job_id=ground.job(1).job_id),
]


@pytest.mark.parametrize("asked", ASKED, ids=["submit", "cancel"])
@pytest.mark.parametrize("left", [None, b"{"], ids=["gone", "damaged"])
def test_damage_is_no_answer_to_main(asked: MainMessage, left: bytes | None) -> None:
    """It would end `main`, and with it a run that a person could have put right."""

    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        await (await ground.opened(stores)).add(1, ground.job(1))
        stored, _ = await ground.taken_over(stores, 2)
        shared = context(stores, stored, 2)
        await shared.plans.claim(2)
        jobs = ApplicationJobs(
            shared,
            unreached_grace_s=5.0,
            lost_at=None,
            spawn=asyncio.ensure_future,
            enqueue=lambda _: None,
        )
        (key,) = stored.body.segments
        entry = await durable.register.load(key)
        assert entry is not None
        await durable.register.swap(key, left, entry.version)
        ends: tuple[LocalLink[MainMessage], LocalLink[MainMessage]] = link_pair(
            Incarnation("main"), Incarnation("jm")
        )

        async with asyncio.TaskGroup() as group:
            desk = MainDesk(
                ends[1],
                JobRequests(jobs),
                Assignment(ground.APPLICATION),
                group.create_task,
                nothing_recorded,
            )
            group.create_task(desk.serve())
            ends[0].send(asked)
            answer = await ends[0].receive()
            raise AssertionError(f"main is told: {answer}")

    with pytest.raises(ExceptionGroup) as raised:
        run_virtual(main())

    (error,) = raised.value.exceptions
    assert isinstance(error, LostDataError if left is None else CorruptDataError)
