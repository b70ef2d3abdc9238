"""What must hold at every write that is accepted, and at every step of an attempt.

The watcher sees what is true, not what processes believe: each write as it takes effect, who has
sent it, which attempts and executions of ``main`` live. A violation ends the world.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from tests.sim.deploying import version_of
from tests.sim.hosts import SimProcess
from tests.sim.kept import Kept
from tests.sim.known import BODIES, FORMATS, Application, Body, Known, Living
from understudy.core import lease
from understudy.errors import DataError
from understudy.ha.application_store import _format as records
from understudy.ha.format import digest
from understudy.ha.registry import REGISTRY_KEY
from understudy.ha.result_store import outcomes
from understudy.ha.retrieval import LEADER_KEY
from understudy.ha.retrieval import _format as leader_format
from understudy.jobmanager.redeployment import Changes
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    ApplicationRecord,
    ApplicationStatus,
    Checkpoints,
    Incarnation,
    JobEntry,
    JobId,
    JobResultEntry,
    JobStatus,
    RegistryBody,
    RunId,
    Segment,
)
from understudy.rpc.messages import Deploy, JobDone, RunMain

if TYPE_CHECKING:
    from tests.sim.world import World


class InvariantError(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Written:
    """By whom a job was written."""

    application: ApplicationId
    term: int


@dataclass
class Watch:
    """Everything that has been accepted in one world."""

    world: World
    term: int = 0
    holders: dict[int, Incarnation] = field(default_factory=dict)
    contenders: dict[int, set[Incarnation | None]] = field(default_factory=dict)
    """Who believes to hold a term that was minted twice, since its record was removed, and under
    which nobody has written yet."""
    released: set[int] = field(default_factory=set)
    serving: int = 0
    """The newest term that has recovered all there was, and published its addresses."""
    removed: bool = False
    """The leader's record was removed once: only the registry knows the highest term."""
    documents: dict[str, Known] = field(default_factory=dict)
    removed_keys: set[str] = field(default_factory=set)
    jobs: dict[JobId, JobEntry] = field(default_factory=dict)
    attempts: dict[JobId, Living] = field(default_factory=dict)
    mains: dict[ApplicationId, Living] = field(default_factory=dict)
    staged: dict[JobId, int] = field(default_factory=dict)
    """Attempts whose success is staged durably."""
    acknowledged: set[JobId] = field(default_factory=set)
    told: dict[JobId, tuple[JobStatus, int]] = field(default_factory=dict)
    writer: SimProcess | None = None
    left_late: set[str] = field(default_factory=set)
    """What a process that was dead, or out of time, has brought into being."""
    first_run: RunId | None = None
    _torn_until: float = 0.0
    cancelled: bool = False
    """Somebody has asked for it."""
    deployments: dict[int, int] = field(default_factory=lambda: {1: 0})
    """Whose program each deployment is."""
    over: set[str] = field(default_factory=set)
    """Digests of records that a person has started other code over."""
    rerun: dict[JobId, str] = field(default_factory=dict)
    """Results that a person has discarded, if they are still there."""

    def __post_init__(self) -> None:
        """Watch the checkpoints, too."""
        self.kept = Kept(self)

    def demand(self, holds: bool, text: str) -> None:
        """Raise `InvariantError` unless it holds."""
        if not holds:
            self.world.tell(f"VIOLATION: {text}")
            raise InvariantError(text)

    # --- people -----------------------------------------------------------------------------------

    def expect(self, changes: Changes) -> None:
        """A person wants this to be changed, once."""
        if changes.over:
            self.over.add(changes.over)
        self.rerun.update(changes.rerun)

    def spoilt(self, what: str) -> None:
        """A person has deleted or edited it: an outcome that is gone was never staged."""
        for job_id in [job_id for job_id in self.staged if f"/staged/{job_id}-" in what]:
            del self.staged[job_id]

    def lease_is_gone(self) -> None:
        """A person has removed the leader's record: for a lease, two may believe that they lead."""
        self.removed = True
        self._torn_until = self.world.time.now + 1.5 * self.world.profile.longest_lease_s

    @property
    def torn(self) -> bool:
        """Say whether a person has made it possible that two lead at once."""
        return self.world.time.now < self._torn_until

    def is_spoilt(self, *paths: str) -> bool:
        """Say whether a person has deleted or edited one of these."""
        return not self.world.person.spoilt.isdisjoint(paths)

    def applications(self) -> list[Application]:
        """Return the applications that are linked, with who has written them last."""
        registry = self._the_registry()
        links = registry.applications.values() if registry else ()
        known = [self.documents.get(link.document) for link in links]
        return [
            Application(one.term, one.body)
            for one in known
            if one and isinstance(one.body, ApplicationDocument)
        ]

    def record(self, path: str) -> ApplicationRecord | None:
        """Return a record if it can be read."""
        try:
            return records.load(self.world.storage.files[path], path)
        except (KeyError, DataError):
            return None

    # --- the register -----------------------------------------------------------------------------

    def swapped(self, process: SimProcess, key: str, value: bytes | None) -> None:
        """Take in an accepted write."""
        if self.world.overdue and value is not None and key not in self.documents:
            self.left_late.add(key)
        if key == LEADER_KEY:
            self._leader(process, value)
        elif value is None:
            self._removed(key)
        else:
            self._written(process, key, value)

    def _leader(self, process: SimProcess, value: bytes | None) -> None:
        if value is None:
            self.released.add(self.term)
            self.removed = True
            self.world.tell(f"{process.name} removes the leader's record")
            return
        record = leader_format.load(value, LEADER_KEY)
        if not record.holder:
            late = record.term != self.term and not self.removed
            self.demand(not late, f"term {record.term} is released late")
            self.released.add(record.term)
            self.world.tell(f"{process.name} steps down from term {record.term}")
            return
        if record.rpc:
            self.serving = max(self.serving, record.term)
        if record.term == self.term and record.holder == self.holders[record.term]:
            return
        if record.term <= self.term and self.removed:
            # Created by a request from before the record was removed. The registry's stamp says
            # that the term is over; whoever writes under it all the same is found out there.
            self.world.tell(f"{process.name} mints term {record.term} once more")
            written = max((known.term for known in self.documents.values()), default=0)
            known = self.world.overdue or REGISTRY_KEY in self.world.person.spoilt
            # Another one may have written under the same term since it read the registry. It reads
            # the registry again before it writes there, and finds that the term is not its own.
            self.demand(known or record.term >= written, f"term {record.term} after {written}")
            if record.term > written:  # Nobody has written under it: who does so first holds it.
                before = self.contenders.get(record.term, {self.holders.get(record.term)})
                self.contenders[record.term] = {*before, record.holder}
                self.term, self.holders[record.term] = record.term, record.holder
            return
        later = record.term > self.term
        self.demand(later, f"{process.name} mints term {record.term} after {self.term}")
        self.term = record.term
        self.holders[record.term] = record.holder
        self.world.tell(f"{process.name} is granted term {record.term}")
        for other in self.world.leading():
            alone = other is process or self.torn
            self.demand(alone, f"{other.name} leads still, by its own clock")

    def _written(self, process: SimProcess, key: str, value: bytes) -> None:
        kind = key.partition("-")[0]
        stamped = FORMATS[kind].load(value, key)
        body: Body = msgspec.json.decode(stamped.body, type=BODIES[kind])
        term = stamped.term
        before = self.documents.get(key)
        if before:
            self.demand(
                term >= before.term, f"{process.name}: term {term} writes {key} of {before.term}"
            )
            late = term < self.serving and not self.world.person.spoilt and kind != "checkpoints"
            told = f"{process.name}: term {term} writes {key}, {self.serving} serves"
            self.demand(not late, told)
        if process.incarnation in self.contenders.pop(term, ()):
            self.holders[term] = process.incarnation
        holder = self.holders.get(term)
        self.demand(holder == process.incarnation, f"{process.name} writes under {holder}'s {term}")
        if key in self.removed_keys and self.world.overdue:
            return  # Created by a request from before it was removed: nothing needs it any more.
        self.documents[key] = Known(term, body)
        match body:
            case RegistryBody():
                self._registry(before.body if before else None, body)
            case ApplicationDocument():
                self._application(before.body if before else None, body)
            case Segment():
                self._segment(body, before.body if before else None, term)
            case Checkpoints():
                old = before.body if before and isinstance(before.body, Checkpoints) else None
                claims = before is not None and before.term < term
                self.kept.written(key, old, body, claims)

    def _removed(self, key: str) -> None:
        self.world.tell(f"{key} is removed")
        self.removed_keys.add(key)
        known = self.documents.pop(key, None)
        self.kept.removed(key)
        registry = self._the_registry()
        if registry is None:
            return
        linked = {link.document for link in registry.applications.values()}
        self.demand(key not in linked, f"{key} is removed while the registry links it")
        if known and isinstance(known.body, Segment):
            for document in linked:
                application = self.documents[document].body
                assert isinstance(application, ApplicationDocument)
                self.demand(key not in application.segments, f"{key} is removed while linked")

    def _the_registry(self) -> RegistryBody | None:
        known = self.documents.get(REGISTRY_KEY)
        return known.body if known and isinstance(known.body, RegistryBody) else None

    def _registry(self, before: Body | None, body: RegistryBody) -> None:
        if not isinstance(before, RegistryBody):
            return
        for link in body.applications.values():
            self.first_run = self.first_run or link.run_id
        self.demand(before.incarnation == body.incarnation, "the registry is another one")
        lost = {*before.tombstones, *before.ended} - {*body.tombstones, *body.ended}
        self.demand(not lost, f"it is forgotten that runs have ended: {sorted(lost)}")
        for application, link in before.applications.items():
            if application in body.applications:
                continue
            self.demand(link.run_id in body.tombstones, f"{link.run_id} is unlinked without trace")
            known = self.documents[link.document].body
            assert isinstance(known, ApplicationDocument)
            clean = known.result is not None and known.result.clean
            self.demand(clean, "an application is buried before its result is clean")
            pointer = body.tombstones[link.run_id].file
            self.demand(pointer == known.tombstone, f"{link.run_id} is buried with another file")
            self.world.tell(f"run {link.run_id} is buried")

    def _application(self, before: Body | None, body: ApplicationDocument) -> None:
        if not isinstance(before, ApplicationDocument):
            return
        self.demand(body.executions >= before.executions, "executions are forgotten")
        self._deployed(before, body)
        kept = body.segments[: len(before.segments)] == before.segments
        self.demand(kept, "a segment is unlinked")
        old, new = before.result, body.result
        if new is None:
            self.demand(old is None, "the application's result is lost")
            return
        if old is not None:
            same = (old.status, old.source, old.end_time) == (new.status, new.source, new.end_time)
            self.demand(same, f"the application's result changes from {old} to {new}")
            self.demand(new.clean or not old.clean, "the application's result is dirty again")
        else:
            self.world.tell(f"the application's result is {new.status.value}")
            there = new.source.path in self.world.storage.files
            self.demand(there or self.is_spoilt(new.source.path), "its result is not staged")
            if new.status is ApplicationStatus.CANCELED:
                asked = self.cancelled or any(one.cancel_requested for one in self._entries(body))
                self.demand(asked, "the application is CANCELED, and nobody has asked for it")
            for entry in self._entries(body):
                done = entry.result is not None
                self.demand(done, f"{entry.name} has no result, but its application has")
            main = self.mains.get(body.application_id)
            over = main is None or self._over(main)
            self.demand(over or self.torn, "main lives on")
        if new.clean:
            for entry in self._entries(body):
                clean = entry.result is not None and entry.result.clean
                self.demand(clean, f"{entry.name} is not clean, but its application is")

    def _deployed(self, before: ApplicationDocument, body: ApplicationDocument) -> None:
        if body.record == before.record:
            self.demand(body.deployment == before.deployment, "the same code is deployed again")
            return
        number = body.deployment
        self.demand(number == before.deployment + 1, f"deployment {number} comes unannounced")
        self.demand(before.record.digest in self.over, "nobody has started other code over this")
        self.over.remove(before.record.digest)
        record = self.record(body.record.path)
        if record:
            self.deployments[number] = version_of(record)
            self.world.tell(f"deployment {number}: version {version_of(record)}")

    def _entries(self, body: ApplicationDocument) -> list[JobEntry]:
        segments = [self.documents[key].body for key in body.segments]
        return [
            entry for one in segments if isinstance(one, Segment) for entry in one.jobs.values()
        ]

    def _segment(self, body: Segment, before: Body | None, term: int) -> None:
        if isinstance(before, Segment):
            lost = set(before.jobs) - set(body.jobs)
            self.demand(not lost, f"jobs are lost: {sorted(lost)}")
        for job_id, entry in body.jobs.items():
            old = self.jobs.get(job_id)
            if old == entry:
                continue
            self.jobs[job_id] = entry
            if entry.checkpoints and entry.checkpoints != (old.checkpoints if old else ""):
                known = self.documents.get(entry.checkpoints)
                kept = known.body if known and isinstance(known.body, Checkpoints) else None
                self.kept.linked(entry, kept)
            if old:
                self._job(old, entry, Written(body.application_id, term))

    def _job(self, old: JobEntry, new: JobEntry, by: Written) -> None:
        name = new.name
        if new.cancel_requested and not old.cancel_requested:
            asked = self.cancelled or self.world.job(name).cancelled
            self.demand(asked, f"{name} is to be cancelled, and nobody has asked for it")
        if old.result and new.result is None and self._is_discarded(old, old.result):
            return
        self.demand(new.attempt >= old.attempt, f"{name}: attempts are forgotten")
        if new.attempt > old.attempt:
            self.demand(old.result is None, f"{name} has ended, and is attempted again")
            self.demand(old.job_id not in self.staged, f"{name}: its success was staged")
            living = self.attempts.get(old.job_id)
            dead = living is None or self._over(living)
            self.demand(dead, f"{name}: attempt {new.attempt}, and the last one lives")
            self._intended(new, by)
        if new.result and not old.result:
            dead = new.job_id not in self.attempts or self._over(self.attempts[new.job_id])
            finished = new.result.status is JobStatus.FINISHED
            self.demand(dead or finished, f"{name} has ended, and its last attempt lives")
            self._committed(new, new.result)
        elif old.result:
            self.demand(new.result is not None, f"{name}: its result is lost")
            assert new.result is not None
            a, b = old.result, new.result
            same = (a.status, a.attempt, a.source) == (b.status, b.attempt, b.source)
            self.demand(same, f"{name}: its result changes from {a} to {b}")
            self.demand(b.clean or not a.clean, f"{name} is dirty again")
            if b.clean:
                self._cleaned(new)

    def _intended(self, entry: JobEntry, by: Written) -> None:
        """Demand that an attempt is of the code that is deployed, unless somebody deploys now."""
        assert entry.intent is not None
        for application in self.applications():
            if (application.body.application_id, application.term) == (by.application, by.term):
                deployed = application.body.deployment
                found = (entry.intent.deployment, entry.deployment)
                self.demand(found == (deployed, deployed), f"{entry.name} is of {found}")

    def _is_discarded(self, entry: JobEntry, result: JobResultEntry) -> bool:
        """Say whether a person has wanted a result to be discarded that is gone now."""
        if self.rerun.get(entry.job_id) != result.source.digest:
            return False
        self.world.tell(f"{entry.name}: its result is discarded")
        self.kept.discarded(entry.job_id)
        for memory in (self.rerun, self.staged, self.told):
            memory.pop(entry.job_id, None)
        return True

    def _committed(self, entry: JobEntry, result: JobResultEntry) -> None:
        self.world.tell(f"{entry.name}: {result.status.value} in attempt {result.attempt}")
        if result.status is JobStatus.CANCELED:
            wanted = self.cancelled or entry.cancel_requested
            because = result.reason.removesuffix(" before it started") not in {"", "cancelled"}
            self.demand(wanted or because, f"{entry.name} is CANCELED, and nobody has asked for it")
        if self.is_spoilt(result.source.path):
            return
        data = self.world.storage.files.get(result.source.path)
        self.demand(data is not None, f"{entry.name}: its result is not staged")
        assert data is not None
        self.demand(digest(data) == result.source.digest, f"{entry.name}: another result is staged")
        outcome = outcomes.load(data, entry.name)
        self.demand(outcome.status is result.status, f"{entry.name}: staged {outcome.status}")
        succeeded = entry.job_id in self.staged and result.status is not JobStatus.FINISHED
        self.demand(not succeeded, f"{entry.name}: its success was staged, and is not its result")

    def _cleaned(self, entry: JobEntry) -> None:
        for known in self.documents.values():
            body = known.body
            if isinstance(body, ApplicationDocument) and entry in self._entries(body):
                ended = body.result is not None
                self.demand(ended, f"{entry.name} is clean before its application has a result")

    # --- the storage ------------------------------------------------------------------------------

    def published(self, path: str, data: bytes) -> None:
        """Take in that a file was written."""
        self.world.person.noticed()
        if self.writer and (self.world.overdue or not self.in_good_standing(self.writer)):
            self.left_late.add(path)
        if "/staged/" in path and not path.endswith(("-canceled.json", "-failed.json")):
            outcome = outcomes.load(data, path)
            if outcome.status is JobStatus.FINISHED and not self.world.overdue:
                # What arrives when its sender is dead may be too late to be found.
                self.staged.setdefault(outcome.job_id, outcome.attempt)
                self.world.tell(f"{outcome.job_name}: success of attempt {outcome.attempt} staged")

    def in_good_standing(self, process: SimProcess) -> bool:
        """Say whether a process, and all above it, live within their time."""
        if process.zombie or process.frozen or not process.alive:
            return False
        return process.parent is None or self.in_good_standing(process.parent)

    def deleted(self, path: str) -> None:
        """Take in that a file, or a tree, was removed: what it held must be elsewhere by now."""
        for entry in self.jobs.values():
            if entry.result is None:
                needed = entry.deployment in self.deployments
                gone = needed and path in entry.plan.path
                self.demand(not gone, f"{entry.name}: its plan is removed before it has a result")
            elif not self._retrievable(entry.job_id, entry.result):
                self.demand(False, f"{entry.name}: its result is lost with {path}")

    def _retrievable(self, job_id: JobId, result: JobResultEntry) -> bool:
        files, here = self.world.storage.files, self.world.locations
        paths = [
            result.source.path,
            f"{here.job_results}/{job_id}_DIRTY.json",
            f"{here.job_results}/{job_id}.json",
        ]
        tombstones = [path for path in self.world.person.spoilt if "/tombstones/" in path]
        if tombstones or self.is_spoilt(*paths):
            return True
        if any(path in files and digest(files[path]) == result.source.digest for path in paths):
            return True
        registry = self._the_registry()
        pointers = [stone.file for stone in registry.tombstones.values()] if registry else []
        pointers += [one.body.tombstone for one in self.applications() if one.body.tombstone]
        return any(one.path in files and digest(files[one.path]) == one.digest for one in pointers)

    # --- attempts, and main -----------------------------------------------------------------------

    def entered(self, process: SimProcess, deploy: Deploy, version: int | None) -> None:
        """An attempt's function is entered."""
        self.world.tell(f"{process.name} runs {deploy.name}, attempt {deploy.attempt}")
        entry = self.jobs.get(deploy.job_id)
        self.demand(entry is not None, f"{deploy.name} runs, and was never stored")
        assert entry is not None
        living = self.attempts.get(deploy.job_id)
        self.demand(living is None or self._over(living), f"{deploy.name} runs twice at once")
        self.attempts[deploy.job_id] = Living(process, deploy.attempt)
        if not self.in_good_standing(process):
            return
        self.kept.entered(deploy)
        self.demand(entry.result is None, f"{deploy.name} has ended, and runs again")
        success = self.staged.get(deploy.job_id)
        self.demand(success is None, f"{deploy.name} runs again after attempt {success}'s success")
        intent = entry.intent
        known = intent is not None and intent.attempt >= deploy.attempt
        self.demand(known, f"{deploy.name}: attempt {deploy.attempt} runs without an intent")
        if intent and intent.attempt == deploy.attempt and intent.deployment in self.deployments:
            expected = self.deployments[intent.deployment]
            right = version in {expected, None}
            self.demand(right, f"{deploy.name} runs the code of version {version}")

    def left(self, job_id: JobId, attempt: int) -> None:
        """An attempt has ended by itself."""
        living = self.attempts.get(job_id)
        if living and living.number == attempt:
            del self.attempts[job_id]

    def main_began(self, process: SimProcess, run: RunMain, version: int) -> None:
        """An execution of ``main`` begins."""
        of = f" of {run.run_id}" if self.world.profile.session else ""
        self.world.tell(f"{process.name} executes main{of} for the {run.execution}. time")
        main = self.mains.get(run.application_id)
        over = main is None or self._over(main)
        self.demand(over or self.torn, "main is executed twice at once")
        self.mains[run.application_id] = Living(process, run.execution)
        for known in self.applications():
            if known.body.application_id == run.application_id and self.in_good_standing(process):
                self.demand(known.body.result is None, "main is executed after its end")
                expected = self.deployments.get(known.body.deployment, version)
                self.demand(version == expected, f"main is of version {version}")

    def answered(self, done: JobDone, job_id: JobId) -> None:
        """``main`` learns how a job ended: the same each time, and what is stored."""
        told = (done.status, done.attempt)
        self.demand(self.told.setdefault(job_id, told) == told, f"main is told another end: {told}")
        result = self.jobs[job_id].result
        stored = (result.status, result.attempt) if result else None
        self.demand(stored == told, f"main is told {told}, and stored is {stored}")

    def _over(self, living: Living) -> bool:
        process = living.process
        if process.reaped or process.zombie:
            return True
        # Frozen whole beyond its time: outside of every proof (DESIGN §3).
        return process.frozen and process.overdue is not None

    def leads(self, process: SimProcess) -> bool:
        """Say whether a JobManager may act, by what it knows and its clock shows."""
        manager = self.world.managers.get(process.incarnation)
        if manager is None or not process.alive:
            return False
        state = manager._election._state
        if state.leading is None or state.leading.term in self.released:
            return False
        return lease.leads(state, process.host.now())
