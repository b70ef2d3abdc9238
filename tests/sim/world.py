"""One world: a seed, a whole cluster of the shipped code in virtual time, its faults, its story.

First everything may go wrong; then the faults stop, and the run must reach its end within a bound
that follows from the options (`Profile.bound_s`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from tests.sim import blows
from tests.sim.clients import Client
from tests.sim.clockwork import SimTime
from tests.sim.deploying import Start, deploy
from tests.sim.effects import Calls, SimRegister, SimStorage, Watcher
from tests.sim.ending import check_end
from tests.sim.hosts import STANDING_S_MAX, Host, SimGuardianLink, SimProcess
from tests.sim.invariants import InvariantError, Watch
from tests.sim.person import Person
from tests.sim.program import LIMITS, Job, Odds, Profile, Program, draw
from tests.sim.submitting import submit
from tests.sim.wire import Listening, SimLink, SimNetwork
from tests.sim.workers import SimMains, SimPool
from tests.support.memory_storage import MemoryStorage
from understudy.config import options
from understudy.core.lease import Timing
from understudy.ha.backends.embedded import EmbeddedRegister
from understudy.ha.registry import REGISTRY_KEY
from understudy.ha.retrieval import retrieve
from understudy.ha.services import HighAvailabilityServices, Locations
from understudy.jobmanager.dispatcher import Binding
from understudy.jobmanager.job_manager import JobManager, JobManagerSettings
from understudy.jobmanager.submission import Submission
from understudy.jobmanager.surroundings import RunEnd, Surroundings
from understudy.model import Incarnation, LeaderRecord, RegistryBody, RunId
from understudy.process.liveness_lock import DeathNote
from understudy.process.reporter import Silent
from understudy.taskmanager.driver_pool import PoolSettings
from understudy.taskmanager.task_manager import (
    Identity,
    TaskManager,
    TaskManagerContext,
    TaskManagerSettings,
)

T = TypeVar("T")

CLUSTER = "flights"
RUN = RunId("run-1")
LOCATIONS = Locations(CLUSTER, f"job-result-store/{CLUSTER}", f"app-result-store/{CLUSTER}")
WELL = Odds()
DOWN = Odds(request_lost=1.0)
SILENT = Odds(answer_lost=1.0)
FIRST = Start()
IDLE_S = 15.0
"""By then a leader has swept what the last application has left."""

SETTLE_S = 40.0
"""By then whatever was still under way at the end has arrived."""


class WatchedStorage(MemoryStorage):
    """The storage that all processes share; the watcher sees every write."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def publish(self, path: str, data: bytes) -> None:
        """See `BlockingStorage.publish`."""
        super().publish(path, data)
        self._watch.published(path, data)

    def put(self, path: str, data: bytes) -> None:
        """Write a file as somebody who is not of the cluster."""
        super().publish(path, data)

    def delete(self, path: str) -> None:
        """See `BlockingStorage.delete`."""
        super().delete(path)
        self._watch.deleted(path)

    def delete_tree(self, path: str) -> None:
        """See `BlockingStorage.delete_tree`."""
        super().delete_tree(path)
        self._watch.deleted(path)


class SimLocks:
    """The kernel's word about the processes of one host; see `Locks` and `Deaths`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def dead(self, incarnation: Incarnation) -> DeathNote:
        """See `Locks.dead`."""
        process = self._world.locks.get(incarnation)
        if process is None or not self._world.profile.locks:
            await asyncio.Event().wait()
        assert process is not None
        if not process.reaped:
            reaped = asyncio.Event()
            process.on_reaped.append(reaped.set)
            await reaped.wait()
        return DeathNote(process.died_at)

    async def proof(self, holder: LeaderRecord) -> float | None:
        """See `Deaths.proof`."""
        return (await self.dead(holder.holder)).at

    async def end_strays(self, incarnation: Incarnation) -> None:
        """See `Locks.end_strays`: who is dead here has been reaped whole, or soon will be."""

    async def sweep(self, keep: frozenset[Incarnation]) -> None:
        """See `Locks.sweep`."""
        locks = self._world.locks
        for incarnation in [one for one in locks if locks[one].reaped and one not in keep]:
            del locks[incarnation]


class World:
    """A cluster, and all that befalls it."""

    calls = Calls
    """What becomes of calls to the register and the storage."""
    submission = Submission("flights", "app.py", "/app.py", (), "", ())
    start_s = (0.0, 1.0)
    """When the processes start, after the first."""
    restart_s = (0.5, 25.0)
    """How soon a person starts a process in place of a dead one."""

    def __init__(self, seed: int, profile: Profile | None = None) -> None:
        self.profile: Profile = profile or draw(seed)
        self.chance = random.Random(f"world {seed}")
        self.story: list[str] = []
        self.time = SimTime()
        self.watch = Watch(self)
        self.person = Person(self, seed)
        self.rests: dict[Incarnation, Any] = {}
        """What answers over REST."""
        self.rest_chance = random.Random(f"rest {seed}")
        self.starts: dict[Incarnation, Start] = {}
        """With what those that take the place of JobManagers are to be started."""
        self.register = EmbeddedRegister()
        self.storage = WatchedStorage(self.watch)
        self.locations = LOCATIONS
        self.watchers: list[Watcher] = []
        self.records = 0
        """How often the leader's record has changed."""
        self.listening: dict[str, Listening] = {}
        self.locks: dict[Incarnation, SimProcess] = {}
        self.managers: dict[Incarnation, JobManager] = {}
        self.roots: list[SimProcess] = []
        self.ended: list[RunEnd] = []
        self.broken: BaseException | None = None
        self.overdue = False
        """What takes effect just now was sent by somebody who is dead, or waits no longer."""
        self.down = {"register": 0.0, "storage": 0.0}
        self.silent_until = 0.0
        self.links: set[SimLink[Any]] = set()
        """Connections between hosts."""
        self.hosts: list[Host] = []
        self.submitted: set[RunId] = set()
        """What was acknowledged, in a cluster that stays."""
        others = self.profile.others
        self._others = {one.run: one.program for one in others}
        programs = [*self.profile.programs, *self._others.values()]
        self._jobs = {job.name: job for program in programs for job in program.jobs()}
        self._idle_since: float | None = None
        self.loops: Counter[str] = Counter()
        """How often the execution of a run has failed."""
        self._numbers: dict[str, int] = {}
        self._odds = {"register": self.profile.register, "storage": self.profile.storage}
        self.done_at = 0.0
        self._over = False
        self._done: list[JobManager] = []

    # --- what happens -----------------------------------------------------------------------------

    def run(self) -> None:
        """Let it happen; raises `InvariantError`, or what else went wrong."""
        with _seeded_ids(self.chance):
            try:
                self._begin()
                self.time.run(self._is_over, self.profile.faults_end + self.profile.bound_s)
                if self.broken:
                    raise self.broken
                self._settle()
                check_end(self)
            finally:
                for machine in list(self.time.machines):
                    machine.end()

    def tell(self, text: str) -> None:
        """Add a sentence to the story."""
        self.story.append(f"{self.time.now:10.4f}  {text}")

    def reaped(self, process: SimProcess) -> None:
        """Start a new process in place of one that is dead, as a person would."""
        if process.parent is None:
            self.roots.remove(process)
        if self._over or process.parent or self.managers.get(process.incarnation) in self._done:
            return
        delay_s = self.chance.uniform(*self.restart_s)
        start = self.starts.get(process.incarnation, FIRST)
        self.time.after(delay_s, lambda: self._start(process.kind, process.host, start))

    def pause(
        self, process: SimProcess, why: str, lasts_s: float, *, guardian: bool = False
    ) -> None:
        """Pause one process, for so long, or until the faults end."""
        whom = f"{process.name} and its guardian are" if guardian else f"{process.name} is"
        self.tell(f"{whom} paused for {lasts_s:.1f} s {why}")
        until = max(self.time.now + 0.01, min(self.time.now + lasts_s, self.profile.faults_end))
        go_on = process.freeze(children=False) if guardian else process.hold()

        def resume() -> None:
            if go_on():
                self.tell(f"{process.name} goes on")

        self.time.at(until, resume)

    def draw_pause(self, chance: random.Random) -> float:
        """Draw how long a pause lasts: around one of the timeouts."""
        return chance.choice(LIMITS) * chance.uniform(0.4, 1.6)

    def odds(self, service: str) -> Odds:
        """Return what may happen to a call just now."""
        now = self.time.now
        if now >= self.profile.faults_end:
            return WELL
        if service == "storage" and now < self.silent_until:
            return SILENT
        return DOWN if now < self.down[service] else self._odds[service]

    @property
    def faulty(self) -> bool:
        """Say whether anything may go wrong just now."""
        return self.time.now < self.profile.faults_end

    @property
    def strikes(self) -> float:
        """Return how often just now a process crashes when it sends a message."""
        return self.profile.strikes if self.faulty else 0.0

    @property
    def wire_s(self) -> float:
        """Return how long a message takes just now."""
        return self.profile.wire_s if self.faulty else 0.001

    def live(self, process: SimProcess, work: Coroutine[Any, Any, None]) -> None:
        """Let a process do its work; an error in it is one of the simulation."""

        async def attempt() -> None:
            try:
                await work
            except Exception as error:
                self.tell(f"{process.name} fails: {error!r}")
                self.broken = self.broken or error

        process.machine.spawn(attempt())

    # --- what there is ----------------------------------------------------------------------------

    def job(self, name: str) -> Job:
        """Return what a job does."""
        return self._jobs[name]

    def trouble(self, paths: str) -> tuple[str, str]:
        """Return the trouble of the application to whose storage a path belongs, and its run."""
        for other in self.profile.others:
            if other.trouble:
                for one in self.watch.applications():
                    if one.body.run_id == other.run and one.body.directory in paths:
                        return other.trouble, other.run
        return "", ""

    def program(self, run: RunId, version: int) -> Program:
        """Return what ``main`` of a run does."""
        return self._others.get(run) or self.profile.programs[version]

    @property
    def runs(self) -> list[RunId]:
        """Return the runs of all applications."""
        return [RUN, *(RunId(one.run) for one in self.profile.others)]

    def known_runs(self) -> set[RunId]:
        """Return the runs that the registry names, ended ones too."""
        known = self.watch.documents.get(REGISTRY_KEY)
        body = known.body if known else None
        if not isinstance(body, RegistryBody):
            return set()
        linked = {link.run_id for link in body.applications.values()}
        return {*linked, *body.tombstones, *body.ended}

    def process(self, kind: str, parent: SimProcess) -> SimProcess:
        """Start a guarded child."""
        child = SimProcess(kind, self._name(kind), parent.host, self, parent)
        chance = random.Random(f"standing {self.profile.seed} {child.name}")
        if kind == "driver" and chance.random() < self.profile.standing:
            child.stands_s = chance.uniform(0, STANDING_S_MAX)
        return child

    def processes(self) -> list[SimProcess]:
        """Return all that live, those with guardians of their own first."""
        roots = [one for one in self.roots if one.alive]
        return [*roots, *(child for root in roots for child in root.children if child.alive)]

    def timing_of(self, process: SimProcess) -> Timing:
        """Return how a JobManager is configured to hold and to take the lease."""
        second = int(process.name.rpartition("-")[2]) % 2 == 0
        return (second and self.profile.other_timing) or self.profile.timing

    def leading(self) -> list[SimProcess]:
        """Return the JobManagers that may act, by what they know and their clock shows."""
        return [process for process in self.roots if self.watch.leads(process)]

    @property
    def entries(self) -> dict[str, Any]:
        """Return what the register holds."""
        return self.register._entries

    def swap(self, process: SimProcess, key: str, value: bytes | None, expected: str | None) -> str:
        """Let a write take effect."""
        version = self.write(key, value, expected)
        self.watch.swapped(process, key, value)
        self.person.noticed()
        return version

    def write(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Let a write take effect, whoever makes it."""
        version = _at_once(self.register.swap(key, value, expected))
        if key == "leader":
            self.records += 1
            for watcher in self.watchers:
                watcher.changed(self, self.records, self.entries.get(key))
        return version

    # --- the cluster ------------------------------------------------------------------------------

    def _begin(self) -> None:
        profile, chance = self.profile, self.chance
        count = profile.jobmanagers + profile.taskmanagers
        for number in range(1 if profile.one_host else count):
            rate = 1 + profile.drift * chance.uniform(-1, 1)
            host = Host(self.time, f"host {number + 1}", rate, chance.uniform(0, 1e5))
            host.wall_offset = chance.uniform(-3600, 3600)
            self.hosts.append(host)
        kinds = ["jm"] * profile.jobmanagers + ["tm"] * profile.taskmanagers
        for number, kind in enumerate(kinds):
            host = self.hosts[0 if profile.one_host else number]
            start = chance.uniform(*self.start_s) if number else 0.0
            self.time.at(start, lambda kind=kind, host=host: self._start(kind, host))  # type: ignore[misc]
        for blow in profile.blows:
            self.time.at(blow.at, lambda blow=blow: blows.strike(self, blow))  # type: ignore[misc]
        self.person.begin()
        for number in range(profile.clients):
            Client(self, number + 1).begin()
        for one in profile.deployments:
            self.time.at(one.at, lambda one=one: deploy(self, one))  # type: ignore[misc]
        if profile.session:
            self.time.at(0.0, lambda: submit(self, RUN, 0))
            for other in profile.others:
                submits = functools.partial(submit, self, RunId(other.run), other.priority)
                self.time.at(other.at, submits)
        if profile.cancel_at is not None:
            self.time.at(profile.cancel_at, lambda: blows.cancel(self))
        self.time.at(profile.faults_end, lambda: self.tell("--- the faults end ---"))

    def _start(self, kind: str, host: Host, start: Start = FIRST) -> None:
        if self._over:
            return
        process = SimProcess(kind, self._name(kind), host, self)
        self.starts[process.incarnation] = start
        self.roots.append(process)
        self.locks[process.incarnation] = process
        self.tell(f"{process.name} starts on {host.name}")
        process.machine.spawn(
            self._live_as_jobmanager(process)
            if kind == "jm"
            else self._live_as_taskmanager(process)
        )

    def _services(self, process: SimProcess) -> HighAvailabilityServices:
        register, storage = SimRegister(self, process), SimStorage(self, process)
        return HighAvailabilityServices(register, storage, CLUSTER, LOCATIONS)

    async def _live_as_jobmanager(self, process: SimProcess) -> None:
        manager = self._jobmanager(process)
        self.managers[process.incarnation] = manager
        try:
            ended = await manager.run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if process.machine.crashed:
                return  # What was waited for at its death is thrown away, at whatever moment.
            self.tell(f"{process.name} fails: {error!r}")
            if self.person.excuses(process, error):
                process.exit(1)
            else:
                self.broken = self.broken or error
            return
        assert ended, "no request shuts the cluster down here"
        self.tell(f"{process.name} is done: {ended.status.value}")
        self.ended.append(ended)
        self._done.append(manager)
        self.done_at = self.time.now
        process.exit(0)

    def _jobmanager(self, process: SimProcess) -> JobManager:
        profile, timing = self.profile, self.timing_of(process)
        network: SimNetwork[Any] = SimNetwork(self, process)
        me = LeaderRecord(
            holder=process.incarnation,
            term=0,
            session="",
            lease_s=timing.lease_s,
            name=process.name,
            rest=f"http://{process.name}",
            rpc=network.address_of(process.incarnation),
        )
        around = Surroundings(
            process.incarnation,
            process.name,
            me.rest,
            profile.configuration,
            self._services(process),
            SimMains(self, process),
            SimLocks(self),
            Silent(),
            process.machine.clock,
            process.chance,
        )
        start = self.starts[process.incarnation]
        submission = start.submission(self.submission)
        binding = Binding(self._wanted_run(), False, submission, start.changes)
        if profile.session:
            binding = Binding(None, False, None, session=True)
        grace_s = profile.configuration.get(options.ADOPTION_GRACE)
        settings = JobManagerSettings(timing, grace_s)
        return JobManager(me, around, binding, settings, network, SimGuardianLink(process))

    def _wanted_run(self) -> RunId | None:
        """Return the run id that a person gives: always, or only to start a process again."""
        if self.profile.run_id_given:
            return RUN
        return self.watch.first_run

    async def _live_as_taskmanager(self, process: SimProcess) -> None:
        profile = self.profile
        network: SimNetwork[Any] = SimNetwork(self, process)
        services = self._services(process)
        clock, configuration = process.machine.clock, profile.configuration
        me = Identity(process.incarnation, process.name, 0, 0, process.host.name, "")
        pool = PoolSettings(
            "session-less", profile.slots, profile.spares, 30.0, 180.0, 5.0, "", Path("/scratch")
        )
        orphan_s = configuration.get(options.ORPHAN_TIMEOUT)
        heartbeat_s = configuration.get(options.HEARTBEAT_INTERVAL)
        settings = TaskManagerSettings(pool, CLUSTER, orphan_s, heartbeat_s)

        def leaders() -> AsyncIterator[LeaderRecord | None]:
            return retrieve(services.register, clock, profile.timing.lease_s)

        nobody: Any = None  # SimPool starts its processes itself.
        manager = TaskManager(
            me,
            settings,
            TaskManagerContext(
                nobody,
                network,
                services.storage.blocking,
                clock,
                SimGuardianLink(process),
                Silent(),
                leaders,
                registry=services.registry.read,
            ),
        )
        manager._pool = SimPool(pool, nobody, clock, manager._outbox, Silent(), manager._grounds)
        manager._pool.world, manager._pool.process = self, process
        try:
            await manager.run()
        except Exception as error:
            self.tell(f"{process.name} fails: {error!r}")
            self.broken = self.broken or error

    def _name(self, kind: str) -> str:
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return f"{kind}-{self._numbers[kind]}"

    # --- the end ----------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        if self.broken:
            return True
        if self.profile.session:
            return self._is_idle()
        if not self.ended or self.time.now < self.profile.faults_end:
            return False
        return not any(process.kind == "jm" for process in self.roots)

    def _is_idle(self) -> bool:
        """Say whether the faults are over, and for some time nothing was left to do."""
        leaders = [self.managers[one.incarnation] for one in self.leading()]
        idle = (
            self.time.now >= self.profile.faults_end
            and self.submitted >= {*self.runs}
            and bool(leaders)
            and all(one.term and one.term.serves for one in leaders)
            and not any(one.term and one.term.dispatcher.applications for one in leaders)
        )
        if not idle:
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = self.time.now
            self.time.after(IDLE_S, lambda: None)
        self.done_at = self.time.now
        return self.time.now - self._idle_since >= IDLE_S

    def _settle(self) -> None:
        self._over = True
        for process in list(self.roots):
            process.end("the cluster is closed")
        until = self.time.now + SETTLE_S
        self.time.at(until, lambda: None)
        self.time.run(lambda: self.time.now >= until)


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise AssertionError("the embedded register waits")


@contextlib.contextmanager
def _seeded_ids(chance: random.Random) -> Iterator[None]:
    """Draw ids from the seed, and keep quiet."""

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=chance.getrandbits(128), version=4)

    before = logging.root.manager.disable
    with patch.object(uuid, "uuid4", uuid4):
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


__all__ = ["InvariantError", "World"]
