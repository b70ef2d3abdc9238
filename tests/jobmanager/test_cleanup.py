"""The end of an application, over the real stores: stopped at every write, it ends alike.

The fault comes at each call to register and storage in turn: the call fails, is applied without an
answer, or is the last one of its process. Then the next leader takes over.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field
from typing import cast

import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.support.faulty_register import Accepted, Call, Died, Durable, Fault, Faults
from tests.support.virtual_time import WALL_AT_START, run_virtual, virtual_clock
from understudy.config import Configuration
from understudy.core import checkpoints
from understudy.errors import LeadershipLost
from understudy.ha import layout
from understudy.ha.application_store import StoredApplication
from understudy.ha.checkpoint_store import CheckpointStore
from understudy.ha.election import Leadership
from understudy.ha.execution_plan_store import ExecutionPlanStore
from understudy.ha.format import digest
from understudy.ha.result_store import application_results
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.cleanup import Cleanup, CleanupSettings
from understudy.jobmanager.dispatcher import Binding, Dispatcher
from understudy.jobmanager.effort import CleanupStrategy
from understudy.jobmanager.main_process import MainProcesses
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.jobmanager.retention import read_tombstone
from understudy.jobmanager.surroundings import RunEnd, Surroundings
from understudy.model import (
    ApplicationDocument,
    ApplicationResult,
    ApplicationResultEntry,
    ApplicationStatus,
    Checkpoint,
    CheckpointKind,
    Incarnation,
    JobEntry,
    JobId,
    JobResultEntry,
    LeaderRecord,
    Pointer,
    RegistryBody,
    Segment,
)
from understudy.process.liveness_lock import Locks
from understudy.process.reporter import Silent

JOBS = [ground.job(1), ground.job(2, attempt=3)]
NOW = WALL_AT_START
STRATEGY = CleanupStrategy("exponential-delay", 1000, 1.0, 60.0)
KEEP = {"application-result-store.delete-on-commit": "false"}


class NoLocks:
    """There are no liveness locks; only the sweep is called here."""

    async def sweep(self, keep: frozenset[Incarnation]) -> None:
        """Do nothing."""


async def begin(durable: Durable, jobs: int) -> None:
    """Leave what a leader of term 1 leaves: jobs whose attempts have staged their outcomes."""
    stores = ground.services(durable)
    stored = await ground.submitted(stores)
    plans = stores.plans(stored)
    directory = stored.body.directory
    for entry in JOBS[:jobs]:
        plan = await plans.put_plan(directory, entry.job_id, b"plan of " + entry.name.encode())
        await plans.add(1, replace(entry, plan=plan))
        await stores.storage.publish(ground.staged(directory, entry), ground.outcome(entry))
        await keep_a_state(stores, plans, directory, entry)
    await stores.storage.publish(f"{ground.CLUSTER}/applications/{directory}/blobs/b", b"blob")


async def keep_a_state(
    stores: HighAvailabilityServices, plans: ExecutionPlanStore, directory: str, entry: JobEntry
) -> None:
    """Do what a job that has saved a state has done."""
    below = layout.checkpoints_path(ground.CLUSTER, directory, entry.job_id)
    for name in ("1-1", "1-2"):  # The one before the last had not been deleted yet.
        await stores.storage.publish(f"{below}/state/{name}.json", b"state")
    store = CheckpointStore(stores.register, plans, ground.APPLICATION, entry.job_id)
    taken = Checkpoint(kind=CheckpointKind.STATE, name="", attempt=1, location=f"{below}/state/1-2")
    await store.update(1, lambda body: checkpoints.record(body, [taken], 1)[0])


async def end_jobs(
    stores: HighAvailabilityServices, term: int, stored: StoredApplication, *, keep: bool
) -> None:
    """Commit what has ended, as JobMaster and Application do, and clean up after each job."""
    plans = stores.plans(stored)
    await plans.claim(term)
    cleanup = Cleanup(stored, plans, stores, term, CleanupSettings(STRATEGY, keep))
    for job_id, entry in list(plans.entries.items()):
        if entry.result is None:
            result = await commit_job(stores, term, stored, plans, entry)
            await stores.job_results.publish_dirty(job_id, result.source)
        await cleanup.clean_job(job_id)
    await commit_application(stores, term, stored)


async def commit_job(
    stores: HighAvailabilityServices,
    term: int,
    stored: StoredApplication,
    plans: ExecutionPlanStore,
    entry: JobEntry,
) -> JobResultEntry:
    """Commit what an attempt has staged, as JobMaster does; return it."""
    path = ground.staged(stored.body.directory, entry)
    result = ground.with_result(entry, path, await stores.storage.read(path)).result
    assert result is not None
    await plans.update(term, entry.job_id, functools.partial(replace, result=result))
    return result


async def commit_application(
    stores: HighAvailabilityServices, term: int, stored: StoredApplication
) -> None:
    body, finished = stored.body, ApplicationStatus.FINISHED
    data = application_results.dump(
        ApplicationResult(
            application_id=body.application_id,
            application_name=body.name,
            run_id=body.run_id,
            status=finished,
            start_time=NOW - 100,
            end_time=NOW + term,
        ),
        pretty=True,
    )
    path = f"{ground.CLUSTER}/applications/{body.directory}/result.json"
    await stores.storage.publish(path, data)
    source = Pointer(path=path, digest=digest(data), size=len(data))
    entry = ApplicationResultEntry(status=finished, source=source, end_time=NOW + term)
    await stored.update(term, lambda body: replace(body, status=finished, result=entry))
    await stores.application_results.publish_dirty(body.application_id, source)


async def lead(durable: Durable, faults: Faults, term: int, *, keep: bool = False) -> RunEnd:
    """Lead twice: end what runs in one term, and let the real Dispatcher do the rest in the next.

    It takes no term that the registry has seen.
    """
    stores = ground.services(durable, faults)
    first, term = 2 * term, 2 * term + 1
    registry = await stores.registry.claim(first, ephemeral=False)
    for stored in (await stores.applications.recover(first, registry)).sound:
        if stored.body.result is None:
            await end_jobs(stores, first, stored, keep=keep)
    vacant = LeaderRecord(holder=Incarnation(""), term=term - 1, session="")
    resources = ResourceManager(term, 40.0, cast("Locks", NoLocks()), virtual_clock(), lambda: None)
    around = Surroundings(
        me=Incarnation("me"),
        name="jobmanager",
        rest="",
        configuration=Configuration(KEEP if keep else {}),
        services=stores,
        mains=cast("MainProcesses", None),
        locks=cast("Locks", NoLocks()),
        reporter=Silent(),
        clock=virtual_clock(),
        chance=random.Random(0),
    )
    binding = Binding(wanted=ground.RUN, ephemeral=False, submission=None)
    leadership = Leadership(term, "session", vacant, None, "it died")

    async def publish() -> None:
        """Nobody asks for the address."""

    ended = await Dispatcher(around, binding, leadership, resources).run(publish)
    assert ended is not None
    return ended


async def lead_until_ended(durable: Durable, *processes: Faults, keep: bool = False) -> int:
    """Lead, with the faults of each process in turn; one that lost its leadership goes on."""
    left = [*processes, Faults()]
    for term in range(2, 12):
        try:
            ended = await lead(durable, left[0], term, keep=keep)
        except Died:
            left.pop(0)
        except (OSError, TimeoutError, LeadershipLost):
            continue
        else:
            assert (ground.RUN, ApplicationStatus.FINISHED) == (ended.run_id, ended.status)
            return term
    raise AssertionError("ten leaders were not enough")


def calls(jobs: int, *, keep: bool) -> list[Call]:
    """Return the calls of an end without faults."""
    durable, faults = Durable(), Faults()

    async def main() -> None:
        await begin(durable, jobs)
        assert 2 == await lead_until_ended(durable, faults, keep=keep)

    run_virtual(main())
    return faults.calls


def remains(tombstone: str, *, jobs: int, keep: bool) -> tuple[list[str], list[str]]:
    """Return what is to remain: of the register, and of the storage; the one file with a name."""
    cluster = ground.CLUSTER
    left = [f"{cluster}/", f"{cluster}/tombstones/", tombstone]
    if keep:
        for store in ("application-result-store", "job-result-store"):
            if store == "application-result-store" or jobs:
                left += [f"{store}/", f"{store}/{cluster}/"]
        left.append(f"application-result-store/{cluster}/{ground.APPLICATION}.json")
        left += [f"job-result-store/{cluster}/{entry.job_id}.json" for entry in JOBS[:jobs]]
    return ["registry"], sorted(left)


async def check_end(durable: Durable, *, jobs: int, keep: bool, case: str) -> None:
    """Nothing is left but what may be, and no result is lost."""
    stores = ground.services(durable)
    registry = await stores.registry.read()

    assert registry is not None
    assert {} == registry.applications, case
    assert [ground.RUN] == list(registry.tombstones), case

    tombstone = registry.tombstones[ground.RUN]
    expected_keys, expected_files = remains(tombstone.file.path, jobs=jobs, keep=keep)

    assert expected_keys == await stores.register.keys(""), case
    assert expected_files == durable.storage.everything(), case

    file = await read_tombstone(stores, tombstone)

    assert ApplicationStatus.FINISHED is file.result.status, case
    assert [(entry.job_id, entry.name, b'{"rows":336776}', "") for entry in JOBS[:jobs]] == [
        (job.job_id, job.name, bytes(job.value), job.note) for job in file.jobs
    ], case


@dataclass
class Reader:
    """Reads the history of accepted writes as it grew, and holds it to the invariants."""

    registry: RegistryBody | None = None
    terms: dict[str, int] = field(default_factory=dict)
    applications: dict[str, ApplicationDocument] = field(default_factory=dict)
    jobs: dict[JobId, JobResultEntry] = field(default_factory=dict)
    segments: dict[str, Segment] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def read(self, accepted: Accepted) -> None:
        key, value = accepted.subject, accepted.value
        if accepted.verb == "publish":
            assert value is not None
            self.files[key] = value
        elif accepted.verb == "delete":
            self.files.pop(key, None)
        elif accepted.verb == "delete-tree":
            self.files = {path: data for path, data in self.files.items() if key not in path}
        elif accepted.verb == "remove":
            self._removed(key)
        elif accepted.verb in {"create", "swap"}:
            assert value is not None
            self._written(key, *ground.decoded(key, value))

    def _removed(self, key: str) -> None:
        assert self.registry is not None
        linked = {link.document for link in self.registry.applications.values()}
        for document in list(linked):
            linked |= set(self.applications[document].segments)
        assert key not in linked, "a document is unlinked before it is deleted"

    def _written(self, key: str, term: int, body: ground.Body) -> None:
        assert self.terms.get(key, 0) <= term, "terms never fall within a document"
        self.terms[key] = term
        if isinstance(body, RegistryBody):
            self._registry_written(body)
        elif isinstance(body, ApplicationDocument):
            before = self.applications.get(key)
            self.applications[key] = body
            self._application_written(before, body)
        elif isinstance(body, Segment):
            self.segments[key] = body
            self._jobs_written(body)

    def _registry_written(self, body: RegistryBody) -> None:
        old = self.registry.tombstones if self.registry else {}
        self.registry = body
        for run, stone in body.tombstones.items():
            if run not in old:
                self._exists(stone.file)

    def _application_written(
        self, before: ApplicationDocument | None, body: ApplicationDocument
    ) -> None:
        self._exists(body.record if before is None else None)
        if body.result is None:
            return
        dirty_before = before is not None and before.result is not None
        self._exists(None if dirty_before else body.result.source)
        known = {job for key in body.segments for job in self.segments[key].jobs}
        assert known == set(self.jobs), "a dirty application result needs dirty job results"
        if dirty_before and before and before.result:
            assert before.result.source == body.result.source, "a result is never replaced"
        if body.result.clean:
            assert all(result.clean for result in self.jobs.values()), "the jobs come first"

    def _jobs_written(self, body: Segment) -> None:
        for job_id, entry in body.jobs.items():
            known = self.jobs.get(job_id)
            if entry.result is None:
                assert known is None, "a result is never lost"
                continue
            self._exists(None if known else entry.result.source)
            if known:
                assert known.source == entry.result.source, "a result is never replaced"
            if entry.result.clean:
                assert any(app.result for app in self.applications.values()), (
                    "a clean job result needs a dirty application result"
                )
            self.jobs[job_id] = entry.result

    def _exists(self, pointer: Pointer | None) -> None:
        if pointer:
            data = self.files.get(pointer.path)
            assert data is not None, f"{pointer.path}: pointed to before it was written"
            assert pointer.digest == digest(data)


def check_history(durable: Durable) -> None:
    reader = Reader()
    for accepted in durable.history:
        reader.read(accepted)


def check(plan: dict[int, Fault], *, jobs: int, keep: bool, case: str) -> int:
    """End with these faults, and check the end; return the last term."""
    durable = Durable()

    async def main() -> int:
        await begin(durable, jobs)
        term = await lead_until_ended(durable, Faults(plan), keep=keep)
        await check_end(durable, jobs=jobs, keep=keep, case=case)
        return term

    try:
        term = run_virtual(main())
        check_history(durable)
    except Exception as error:
        error.add_note(case)
        raise
    return term


@pytest.mark.parametrize("keep", [False, True], ids=["deleted", "kept"])
@pytest.mark.parametrize("jobs", [0, 2])
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
def test_a_fault_at_any_call_of_the_end_changes_nothing_about_it(
    fault: Fault, jobs: int, keep: bool
) -> None:
    for call in calls(jobs, keep=keep):
        if call.writes or fault is Fault.FAILS:
            check({call.number: fault}, jobs=jobs, keep=keep, case=f"{fault.value}: {call}")


def test_deaths_of_several_leaders_in_a_row_change_nothing_about_the_end() -> None:
    chance = random.Random(20260103)
    writes = [call.number for call in calls(2, keep=False) if call.writes]
    for number in range(120):
        deaths = [
            Faults({chance.choice(writes): chance.choice([Fault.DIES_BEFORE, Fault.DIES_AFTER])})
            for _ in range(3)
        ]
        durable = Durable()

        async def main(durable: Durable, *deaths: Faults) -> None:
            await begin(durable, 2)
            await lead_until_ended(durable, *deaths)
            await check_end(durable, jobs=2, keep=False, case="several deaths")

        try:
            run_virtual(main(durable, *deaths))
            check_history(durable)
        except Exception as error:
            error.add_note(f"world {number}: {[death.plan for death in deaths]}")
            raise
