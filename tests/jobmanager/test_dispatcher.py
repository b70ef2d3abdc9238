"""Dispatcher on a grant: claims, recovers, and only then is found; what it cannot do, it names."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import cast

import pytest
from msgspec.structs import replace

from tests.ha import ground
from tests.jobmanager.test_cleanup import NoLocks
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual, virtual_clock
from understudy.config import Configuration
from understudy.errors import LeadershipLost, SubmissionError
from understudy.ha import layout
from understudy.ha.blobs import BlobStore
from understudy.ha.election import Leadership
from understudy.ha.format import digest
from understudy.ha.services import HighAvailabilityServices
from understudy.jobmanager.dispatcher import Binding, Dispatcher
from understudy.jobmanager.job_manager import until_there_is_a_run
from understudy.jobmanager.main_process import MainProcesses
from understudy.jobmanager.resource_manager import ResourceManager
from understudy.jobmanager.retention import tombstones
from understudy.jobmanager.submission import Submission
from understudy.jobmanager.surroundings import RunEnd, Surroundings
from understudy.model import (
    ApplicationResult,
    ApplicationStatus,
    Artifact,
    Incarnation,
    JobId,
    JobRecord,
    JobStatus,
    LeaderRecord,
    Pointer,
    RunId,
    Tombstone,
    TombstoneFile,
)
from understudy.process.environments import ONE_INTERPRETER, Interpreters
from understudy.process.liveness_lock import Locks
from understudy.process.reporter import Silent

USED = JobId("f" * 32)
DAMAGED = b"garbage"


class Mains:
    """Where nobody gets a process; see `MainProcesses`."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)
        """Grows with each application that is to be executed."""

    async def take(self, python: str) -> None:
        """See `MainProcesses.take`."""
        self.asked.release()
        await asyncio.Future()


@dataclass
class Grant:
    """One term of a JobManager, and what was true when its address was published."""

    durable: Durable
    term: int
    binding: Binding
    settings: dict[str, str] = field(default_factory=dict)
    stamps: list[dict[str, int]] = field(default_factory=list)
    interpreters: Interpreters = ONE_INTERPRETER

    def __post_init__(self) -> None:
        self.stores = ground.services(self.durable)
        self.mains = Mains()
        self.serves = asyncio.Event()
        around = Surroundings(
            me=Incarnation("me"),
            name="jobmanager",
            rest="",
            configuration=Configuration(self.settings),
            services=self.stores,
            mains=cast("MainProcesses", self.mains),
            locks=cast("Locks", NoLocks()),
            reporter=Silent(),
            clock=virtual_clock(),
            chance=random.Random(0),
            interpreters=self.interpreters,
        )
        vacant = LeaderRecord(holder=Incarnation(""), term=self.term - 1, session="")
        resources = ResourceManager(
            self.term, 40.0, cast("Locks", NoLocks()), virtual_clock(), lambda: None
        )
        self.dispatcher = Dispatcher(
            around,
            self.binding,
            Leadership(self.term, "session", vacant, None, "it died"),
            resources,
        )

    async def publish(self) -> None:
        """Note which term has written which document by now."""
        self.stamps.append(
            {
                key: ground.decoded(key, entry.value)[0]
                for key, entry in self.durable.register._entries.items()
                if entry.value != DAMAGED
            }
        )
        self.serves.set()

    async def lead(self) -> RunEnd | None:
        """Lead until the run has ended; None where it leads on without anything to do."""
        leading = asyncio.ensure_future(self.dispatcher.run(self.publish))
        serving = asyncio.ensure_future(self.serves.wait())
        await asyncio.wait({leading, serving}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        await asyncio.wait({leading}, timeout=3600)
        if leading.done():
            return leading.result()
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        return None


def binding(run: str | None = None, submission: Submission | None = None) -> Binding:
    """Return what a process was started for."""
    return Binding(RunId(run) if run else None, ephemeral=False, submission=submission)


async def buried(stores: HighAvailabilityServices, run: str, jobs: tuple[JobRecord, ...]) -> None:
    """Leave what remains of a run."""
    result = ApplicationResult(
        application_id=ground.APPLICATION,
        application_name="flights",
        run_id=RunId(run),
        status=ApplicationStatus.FAILED,
        start_time=1.0,
        end_time=2e9,
    )
    data = tombstones.dump(TombstoneFile(result=result, jobs=jobs))
    path = layout.tombstone_path(ground.CLUSTER, run, 1)
    await stores.storage.publish(path, data)
    stone = Tombstone(
        application_id=ground.APPLICATION,
        run_id=RunId(run),
        name="flights",
        status=ApplicationStatus.FAILED,
        started_at=1.0,
        ended_at=2e9,
        file=Pointer(path=path, digest=digest(data), size=len(data)),
    )
    await stores.registry.bury(1, ground.APPLICATION, stone)


@pytest.mark.parametrize("how", ["is gone", "is altered"])
@pytest.mark.parametrize("what", ["its record", "its script"])
def test_what_cannot_be_executed_is_shown_and_left_and_its_leader_serves_on(
    what: str, how: str
) -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        await stores.registry.claim(1, ephemeral=False)
        directory = stores.applications.new_directory()
        blob = BlobStore(durable.storage, ground.CLUSTER, directory).put(b"main()")
        script = Artifact(name="app/app.py", digest=blob, size=6)
        record = replace(ground.record(), artifacts=(script,))
        stored = await stores.applications.put(1, record, directory)
        (blob_path,) = (path for path in durable.storage.files if "/blobs/" in path)
        path = stored.body.record.path if what == "its record" else blob_path
        durable.storage.delete(path)
        if how == "is altered":
            durable.storage.publish(path, DAMAGED)
        grant = Grant(durable, 2, binding())
        ended = await grant.lead()
        left = await ground.services(durable).registry.read()

        assert ended is None
        assert grant.serves.is_set()
        assert grant.dispatcher.attention[ground.APPLICATION]
        assert left is not None
        assert [ground.APPLICATION] == list(left.applications)
        assert how == "is gone" or DAMAGED == durable.storage.files[path]

    run_virtual(main())


def test_a_document_that_is_damaged_is_shown_and_nothing_of_it_is_removed() -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        stored = await ground.submitted(stores)
        files = dict(durable.storage.files)
        entry = await durable.register.load(stored.key)
        assert entry is not None
        await durable.register.swap(stored.key, DAMAGED, entry.version)
        grant = Grant(durable, 2, binding())
        ended = await grant.lead()

        assert ended is None
        assert grant.serves.is_set()
        assert stored.key in grant.dispatcher.attention[ground.APPLICATION]
        assert files.items() <= durable.storage.files.items()
        assert DAMAGED == durable.register._entries[stored.key].value

    run_virtual(main())


STAYS = {"execution.shutdown-on-application-finish": "false"}


@pytest.mark.parametrize("settings", [{}, STAYS], ids=["it ends", "it stays"])
@pytest.mark.parametrize("what", ["registry", "application", "jobs"])
def test_each_leader_of_a_standing_cluster_waits_where_a_document_is_damaged(
    what: str, settings: dict[str, str]
) -> None:
    """One term after the other: nobody ends, so nothing is started again and again."""

    async def main() -> None:
        durable = Durable()
        stored = await ground.submitted(ground.services(durable))
        plans = ground.services(durable).plans(stored)
        await plans.claim(1)
        await plans.add(1, ground.job(1))
        key = next(one for one in durable.register._entries if one.startswith(what))
        entry = await durable.register.load(key)
        assert entry is not None
        await durable.register.swap(key, DAMAGED, entry.version)
        files = dict(durable.storage.files)
        first, late = (Grant(durable, term, binding(), settings) for term in (2, 3))
        ends = [await first.lead(), await late.lead()]
        await asyncio.wait_for(until_there_is_a_run(ground.services(durable), binding()), 60)

        assert [None, None] == ends
        assert (first.serves.is_set(), late.serves.is_set()) == (True, True)
        assert [True, True] == [bool(one.dispatcher.attention) for one in (first, late)]
        assert files.items() <= durable.storage.files.items()
        assert DAMAGED == durable.register._entries[key].value

    run_virtual(main())


def test_an_application_is_executed_in_the_same_term_once_its_document_is_repaired() -> None:
    async def main() -> None:
        durable = Durable()
        stored = await ground.submitted(ground.services(durable))
        entry = await durable.register.load(stored.key)
        assert entry is not None
        damaged = await durable.register.swap(stored.key, DAMAGED, entry.version)
        grant = Grant(durable, 2, binding(), STAYS)
        leading = asyncio.ensure_future(grant.lead())
        await grant.serves.wait()
        assert [ground.APPLICATION] == list(grant.dispatcher.attention)
        await durable.register.swap(stored.key, entry.value, damaged)
        await asyncio.wait_for(grant.mains.asked.acquire(), 60)

        assert {} == grant.dispatcher.attention
        leading.cancel()

    run_virtual(main())


def test_what_never_became_real_is_removed_at_the_next_grant_and_what_is_linked_stays() -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        stored = await ground.submitted(stores)
        base = f"{ground.CLUSTER}/applications"
        await stores.storage.publish(f"{base}/never-real/blobs/b", b"uploaded, never linked")
        await stores.storage.publish(f"{base}/{stored.body.directory}/blobs/b", b"in use")
        durable.storage.delete(stored.body.record.path)  # It serves, and goes no further.
        await Grant(durable, 2, binding()).lead()

        assert {f"{base}/{stored.body.directory}/blobs/b": b"in use"} == durable.storage.files

    run_virtual(main())


def test_nothing_is_removed_while_somebody_might_own_it_and_cannot_be_read() -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        stored = await ground.submitted(stores)
        await stores.storage.publish(f"{ground.CLUSTER}/applications/whose/blobs/b", b"whose")
        files = dict(durable.storage.files)
        entry = await durable.register.load(stored.key)
        assert entry is not None
        await durable.register.swap(stored.key, DAMAGED, entry.version)
        await Grant(durable, 2, binding()).lead()

        assert files.items() <= durable.storage.files.items()

    run_virtual(main())


def test_a_leader_is_found_only_once_it_has_claimed_all_that_it_recovers() -> None:
    async def main() -> None:
        durable = Durable()
        stored = await ground.submitted(ground.services(durable))
        plans = ground.services(durable).plans(stored)
        await plans.claim(1)
        await plans.add(1, ground.job(1))
        durable.storage.delete(stored.body.record.path)  # It serves, and goes no further.
        grant = Grant(durable, 5, binding())
        await grant.lead()
        (stamps,) = grant.stamps

        assert 3 == len(stamps), "registry, application, jobs"
        assert {5} == set(stamps.values())

    run_virtual(main())


def test_a_term_that_somebody_else_had_is_not_led() -> None:
    async def main() -> None:
        durable = Durable()
        await ground.services(durable).registry.claim(5, ephemeral=False)
        grant = Grant(durable, 5, binding())
        with pytest.raises(LeadershipLost, match="term 5"):
            await grant.lead()

        assert not grant.serves.is_set()

    run_virtual(main())


def test_a_run_that_has_ended_is_answered_and_nothing_is_executed() -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        await stores.registry.claim(1, ephemeral=False)
        await buried(stores, "monday", ())
        grant = Grant(durable, 2, binding("monday"))
        ended = await grant.lead()

        assert RunEnd(RunId("monday"), ApplicationStatus.FAILED) == ended
        assert not grant.serves.is_set(), "nobody is to be told of a leader that goes at once"

    run_virtual(main())


def test_a_job_id_that_an_earlier_run_has_used_is_refused_by_name() -> None:
    async def main() -> None:
        durable = Durable()
        stores = ground.services(durable)
        await stores.registry.claim(1, ephemeral=False)
        done = JobRecord(
            job_id=USED,
            name="load",
            status=JobStatus.FINISHED,
            attempt=1,
            start_time=1.0,
            end_time=2.0,
        )
        await buried(stores, "monday", (done,))
        submission = Submission("flights", "app.py", "/app.py", (), "", (), first_job_id=USED)
        grant = Grant(durable, 2, binding("tuesday", submission))
        with pytest.raises(SubmissionError, match=f"{USED} was used by run monday"):
            await grant.lead()
        registry = await stores.registry.read()

        assert registry is not None
        assert {} == registry.applications, "nothing of it was stored"
        assert not [path for path in durable.storage.files if "applications/" in path]

    run_virtual(main())
