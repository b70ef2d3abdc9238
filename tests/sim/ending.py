"""What must be true when a world has come to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tests.sim.hosts import SLOW_WAKE_S
from understudy.ha.format import digest
from understudy.ha.registry import REGISTRY_KEY
from understudy.ha.retrieval import LEADER_KEY
from understudy.jobmanager.retention import tombstones
from understudy.model import ApplicationStatus, JobStatus, RegistryBody, Tombstone, TombstoneFile

if TYPE_CHECKING:
    from tests.sim.world import World


def check_end(world: World) -> None:
    """Demand that the run ended once, in one way, and that nothing else is left."""
    watch = world.watch
    registry = watch.documents[REGISTRY_KEY].body
    assert isinstance(registry, RegistryBody)
    watch.demand(not registry.applications, "an application is still linked")
    # Of a run whose tombstone has expired, by a wall clock that has jumped, the status is kept.
    told = {**registry.ended, **{run: one.status for run, one in registry.tombstones.items()}}
    for ended in world.ended:
        watch.demand(told.get(ended.run_id) is ended.status, f"{ended}, and registered is {told}")
    runs = set(world.runs) if world.profile.session else {*told}
    watch.demand(set(told) == runs and len(told) == len(world.runs), f"runs: {sorted(told)}")
    files = [_check_tombstone(world, tombstone) for tombstone in registry.tombstones.values()]
    if None not in files and not registry.ended:
        jobs = {job.job_id for file in files if file for job in file.jobs}
        missing = watch.acknowledged - jobs
        watch.demand(not missing, f"jobs that were acknowledged are missing: {missing}")
    _check_leftovers(world, registry)


def _check_tombstone(world: World, tombstone: Tombstone) -> TombstoneFile | None:
    watch = world.watch
    if watch.is_spoilt(tombstone.file.path):
        return None
    data = world.storage.files.get(tombstone.file.path)
    watch.demand(data is not None, "the tombstone has no file")
    assert data is not None
    watch.demand(digest(data) == tombstone.file.digest, "the tombstone's file is another one")
    file: TombstoneFile = tombstones.load(data, tombstone.file.path)
    watch.demand(file.result.status is tombstone.status, "file and tombstone tell different ends")
    for job in file.jobs:
        result = watch.jobs[job.job_id].result
        watch.demand(result is not None, f"{job.name} has no result")
        assert result is not None
        stored = (result.status, result.attempt)
        watch.demand(stored == (job.status, job.attempt), f"{job.name}: {job}, stored {stored}")
        if job.note and world.person.costs:
            continue
        if job.status is JobStatus.FINISHED:
            value = msgspec.json.decode(job.value)
            watch.demand(value == {job.name: job.attempt}, f"{job.name}: its value is {value}")
    if world.profile.keep_results and not world.profile.acts:
        kept = {f"{world.locations.job_results}/{job.job_id}.json" for job in file.jobs}
        lost = kept - set(world.storage.files)
        watch.demand(not lost, f"results that were to be kept are gone: {sorted(lost)}")
    if world.profile.must_finish and not (watch.cancelled or world.person.costs):
        finished = tombstone.status is ApplicationStatus.FINISHED
        watch.demand(finished, f"it should have finished: {file.result.failure}")
    return file


def _check_leftovers(world: World, registry: RegistryBody) -> None:
    watch, here = world.watch, world.locations
    keys = set(world.entries) - {REGISTRY_KEY} - watch.left_late - world.person.put
    soon = world.done_at - world.profile.timing.retry_s < world.profile.faults_end + SLOW_WAKE_S
    if soon or world.profile.session:
        keys -= {LEADER_KEY}  # The last leader tried to remove it, once, and was hindered.
    watch.demand(not keys, f"left in the register: {sorted(keys)}")
    allowed = {stone.file.path for stone in registry.tombstones.values()} | world.person.put
    # A late writer's file that a person has damaged is not known to be ours: it is left in place.
    allowed |= {path for path in world.person.spoilt if "/tombstones/" in path}
    kept = (here.job_results, here.application_results) if world.profile.keep_results else ()
    left = {
        path
        for path in world.storage.everything()
        if path.rstrip("/") not in allowed
        and not (path.endswith(".json") and path.startswith(kept or ("\0",)))
        and not any(late.startswith(path) for late in watch.left_late)
        and not any(file.startswith(path) for file in allowed)
        and not (kept and path.endswith("/") and any(one.startswith(path) for one in kept))
        and not (kept and path.rstrip("/") in kept)
    }
    watch.demand(not left, f"left in the storage: {sorted(left)}")
