"""Every kind of file that is written, and the real operation that writes it.

An operation begins on a ground that was prepared, may be repeated, and leaves what can be seen
through the stores: what was there before, or what is there after. ``seen`` raises for a half.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tests.contract.actors import OneThread
from tests.crash.quiet import SUBMISSION
from tests.ha.ground import CLUSTER, LOCATIONS, RUN, job, outcome
from understudy.clock import SystemClock
from understudy.driver.attempt import Attempt
from understudy.errors import NotFoundError, UnderstudyError
from understudy.ha import layout
from understudy.ha.application_store import StoredApplication
from understudy.ha.backends.filesystem import FilesystemRegister
from understudy.ha.blobs import BlobStore
from understudy.ha.format import digest
from understudy.ha.result_store import outcomes
from understudy.ha.retrieval import LEADER_KEY, decode_leader, encode_leader
from understudy.ha.services import HighAvailabilityServices
from understudy.ha.storage import InlineStorage, LocalStorage
from understudy.jobmanager.retention import sweep_tombstones, tombstones
from understudy.model import (
    ApplicationId,
    ApplicationResult,
    ApplicationStatus,
    Incarnation,
    LeaderRecord,
    LeadershipSpan,
    Pointer,
    TombstoneFile,
)
from understudy.process import code
from understudy.process.guardian import Guardian
from understudy.process.liveness_lock import LivenessLocks
from understudy.rpc.messages import Deploy

DONE, UNKNOWN = 0, 4
APPLICATION = ApplicationId("a" * 32)
ENTRY = job(1)
OUTCOME = outcome(ENTRY)
STAGED = Pointer(
    path=f"{CLUSTER}/applications/d/staged/1.json", digest=digest(OUTCOME), size=len(OUTCOME)
)
TOMBSTONE = layout.tombstone_path(CLUSTER, RUN, 1)


@dataclass
class Ground:
    """One cluster's files, as one process sees them."""

    root: Path

    def __post_init__(self) -> None:
        self.storage = LocalStorage(self.root)
        self.stores = HighAvailabilityServices(
            FilesystemRegister(self.root / CLUSTER / "register"),
            InlineStorage(self.storage),
            CLUSTER,
            LOCATIONS,
        )


Step = Callable[[Ground], Awaitable[object]]


@dataclass(frozen=True)
class Operation:
    """What is written, over what, and what can be seen of it."""

    begin: Step
    work: Step
    seen: Step
    before: object
    after: object
    told: bool = True
    """What went wrong is told; else the operation is one that nobody waits for."""


async def nothing(_: Ground) -> None:
    """Prepare nothing."""


async def claim(ground: Ground) -> None:
    """Create the registry."""
    await ground.stores.registry.claim(1, ephemeral=False)


async def sweep(ground: Ground) -> None:
    """Do what leaders do about what crashes have left, until the end of the run."""
    await remove_directory(ground)
    await remove_layouts(ground)
    await claim(ground)
    await record_grant(ground)
    registry = await ground.stores.registry.claim(1, ephemeral=False)
    await ground.stores.registry.sweep(1)
    recovered = await ground.stores.applications.recover(1, registry)
    await sweep_tombstones(ground.stores, 1, registry, recovered)
    await ground.stores.job_results.prune()


async def is_there(ground: Ground) -> bool:
    """Say whether there is a registry."""
    return await ground.stores.registry.read() is not None


async def record_grant(ground: Ground) -> None:
    """Write the registry."""
    span = LeadershipSpan(term=1, holder="jm", granted_at=1.0)
    await ground.stores.registry.record(1, lambda _: [span])


async def grants(ground: Ground) -> int:
    """Return how many grants the registry tells."""
    body = await ground.stores.registry.read()
    assert body is not None
    return len(body.history)


async def put_application(ground: Ground) -> None:
    """Put an application, as the Dispatcher does."""
    stores = ground.stores
    record = SUBMISSION.store(stores, RUN, "d", 1.0)
    await stores.applications.put(1, record, "d")


async def application(ground: Ground) -> str | None:
    """Return the application that the registry links, once all of it could be read."""
    stored = await linked(ground)
    if stored is None:
        return None
    record = await ground.stores.applications.record(stored.body)
    blobs = BlobStore(ground.storage, CLUSTER, stored.body.directory)
    for artifact in record.artifacts:
        blobs.get(artifact)
    return record.name


async def linked(ground: Ground) -> StoredApplication | None:
    """Return the application that the registry links."""
    registry = await ground.stores.registry.read()
    assert registry is not None
    recovered = await ground.stores.applications.recover(1, registry)
    assert not recovered.damaged
    return recovered.sound[0] if recovered.sound else None


async def bury(ground: Ground) -> None:
    """Unlink the application, and delete its document."""
    stored = await linked(ground)
    if stored is not None:
        await ground.stores.registry.bury(1, stored.body.application_id, None)
        await stored.delete(1)


async def add_job(ground: Ground) -> None:
    """Put a job's plan, and make the job real."""
    stored = await linked(ground)
    assert stored is not None
    plans = ground.stores.plans(stored)
    await plans.claim(1)
    pointer = await plans.put_plan("d", ENTRY.job_id, b"the plan")
    await plans.add(1, replace(ENTRY, plan=pointer))


async def job_added(ground: Ground) -> bool:
    """Say whether the job is real, once its plan could be read."""
    stored = await linked(ground)
    assert stored is not None
    plans = ground.stores.plans(stored)
    entries = await plans.claim(1)
    if ENTRY.job_id not in entries:
        return False
    return ground.storage.read(entries[ENTRY.job_id].plan.path) == b"the plan"


async def elect(ground: Ground, term: int = 2) -> None:
    """Write the leader's record."""
    record = LeaderRecord(Incarnation(f"jm-{term}"), term, "session", lease_s=15.0)
    entry = await ground.stores.register.load(LEADER_KEY)
    version = entry.version if entry else None
    await ground.stores.register.swap(LEADER_KEY, encode_leader(record), version)


async def depart(ground: Ground) -> None:
    """Remove the leader's record."""
    entry = await ground.stores.register.load(LEADER_KEY)
    if entry is not None:
        await ground.stores.register.swap(LEADER_KEY, None, entry.version)


async def leader(ground: Ground) -> int | None:
    """Return the term of the leader's record."""
    entry = await ground.stores.register.load(LEADER_KEY)
    return decode_leader(entry).term if entry else None


async def stage(ground: Ground) -> None:
    """Stage an outcome, as a driver does."""
    deploy = Deploy(
        application_id=APPLICATION,
        run_id=RUN,
        job_id=ENTRY.job_id,
        name=ENTRY.name,
        attempt=1,
        driver=Incarnation("driver"),
        plan=ENTRY.plan,
        staged=STAGED.path,
        writer="w",
        result_size_max=1000,
    )
    attempt = Attempt(deploy, 1, ground.storage, SystemClock())
    attempt.finished(msgspec.Raw(b"7"))
    attempt.stage()


async def staged_value(ground: Ground) -> bytes | None:
    """Return the value that was staged."""
    try:
        data = ground.storage.read(STAGED.path)
    except NotFoundError:
        return None
    return bytes(outcomes.load(data, STAGED.path).value)


async def stage_bytes(ground: Ground) -> None:
    """Let an outcome be staged, and the registry be there."""
    await claim(ground)
    ground.storage.publish(STAGED.path, OUTCOME)


async def publish_result(ground: Ground) -> None:
    """Publish a job's result file."""
    await ground.stores.job_results.publish_dirty(ENTRY.job_id, STAGED)


async def published_only(ground: Ground) -> None:
    """Publish a job's result file, and remove what it was made of."""
    await stage_bytes(ground)
    await publish_result(ground)
    ground.storage.delete_tree(f"{CLUSTER}/applications/d")


async def result_files(ground: Ground) -> tuple[str, ...]:
    """Return the result files that are there, once each was found to be whole."""
    names = ground.storage.names(LOCATIONS.job_results)
    for name in names:
        data = ground.storage.read(f"{LOCATIONS.job_results}/{name}")
        assert OUTCOME == data, f"{name} is not whole"
    # A file of either name is the result; both are, for the moment in which one becomes the other.
    return tuple(name.removeprefix(ENTRY.job_id) for name in names[:1])


async def mark_clean(ground: Ground, *, keep: bool) -> None:
    """Let a job's result be clean."""
    await ground.stores.job_results.mark_clean(ENTRY.job_id, keep=keep)


async def write_tombstone(ground: Ground) -> None:
    """Write a tombstone's file."""
    result = ApplicationResult(APPLICATION, "flights", RUN, ApplicationStatus.FINISHED, 1.0, 2.0)
    await ground.stores.storage.publish(TOMBSTONE, tombstones.dump(TombstoneFile(result)))


async def tombstone(ground: Ground) -> str | None:
    """Return whose tombstone's file there is."""
    try:
        data = ground.storage.read(TOMBSTONE)
    except NotFoundError:
        return None
    return tombstones.load(data, TOMBSTONE).result.run_id


async def lay_out(ground: Ground) -> None:
    """Lay the application's code out on this host."""
    artifacts = SUBMISSION.store(ground.stores, RUN, "d", 1.0).artifacts
    code.lay_out(ground.storage, CLUSTER, "d", artifacts)


async def laid_out(ground: Ground) -> int:
    """Return how many files of the code are laid out, which must be all or none."""
    base = code.layout_base(ground.storage, CLUSTER)
    layouts = [path for path in base.glob("*") if not path.name.startswith(".")]
    return len([file for one in layouts for file in one.rglob("app/*")])


async def remove_layouts(ground: Ground) -> None:
    """Remove the layouts, as the cleanup does."""
    code.remove_layouts(code.layout_base(ground.storage, CLUSTER))


async def remove_directory(ground: Ground) -> None:
    """Delete what an application kept in storage."""
    ground.storage.delete_tree(f"{CLUSTER}/applications/d")
    ground.storage.prune(f"{CLUSTER}/applications")


async def put_unlinked(ground: Ground) -> None:
    """Let an application that is over have files."""
    await claim(ground)
    SUBMISSION.store(ground.stores, RUN, "d", 1.0)


async def directory_left(ground: Ground) -> bool:
    """Say whether anything of the application's directory is left."""
    return ground.storage.exists(f"{CLUSTER}/applications")


async def note_death(ground: Ground) -> None:
    """Leave the note of a death in a liveness lock, as a guardian does."""
    path = ground.root / "lock"
    guardian = Guardian.__new__(Guardian)
    guardian._spec, guardian._released = {"lock": str(path)}, False
    guardian._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(guardian._lock, fcntl.LOCK_EX)
    guardian._free_lock({"at": 7.0, "why": json.dumps({"reason": "x" * 100})})


async def death_noted(ground: Ground) -> float | None:
    """Return when the death was, as whoever obtains the lock reads it."""
    (ground.root / "lock").touch()
    return (await LivenessLocks(ground.root).dead(Incarnation("lock"))).at


async def with_application(ground: Ground) -> None:
    """Put an application into a registry."""
    await claim(ground)
    await put_application(ground)


OPERATIONS: dict[str, Operation] = {
    "the registry, created": Operation(nothing, claim, is_there, False, True),
    "the registry, written": Operation(claim, record_grant, grants, 0, 1),
    "an application, put": Operation(claim, put_application, application, None, "flights"),
    "an application, buried": Operation(with_application, bury, application, "flights", None),
    "a job, added": Operation(with_application, add_job, job_added, False, True),
    "the leader's record, created": Operation(claim, elect, leader, None, 2),
    "the leader's record, removed": Operation(partial(elect, term=1), depart, leader, 1, None),
    "an outcome, staged": Operation(claim, stage, staged_value, None, b"7"),
    "a result, published": Operation(
        stage_bytes, publish_result, result_files, (), ("_DIRTY.json",)
    ),
    "a result, clean and kept": Operation(
        published_only, partial(mark_clean, keep=True), result_files, ("_DIRTY.json",), (".json",)
    ),
    "a result, clean and removed": Operation(
        published_only, partial(mark_clean, keep=False), result_files, ("_DIRTY.json",), ()
    ),
    "a tombstone's file": Operation(claim, write_tombstone, tombstone, None, RUN),
    "code, laid out": Operation(claim, lay_out, laid_out, 0, 2),
    "layouts, removed": Operation(lay_out, remove_layouts, laid_out, 2, 0),
    "a directory, removed": Operation(put_unlinked, remove_directory, directory_left, True, False),
    "the note of a death": Operation(nothing, note_death, death_noted, None, 7.0, told=False),
}


def work(name: str, root: str) -> Callable[[], int]:
    """Do an operation in this process; what went wrong is written beside the ground."""
    operation, ground = OPERATIONS[name], Ground(Path(root))
    runner = asyncio.Runner(loop_factory=OneThread)
    runner.get_loop()

    async def do() -> None:
        await operation.work(ground)

    def run() -> int:
        try:
            runner.run(do())
        except (OSError, UnderstudyError) as error:
            Path(f"{root}.error").write_text(f"{type(error).__name__}: {error}")
            return UNKNOWN
        return DONE

    return run
