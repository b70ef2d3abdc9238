"""A person who deletes, edits and puts things where the cluster keeps its own, and who cancels.

What the cluster can do without is left as it is: nothing else may be lost by it. What it cannot do
without (the record of an application, a document) is put right after a while, and whoever waits
for that is started again: then the run must reach its end as if nothing had happened.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.blows import executed
from tests.sim.hosts import SimProcess
from tests.sim.program import CHECKPOINT_ACTS, LOOPS, Act
from understudy.errors import DataError, LeadershipLost, NotFoundError, StorageError
from understudy.ha import layout
from understudy.ha.register import Entry
from understudy.ha.registry import APPLICATION_PREFIX, REGISTRY_KEY, SEGMENT_PREFIX
from understudy.ha.retrieval import LEADER_KEY
from understudy.jobmanager.application import Application

if TYPE_CHECKING:
    from tests.sim.world import World

NOTICED_S = (0.0, 0.01, 0.3, 2.0)
"""How soon after a thing came into being a person may have meddled with it."""

LOOKS_S = 10.0
"""How often a person looks whether somebody waits for one."""

FAILURES_MAX = 3
"""So many processes may fail for one thing that was spoilt: more would be a loop."""


class Person:
    """Whoever has access to the storage and the register."""

    def __init__(self, world: World, seed: int) -> None:
        self.spoilt: set[str] = set()
        """Paths and keys of what was deleted or edited."""
        self.put: set[str] = set()
        """... of what was never the cluster's."""
        self.costs = False
        """The run may end otherwise now."""
        self.failures = 0
        self._world = world
        self._chance = random.Random(f"person {seed}")
        self._waiting: list[Act] = []
        self._broken: set[str] = set()
        """What must be put right before the run can go on."""

    def begin(self) -> None:
        """Act at the moments drawn, or as soon after as there is something to act on."""
        world = self._world
        for act in world.profile.acts:
            world.time.at(act.at, lambda act=act: self._wants(act))  # type: ignore[misc]
        if world.profile.acts:
            world.time.at(world.profile.faults_end, self._waiting.clear)
            world.time.after(LOOKS_S, self._look)

    def excuses(self, process: SimProcess, error: BaseException) -> bool:
        """Say whether a process may fail like that, after all that was spoilt."""
        if not self.spoilt or not isinstance(error, DataError | NotFoundError):
            return False
        self.failures += 1
        return self.failures <= FAILURES_MAX * len(self.spoilt)

    def noticed(self) -> None:
        """Something was written: see whether it is what was waited for."""
        for act in list(self._waiting):
            found = self._subjects(act.kind)
            if found:
                self._waiting.remove(act)
                subject = found[act.target % len(found)]
                self._world.time.after(
                    self._chance.choice(NOTICED_S),
                    lambda act=act, subject=subject: self._do(act, subject),  # type: ignore[misc]
                )

    def _wants(self, act: Act) -> None:
        self._waiting.append(act)
        self.noticed()

    def _subjects(self, kind: str) -> list[str]:
        """Return what could be acted on: paths, keys, or ids of jobs."""
        world = self._world
        what = kind.partition(" ")[2]
        files, here = sorted(world.storage.files), world.locations
        if what in _FILES:
            results = (f"{here.job_results}/", f"{here.application_results}/")
            return [path for path in files if _FILES[what](path, results) and self._own(path)]
        if what == "a document":
            prefixes = (APPLICATION_PREFIX, SEGMENT_PREFIX)
            keys = [key for key in sorted(world.entries) if key.startswith(prefixes)]
            return [key for key in keys if key not in self._broken and self._own(key)]
        if what == "a job's checkpoints":
            linked = self._checkpoints_in_use()
            keys = [key for key in sorted(world.entries) if key in linked]
            return [key for key in keys if key not in self._broken and self._own(key)]
        if what in {"the registry", "the leader's record"}:
            key = REGISTRY_KEY if what == "the registry" else LEADER_KEY
            return [key] if key in world.entries and key not in self._broken else []
        if what == "a job":
            return sorted(job_id for job_id, job in world.watch.jobs.items() if not job.result)
        return ["anything"] if world.watch.serving else []

    def _own(self, path: str) -> bool:
        return path not in self.put and path not in self.spoilt

    def _do(self, act: Act, subject: str) -> None:
        world = self._world
        if world.time.now >= world.profile.faults_end:
            return
        verb, _, what = act.kind.partition(" ")
        if verb == "cancel":
            self._cancel(what, subject)
        elif verb == "put":
            self._put_files() if what == "foreign files" else self._put_documents()
        elif what in _FILES:
            self._spoil_file(act, verb, what, subject)
        else:
            self._spoil_entry(act, verb, subject)

    # --- what is spoilt ---------------------------------------------------------------------------

    def _spoil_file(self, act: Act, verb: str, what: str, path: str) -> None:
        files = self._world.storage.files
        before = files.get(path)
        if before is None or not self._own(path):
            return
        self._spoils(verb, path)
        if verb == "delete":
            del files[path]
        else:
            files[path] = self._edited(before)
        if what == "the record" or (what, verb) == ("a staged file", "edit"):
            # Whoever needs it waits for a person: it may be the only trace of how something ended.
            self.costs = self.costs or what != "the record"
            left = files.get(path)

            def repair() -> None:
                if files.get(path) == left and self._directory_exists(path):
                    self._world.tell(f"somebody puts {path} right")
                    files[path] = before
                self._broken.discard(path)

            self._broken.add(path)
            self._world.time.at(self._until(act.lasts_s), repair)
        elif what != "a tombstone's file":
            self.costs = True

    def _directory_exists(self, path: str) -> bool:
        return self._world.storage.exists(path.rpartition("/")[0])

    def _spoil_entry(self, act: Act, verb: str, key: str) -> None:
        world = self._world
        before = world.entries.get(key)
        if before is None or key in self._broken:
            return
        self._spoils(verb, key)
        value = None if verb == "delete" else self._edited(before.value)
        self._set(key, value, before)
        if key == LEADER_KEY and verb == "delete":
            world.watch.lease_is_gone()
            return
        left = world.entries.get(key)
        lasts_s = act.lasts_s
        of_job = act.kind in CHECKPOINT_ACTS
        if key == LEADER_KEY:
            # It stands for the lease: before that is over, nobody may be elected.
            world.watch.removed = True
            lasts_s = max(lasts_s, 1.2 * world.profile.longest_lease_s)

        def repair() -> None:
            # Of a job that has ended nobody needs it, and nobody is left who would remove it.
            needed = not of_job or key in self._checkpoints_in_use()
            if world.entries.get(key) == left and needed:
                world.tell(f"somebody puts {key} right")
                self._set(key, None if key == LEADER_KEY else before.value, left)
            self._broken.discard(key)

        self._broken.add(key)
        until = self._until(lasts_s)
        world.time.at(max(until, world.time.now + lasts_s) if key == LEADER_KEY else until, repair)

    def _checkpoints_in_use(self) -> set[str]:
        """Return the documents of the checkpoints of jobs that have not ended."""
        return {job.checkpoints for job in self._world.watch.jobs.values() if not job.result}

    def _set(self, key: str, value: bytes | None, over: Entry | None) -> None:
        world = self._world
        world.write(key, value, over.version if over else None)

    def _spoils(self, verb: str, what: str) -> None:
        self._world.tell(f"somebody wants to {verb} {what}, and does")
        self.spoilt.add(what)
        self._world.watch.spoilt(what)

    def _until(self, lasts_s: float) -> float:
        world = self._world
        return min(world.time.now + lasts_s, world.profile.faults_end)

    def _edited(self, data: bytes) -> bytes:
        middle = len(data) // 2
        other = bytes([data[middle] ^ 1]) if data else b"x"
        return self._chance.choice(
            (
                b"",
                data[:middle],
                data[:middle] + other + data[middle + 1 :],
                b'{"format":"notes","version":99,"checksum":"","body":{}}',
            )
        )

    # --- what is put, and what is cancelled -------------------------------------------------------

    def _put_files(self) -> None:
        here = self._world.locations
        cluster = here.cluster
        directories = [layout.application_directory(cluster, "stranger")]
        directories += [
            layout.application_directory(cluster, one.body.directory)
            for one in self._world.watch.applications()
        ]
        paths = [
            f"{here.job_results}/{'0' * 32}_DIRTY.json",
            f"{here.job_results}/stranger.txt",
            f"{here.application_results}/{'0' * 32}.json",
            f"{cluster}/tombstones/stranger~1.json",
            f"{cluster}/stranger.txt",
            *(f"{directory}/staged/{'0' * 32}-1.json" for directory in directories),
        ]
        self._world.tell("somebody puts files that are not the cluster's")
        for path in paths:
            self.put.add(path)
            self._world.storage.put(path, b"not yours")

    def _put_documents(self) -> None:
        self._world.tell("somebody puts entries that are not the cluster's")
        for key in (f"{APPLICATION_PREFIX}stranger", f"{SEGMENT_PREFIX}stranger", "stranger"):
            self.put.add(key)
            if key not in self._world.entries:
                self._set(key, b"not yours", None)

    def _cancel(self, what: str, job_id: str) -> None:
        world = self._world
        for process in world.leading():
            manager = world.managers[process.incarnation]
            application = executed(manager)
            if application is None:
                continue
            world.watch.cancelled = True
            process.machine.spawn(self._ask(process, application, what, job_id))
            return

    async def _ask(
        self, process: SimProcess, application: Application, what: str, job_id: str
    ) -> None:
        self._world.tell(f"somebody asks {process.name} to cancel {what}")
        try:
            if what == "a job":
                known = {str(one): one for one in application.jobs.entries}
                if job_id in known:
                    await application.requests.cancel_job(known[job_id])
            else:
                await application.cancel()
        except (LeadershipLost, NotFoundError, DataError):
            return

    # --- who waits for a person -------------------------------------------------------------------

    def _look(self) -> None:
        """Start leaders again that wait for what was put right since."""
        world = self._world
        world.time.after(LOOKS_S, self._look)
        if self._broken:
            return
        for process in world.leading():
            manager = world.managers[process.incarnation]
            known = manager.term.dispatcher.attention if manager.term else {}
            attention = {key: why for key, why in known.items() if not _passes(why)}
            if not attention:
                continue
            words = " ".join((*attention, *attention.values()))
            named = [one for one in self.spoilt if one in words]
            world.watch.demand(bool(named), f"{process.name} needs attention: {attention}")
            self.failures += 1
            world.watch.demand(
                self.failures <= FAILURES_MAX * len(self.spoilt),
                f"{process.name} needs attention again and again: {attention}",
            )
            process.crash_now(f"by somebody who has put {', '.join(named)} right")


def _passes(why: str) -> bool:
    """Say whether something is tried again that the storage or the register has refused."""
    return LOOPS in why or any(
        f"{error.__name__}: " in why for error in (TimeoutError, OSError, StorageError)
    )


Matches = Callable[[str, tuple[str, str]], bool]

_FILES: dict[str, Matches] = {
    "a result file": lambda path, results: path.startswith(results),
    "a staged file": lambda path, _: "/staged/" in path or path.endswith("/result.json"),
    "a plan": lambda path, _: "/plans/" in path,
    "the record": lambda path, _: path.rpartition("/")[2].startswith("application"),
    "a tombstone's file": lambda path, _: "/tombstones/" in path,
}
