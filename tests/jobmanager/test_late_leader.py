"""A leader that was paused, deposed, and goes on: what it still does to storage harms nobody.

The register refuses it by its term; storage cannot. So the leader is paused before each call it
makes, while the next one takes over, and all that belongs to the next one must be there after.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import ParamSpec, TypeVar, cast

import pytest

from tests.ha import ground
from tests.jobmanager.test_cleanup import (
    JOBS,
    STRATEGY,
    NoLocks,
    begin,
    commit_application,
    commit_job,
)
from tests.support.faulty_register import Durable
from tests.support.memory_storage import MemoryStorage
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.config import Configuration
from understudy.core import job
from understudy.core.failing import Failed
from understudy.core.restart import Strategy
from understudy.errors import LeadershipLost, NotFoundError
from understudy.ha import layout
from understudy.ha.application_store import StoredApplication
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.blobs import BlobStore
from understudy.ha.election import Leadership
from understudy.ha.format import digest
from understudy.ha.register import Entry
from understudy.ha.result_store import application_results, read_outcome
from understudy.ha.services import HighAvailabilityServices
from understudy.ha.storage import InlineStorage
from understudy.jobmanager.application import Application, ApplicationSettings
from understudy.jobmanager.checkpoint_coordinator import CheckpointSettings
from understudy.jobmanager.checkpoint_news import CheckpointNews
from understudy.jobmanager.cleanup import Cleanup, CleanupSettings
from understudy.jobmanager.dispatcher import Binding, Dispatcher
from understudy.jobmanager.job_master import JobMaster, JobMasterContext
from understudy.jobmanager.main_process import MainProcesses
from understudy.jobmanager.main_queue import MainQueue
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.jobmanager.retention import RESULT_LOST, forget_expired, read_tombstone, tombstones
from understudy.jobmanager.submission import Submission
from understudy.jobmanager.surroundings import RunEnd, Surroundings
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    ApplicationResult,
    ApplicationStatus,
    Failure,
    Incarnation,
    JobStatus,
    LeaderRecord,
    Pointer,
    RegistryBody,
    RunId,
    Tombstone,
    TombstoneFile,
)
from understudy.process.environments import Ground
from understudy.process.liveness_lock import Locks
from understudy.process.reporter import Silent

P = ParamSpec("P")
R = TypeVar("R")
Meanwhile = Callable[[], Awaitable[None]]


class Pause:
    """Comes before one of the calls of a process; others act meanwhile."""

    def __init__(self, before: int, meanwhile: Meanwhile) -> None:
        self.calls = 0
        self.armed = True
        self._before = before
        self._meanwhile = meanwhile

    async def here(self) -> None:
        """Count a call."""
        if not self.armed:
            return
        self.calls += 1
        if self.calls == self._before:
            await self._meanwhile()

    @property
    def came(self) -> bool:
        """Say whether there were so many calls."""
        return self.calls >= self._before


class Deaf:
    """Hears of a job's progress, and does nothing."""

    def job_changed(self, master: JobMaster, before: job.JobState) -> None:
        """See `Supervisor.job_changed`."""

    def no_slot(self, master: JobMaster) -> None:
        """See `Supervisor.no_slot`."""

    def attempt_failed(self, master: JobMaster, end: Failed, failure: Failure) -> None:
        """See `Supervisor.attempt_failed`."""

    def audience(self, master: JobMaster) -> CheckpointNews:
        """See `Supervisor.audience`."""
        return CheckpointNews(Silent(), master.job_id, master.name, {})


class PausedRegister:
    """A register as a process sees it that is paused once."""

    def __init__(self, register: EmbeddedRegister, pause: Pause) -> None:
        self._register = register
        self._pause = pause

    async def load(self, key: str) -> Entry | None:
        """See `Register.load`."""
        await self._pause.here()
        return await self._register.load(key)

    async def keys(self, prefix: str) -> list[str]:
        """See `Register.keys`."""
        await self._pause.here()
        return await self._register.keys(prefix)

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """See `Register.swap`."""
        await self._pause.here()
        return await self._register.swap(key, value, expected)

    def changes(self, key: str) -> AsyncIterator[None]:
        """See `Register.changes`."""
        return self._register.changes(key)


class PausedStorage(InlineStorage):
    """A storage as a process sees it that is paused once."""

    def __init__(self, storage: MemoryStorage, pause: Pause) -> None:
        super().__init__(storage)
        self._pause = pause

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Storage.run`."""
        await self._pause.here()
        return function(*args, **kwargs)


def paused(durable: Durable, pause: Pause) -> HighAvailabilityServices:
    """Open the stores as a process that is paused before one of its calls."""
    return HighAvailabilityServices(
        PausedRegister(durable.register, pause),
        PausedStorage(durable.storage, pause),
        ground.CLUSTER,
        ground.LOCATIONS,
    )


async def ended(durable: Durable) -> None:
    """Leave what a leader of term 1 leaves when everything has ended and is not cleaned up."""
    await begin(durable, len(JOBS))
    stores = ground.services(durable)
    stored, plans = await ground.taken_over(stores, 1)
    for job_id, entry in list(plans.entries.items()):
        committed = await commit_job(stores, 1, stored, plans, entry)
        await stores.job_results.publish_dirty(job_id, committed.source)
    await commit_application(stores, 1, stored)


def resources(term: int) -> ResourceManager:
    """Return a ResourceManager without TaskManagers."""
    return ResourceManager(term, 40.0, cast("Locks", NoLocks()), virtual_clock(), lambda: None)


def dispatcher(
    stores: HighAvailabilityServices, term: int, submission: Submission | None = None
) -> Dispatcher:
    """Return the Dispatcher of a term."""
    around = Surroundings(
        me=Incarnation("me"),
        name="jobmanager",
        rest="",
        configuration=Configuration({}),
        services=stores,
        mains=cast("MainProcesses", None),
        locks=cast("Locks", NoLocks()),
        reporter=Silent(),
        clock=virtual_clock(),
        chance=random.Random(0),
    )
    vacant = LeaderRecord(holder=Incarnation(""), term=term - 1, session="")
    leadership = Leadership(term, "session", vacant, None, "it died")
    binding = Binding(ground.RUN if submission else None, ephemeral=False, submission=submission)
    return Dispatcher(around, binding, leadership, resources(term))


async def nobody() -> None:
    """Publish the address to nobody."""


async def lead(
    stores: HighAvailabilityServices, term: int, submission: Submission | None = None
) -> None:
    """Lead until the address is published, or the term is lost; ``main`` is never executed."""
    serves = asyncio.Event()

    async def publish() -> None:
        serves.set()

    leading = asyncio.ensure_future(dispatcher(stores, term, submission).run(publish))
    serving = asyncio.ensure_future(serves.wait())
    await asyncio.wait({leading, serving}, return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)


async def bury(stores: HighAvailabilityServices, term: int, run: str) -> Tombstone:
    """Leave what remains of a run that has ended."""
    application, status = ApplicationId(f"{run:0>32}"), ApplicationStatus.FINISHED
    result = ApplicationResult(
        application_id=application,
        application_name="flights",
        run_id=RunId(run),
        status=status,
        start_time=1.0,
        end_time=2.0,
    )
    data = tombstones.dump(TombstoneFile(result=result))
    path = layout.tombstone_path(ground.CLUSTER, run, term)
    await stores.storage.publish(path, data)
    stone = Tombstone(
        application_id=application,
        run_id=RunId(run),
        name="flights",
        status=status,
        started_at=1.0,
        ended_at=2e9,
        file=Pointer(path=path, digest=digest(data), size=len(data)),
    )
    await stores.registry.bury(term, application, stone)
    return stone


def test_a_late_leader_sweeps_nothing_that_belongs_to_a_later_one() -> None:
    async def main(before: int) -> bool:
        durable = Durable()
        old = ground.services(durable)
        await old.registry.claim(1, ephemeral=False)
        await old.storage.publish(f"{ground.CLUSTER}/applications/never-real/blobs/b", b"left")
        theirs: dict[str, bytes] = {}

        async def take_over() -> None:
            stores = ground.services(durable)
            await stores.registry.claim(3, ephemeral=False)
            directory = stores.applications.new_directory()
            BlobStore(stores.storage.blocking, ground.CLUSTER, directory).put(b"main()")
            await stores.applications.put(3, ground.record(), directory)
            await bury(stores, 3, "sunday")
            theirs.update(durable.storage.files)
            theirs.pop(f"{ground.CLUSTER}/applications/never-real/blobs/b", None)

        pause = Pause(before, take_over)
        await lead(paused(durable, pause), 2)
        stores = ground.services(durable)
        registry = await stores.registry.claim(4, ephemeral=False)

        assert theirs.items() <= durable.storage.files.items(), f"paused before call {before}"
        if pause.came:
            (stored,) = (await stores.applications.recover(4, registry)).sound
            await stores.applications.record(stored.body)
            await read_tombstone(stores, registry.tombstones[RunId("sunday")])
        return pause.came

    came = [run_virtual(main(before)) for before in range(1, 30)]

    assert came.index(False) > 10, "each call of the sweep was paused at"


async def end_of_run(
    stores: HighAvailabilityServices, term: int, stored: StoredApplication
) -> None:
    """Clean up after an application whose jobs have ended, as its leader does."""
    plans = stores.plans(stored)
    await plans.claim(term)
    await Cleanup(stored, plans, stores, term, CleanupSettings(STRATEGY)).finish()


@pytest.mark.parametrize("altered", [False, True], ids=["sound results", "an altered result"])
def test_a_late_leader_writes_over_no_tombstones_file_of_a_later_one(*, altered: bool) -> None:
    async def main(before: int) -> bool:
        durable = Durable()
        await ended(durable)

        async def take_over() -> None:
            dirty = f"{ground.LOCATIONS.job_results}/{JOBS[0].job_id}_DIRTY.json"
            if altered and dirty in durable.storage.files:
                durable.storage.publish(dirty, b"{}")
            stores = ground.services(durable)
            registry = await stores.registry.claim(3, ephemeral=False)
            for found in (await stores.applications.recover(3, registry)).sound:
                await end_of_run(stores, 3, found)

        pause = Pause(before, take_over)
        late = paused(durable, pause)
        pause.armed = False
        registry = await late.registry.claim(2, ephemeral=False)
        (stored,) = (await late.applications.recover(2, registry)).sound
        pause.armed = True
        with contextlib.suppress(LeadershipLost, NotFoundError):
            await end_of_run(late, 2, stored)
        await lead(ground.services(durable), 4)
        stores = ground.services(durable)
        tombstone = (await stores.registry.claim(5, ephemeral=False)).tombstones[ground.RUN]
        file = await read_tombstone(stores, tombstone)
        lost = [job.name for job in file.jobs if job.note.startswith(RESULT_LOST)]

        assert lost in ([], [JOBS[0].name] if altered else [])
        assert [tombstone.file.path] == list(durable.storage.files), f"paused before call {before}"
        return pause.came

    came = [run_virtual(main(before)) for before in range(1, 100)]

    assert came.index(False) > 20, "each call of the end was paused at"


def test_a_late_leader_takes_what_a_later_one_has_cleaned_up_for_no_damage() -> None:
    """It has lost its term, and neither fails nor calls for a person."""

    async def main(before: int) -> bool:
        durable = Durable()
        await ended(durable)

        async def take_over() -> None:
            await dispatcher(ground.services(durable), 3).run(nobody)

        pause = Pause(before, take_over)
        late = dispatcher(paused(durable, pause), 2)
        try:
            run = await late.run(nobody)
        except LeadershipLost:
            assert pause.came
        else:
            assert run == RunEnd(ground.RUN, ApplicationStatus.FINISHED)

        assert not late.attention, f"paused before call {before}"
        return pause.came

    came = [run_virtual(main(before)) for before in range(1, 100)]

    assert came.index(False) > 30, "each call of the term was paused at"


def test_a_late_leader_removes_no_tombstones_file_of_a_later_run_of_the_same_id() -> None:
    async def main(before: int) -> bool:
        durable = Durable()
        stores = ground.services(durable)
        await stores.registry.claim(1, ephemeral=False)
        old = await bury(stores, 1, "sunday")

        async def take_over() -> None:
            stores = ground.services(durable)
            registry = await stores.registry.claim(3, ephemeral=False)
            await forget_expired(stores, 3, registry, 10.0, old.ended_at + 11)
            await bury(stores, 3, "sunday")

        pause = Pause(before, take_over)
        late = paused(durable, pause)
        with contextlib.suppress(LeadershipLost):
            registry = await late.registry.claim(2, ephemeral=False)
            await forget_expired(late, 2, registry, 10.0, old.ended_at + 11)
        registry = await stores.registry.claim(4, ephemeral=False)
        if pause.came:
            await read_tombstone(stores, registry.tombstones[RunId("sunday")])
        return pause.came

    came = [run_virtual(main(before)) for before in range(1, 12)]

    assert came.index(False) > 3, "each call was paused at"


def test_two_leaders_that_submit_the_same_run_make_one_application_of_it() -> None:
    async def main(before: int) -> bool:
        durable = Durable()
        await ground.services(durable).registry.claim(1, ephemeral=False)

        async def take_over() -> None:
            stores = ground.services(durable)
            registry = await stores.registry.claim(3, ephemeral=False)
            if not registry.applications:
                directory = stores.applications.new_directory()
                await stores.applications.put(3, ground.record(), directory)

        pause = Pause(before, take_over)
        submission = Submission("flights", "app.py", "/app.py", (), "", ())
        await lead(paused(durable, pause), 2, submission)
        await lead(ground.services(durable), 4)
        stores = ground.services(durable)
        registry = await stores.registry.claim(5, ephemeral=False)
        (stored,) = (await stores.applications.recover(5, registry)).sound

        assert [ground.RUN] == [link.run_id for link in registry.applications.values()]
        assert sorted(["registry", stored.key]) == await stores.register.keys("")
        assert ground.RUN == (await stores.applications.record(stored.body)).run_id
        return pause.came

    came = [run_virtual(main(before)) for before in range(1, 45)]

    assert came.index(False) > 15, "each call up to the execution was paused at"


def context(
    stores: HighAvailabilityServices, stored: StoredApplication, term: int
) -> JobMasterContext:
    """Return what a leader's JobMasters share."""
    return JobMasterContext(
        term=term,
        application_id=stored.body.application_id,
        run_id=stored.body.run_id,
        cluster=ground.CLUSTER,
        directory=stored.body.directory,
        deployment=1,
        result_size_max=1000,
        strategy=Strategy.of(Configuration({})),
        plans=stores.plans(stored),
        results=stores.job_results,
        storage=stores.storage,
        resources=resources(term),
        clock=virtual_clock(),
        chance=random.Random(term),
        register=stores.register,
        checkpoints=CheckpointSettings(),
        record=ground.record(),
        reporter=Silent(),
    )


async def _no_code() -> Ground:
    return Ground()


async def end_application(
    stores: HighAvailabilityServices, term: int, registry: RegistryBody
) -> ApplicationDocument:
    """Commit how the application has ended, as its leader does, unless it has ended already."""
    (stored,) = (await stores.applications.recover(term, registry)).sound
    application = Application(
        stored,
        context(stores, stored, term),
        ApplicationSettings(Strategy.of(Configuration({})), None, 5.0, (), _no_code),
        stores,
        MainQueue(cast("MainProcesses", None), 1),
        None,
    )
    if stored.body.result is None:
        status = ApplicationStatus.FAILED if term == 2 else ApplicationStatus.CANCELED
        await application._commit(status, Failure(type="Told", message=status.value))
    return stored.body


def test_a_late_leader_alters_no_result_of_an_application_that_a_later_one_committed() -> None:
    async def main(before: int) -> str:
        durable = Durable()
        await ground.submitted(ground.services(durable))

        async def take_over() -> None:
            stores = ground.services(durable)
            registry = await stores.registry.claim(3, ephemeral=False)
            await asyncio.sleep(2)
            await end_application(stores, 3, registry)
            await stores.storage.delete(stores.application_results.dirty_path(ground.APPLICATION))

        pause = Pause(before, take_over)
        late = paused(durable, pause)
        pause.armed = False
        registry = await late.registry.claim(2, ephemeral=False)
        pause.armed = True
        with contextlib.suppress(LeadershipLost):
            await end_application(late, 2, registry)
        stores = ground.services(durable)
        registry = await stores.registry.claim(4, ephemeral=False)
        result = (await end_application(stores, 4, registry)).result
        assert result is not None
        data = await stores.application_results.read(ground.APPLICATION, result.source)
        failure = application_results.load(data, "the result").failure

        assert failure is not None
        assert result.status.value == failure.message
        return failure.message

    ends = [run_virtual(main(before)) for before in range(1, 7)]

    assert ["CANCELED"] * 4 + ["FAILED"] * 2 == ends


async def end_job(stores: HighAvailabilityServices, term: int, stored: StoredApplication) -> None:
    """Commit that the job was lost for good, as its leader does."""
    shared = context(stores, stored, term)
    await shared.plans.claim(term)
    (entry,) = shared.plans.entries.values()
    if entry.result:
        return
    state = job.JobState(entry.job_id, job.Phase.RUNNING, attempt=1)
    master = JobMaster(state, entry, shared, Deaf())
    recording = asyncio.create_task(master.checkpoints.run())
    await master._record(job.RecordResult(JobStatus.FAILED, None, f"by term {term}"))
    await recording


def test_a_late_leader_alters_no_result_of_a_job_that_a_later_one_committed() -> None:
    async def main(before: int) -> str:
        durable = Durable()
        plans = await ground.opened(ground.services(durable))
        await plans.add(1, ground.job(1))

        async def take_over() -> None:
            stores = ground.services(durable)
            await asyncio.sleep(2)
            stored, _ = await ground.taken_over(stores, 3)
            await end_job(stores, 3, stored)
            await stores.storage.delete(stores.job_results.dirty_path(ground.job(1).job_id))

        pause = Pause(before, take_over)
        late = paused(durable, pause)
        pause.armed = False
        stored, _ = await ground.taken_over(late, 2)
        pause.armed = True
        with contextlib.suppress(LeadershipLost):
            await end_job(late, 2, stored)
        stores = ground.services(durable)
        _, found = await ground.taken_over(stores, 4)
        (entry,) = found.entries.values()
        assert entry.result is not None
        outcome = await read_outcome(stores.job_results, entry.job_id, entry.result)

        assert outcome.failure is not None
        assert entry.result.reason == outcome.failure.message
        return entry.result.reason

    ends = [run_virtual(main(before)) for before in range(1, 7)]

    assert {"by term 2", "by term 3"} == set(ends)
    assert sorted(ends, reverse=True) == ends, "until it has committed, and never after"
