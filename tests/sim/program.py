"""What one world draws from its seed: its cluster, what runs in it, and what may go wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from understudy.config import Configuration
from understudy.core.drivers import KILLED_MAX
from understudy.core.lease import Timing
from understudy.process.persist import PATIENCE_S

ORPHAN_S = 30.0
GRACE_S = 40.0
LEASES = ((15.0, 10.0, 2.0), (6.0, 4.0, 1.0), (15.0, 12.0, 3.0))
"""Lease, renew deadline and retry period."""

DRIFT = 0.02
"""Clocks run apart by at most 1.02 / 0.98, which the adoption grace allows for."""

LIMITS = (0.5, 5.0, 10.0, 15.0, ORPHAN_S, GRACE_S)
"""Around which pauses are drawn: the timeouts that there are."""

_configurations: dict[tuple[tuple[str, str], ...], Configuration] = {}


@dataclass(frozen=True)
class Job:
    """A job that ``main`` submits."""

    name: str
    runs_s: float
    raises: int = 0
    """How many of its attempts raise an exception."""
    kills: int = 0
    """How many of its attempts kill their own driver."""
    cancelled: bool = False
    """``main`` cancels it soon after it was submitted."""
    steps: int = 0
    """In how many steps it does its work; after each it keeps how far it is."""
    saves: bool = False
    """... as a state, and waits until that is durable."""
    streams: bool = False
    """... as a micro-batch, and goes on at once."""


@dataclass(frozen=True)
class Program:
    """What ``main`` does: the stages one after the other, the jobs of a stage at once."""

    stages: tuple[tuple[Job, ...], ...]
    detours: tuple[tuple[tuple[Job, ...], ...], ...] = ()
    """What it does instead in its second, third … execution."""
    catches: bool = False
    """It goes on after a failed job."""
    lasts_s: float = 0.0
    """How long it does something of its own after its last job."""
    raises: bool = False
    """It ends by an exception of its own."""

    def path(self, execution: int) -> tuple[tuple[Job, ...], ...]:
        """Return the stages of an execution of ``main``, from 1."""
        if execution > 1 and self.detours:
            return self.detours[(execution - 2) % len(self.detours)]
        return self.stages

    def changed(self, change: Callable[[Job], Job]) -> Program:
        """Return the program with each job changed."""
        paths = [
            tuple(tuple(change(job) for job in stage) for stage in path)
            for path in (self.stages, *self.detours)
        ]
        return replace(self, stages=paths[0], detours=tuple(paths[1:]))

    def jobs(self) -> list[Job]:
        """Return every job of every path."""
        paths = (self.stages, *self.detours)
        return [job for path in paths for stage in path for job in stage]

    @property
    def must_finish(self) -> bool:
        """Say whether only FINISHED is right."""
        return not (self.detours or self.raises) and all(
            job.raises <= 3 and not job.cancelled for job in self.jobs()
        )

    @property
    def longest_s(self) -> float:
        """Return how long it takes with all its attempts, one after the other."""
        return sum((job.runs_s + 8) * (1 + job.raises + job.kills) for job in self.jobs())


@dataclass
class Odds:
    """How often a call to the register or to the storage goes wrong, and how."""

    fails: float = 0.0
    request_lost: float = 0.0
    answer_lost: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    crash: float = 0.0
    pause: float = 0.0
    stale: float = 0.0
    """A write is held up, with its sender and the guardian, until others have gone on."""
    repeated: float = 0.0
    """A request arrives a second time, later: something on the way has sent it again."""
    done_in_spite: float = 0.0
    """The answer is an error at once, though the request was done: a 500 of an API server."""
    throttled: float = 0.0
    """The server asks to come back later, and the request is sent again then: a 429."""
    contested: float = 0.0
    """Another entry of the same object was written: the request is sent again, after a read."""
    latency_s: float = 0.002

    @property
    def any(self) -> bool:
        """Say whether anything goes wrong at all."""
        return bool(
            self.fails
            or self.request_lost
            or self.answer_lost
            or self.late
            or self.slow
            or self.crash
            or self.pause
            or self.stale
            or self.repeated
            or self.done_in_spite
            or self.throttled
            or self.contested
        )


@dataclass(frozen=True)
class Watching:
    """How an API server tells followers of the leader's record, which comes along."""

    late_s: float
    """At most so late."""
    silent: float
    """How often a watch tells nothing more, from a change on, for the time of a lease."""
    closed: float
    """How often it ends with a change: then the followers know that they have to read."""


@dataclass(frozen=True)
class Blow:
    """Something that befalls the cluster at a moment drawn beforehand."""

    number: int
    at: float
    kind: str
    target: int
    """Which process, counted round among those there are."""
    lasts_s: float


@dataclass(frozen=True)
class Act:
    """What a person does to what is stored, as soon as there is such a thing, from a moment on."""

    number: int
    at: float
    kind: str
    target: int
    lasts_s: float
    """After this the person puts right what the cluster cannot do without."""


@dataclass(frozen=True)
class Deployment:
    """A person starts some JobManagers anew, over the unfinished run."""

    number: int
    at: float
    version: int
    """Whose program they bring; the one that runs already: no other code."""
    replaces: int
    """How many JobManagers, at most."""
    rerun: bool
    """... and discards the result of a job, if there is one."""


SLOW = "its storage is slow"
LOOPS = "it fails again and again"
LOOPS_MAX = 5
"""So often it fails."""

TROUBLE_S = 300.0
"""How much longer an application in trouble may take."""


@dataclass(frozen=True)
class Other:
    """An application that somebody submits to the cluster, beside the first one."""

    number: int
    at: float
    program: Program
    priority: int = 0
    trouble: str = ""
    """`SLOW`, `LOOPS` or nothing."""

    @property
    def run(self) -> str:
        """Return its run id."""
        return f"other-{self.number}"


@dataclass
class Profile:
    """One world."""

    seed: int
    jobmanagers: int
    taskmanagers: int
    slots: int
    spares: int
    one_host: bool
    locks: bool
    """Deaths can be proved."""
    drift: float
    timing: Timing
    keep_results: bool
    run_id_given: bool
    program: Program
    register: Odds
    storage: Odds
    blows: list[Blow] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    deployments: list[Deployment] = field(default_factory=list)
    session: bool = False
    """The cluster takes applications, the first one too, for as long as it is there."""
    others: list[Other] = field(default_factory=list)
    watching: Watching | None = None
    """The register is that of an API server; else a change only wakes its followers."""
    other_timing: Timing | None = None
    """What every second JobManager is configured with."""
    revised: tuple[Program, ...] = ()
    """What ``main`` does in the versions after the first, which is `program`."""
    clients: int = 0
    standing: float = 0.0  # How often a driver's guardian stands still when an attempt has ended.
    strikes: float = 0.0
    """How often a process crashes just before or after it sends a message."""
    wire_s: float = 0.001
    cancel_at: float | None = None
    faults_end: float = 0.0
    register_deadline_s: float = 5.0
    storage_deadline_s: float = 20.0

    @property
    def configuration(self) -> Configuration:
        """Return the options that this world runs with."""
        settings = {
            "high-availability.leader-election.lease-duration": f"{self.timing.lease_s} s",
            "high-availability.leader-election.renew-deadline": f"{self.timing.renew_deadline_s} s",
            "high-availability.leader-election.retry-period": f"{self.timing.retry_s} s",
            "taskmanager.orphan-timeout": f"{ORPHAN_S} s",
            "jobmanager.adoption-grace": f"{GRACE_S} s",
            "application-result-store.delete-on-commit": str(not self.keep_results).lower(),
            "taskmanager.driver.type": "session-less",
            "cleanup-strategy.exponential-delay.max-backoff": "1 min",
        }
        key = tuple(settings.items())
        if key not in _configurations:
            _configurations[key] = Configuration(settings)
        return _configurations[key]

    @property
    def must_finish(self) -> bool:
        """Say whether only FINISHED is right: drivers killed again and again fail the run."""
        killed = sum(blow.kind == "crash a driver" for blow in self.blows)
        programs = [*self.programs, *(other.program for other in self.others)]
        finish = all(program.must_finish for program in programs)
        return finish and killed < KILLED_MAX and not self.strikes

    @property
    def programs(self) -> tuple[Program, ...]:
        """Return what ``main`` does, by version."""
        return (self.program, *self.revised)

    @property
    def longest_lease_s(self) -> float:
        """Return the longest lease that a JobManager of this world is configured with."""
        return max(one.lease_s for one in (self.timing, self.other_timing) if one)

    @property
    def bound_s(self) -> float:
        """Return how long after the last fault the run may take to its end, at the very most.

        A takeover; then nobody who is silent is waited for longer than the grace; every call has
        come to its deadline; every pause of a restart or a cleanup is over; the rest is work.
        """
        slowest = max(self.timing, self.other_timing or self.timing, key=lambda one: one.lease_s)
        takeover_s = 2 * (slowest.lease_s + 3 * slowest.retry_s)
        silence_s = GRACE_S + ORPHAN_S
        calls_s = 3 * self.storage_deadline_s + 4 * self.register_deadline_s
        pauses_s = 4 * 60.0
        programs = [*self.programs, *(other.program for other in self.others)]
        work_s = 2 * sum(program.longest_s for program in programs) + 30 * len(self.others)
        work_s += TROUBLE_S * any(other.trouble for other in self.others)
        return takeover_s + silence_s + calls_s + pauses_s + work_s


def draw(
    seed: int, *, checkpoints: bool = True, many: bool = False, kubernetes: bool = False
) -> Profile:
    """Draw a world; without checkpoints it is what it was before there were any.

    ``many``: several applications are submitted to a cluster that stays. ``kubernetes``: the
    register is as late, and fails, as one behind an API server.
    """
    chance = random.Random(seed)
    one_host = chance.random() < 0.5
    timing = Timing(*chance.choice(LEASES))
    calm = chance.random() < 0.05
    jobmanagers = chance.choice((1, 2, 2, 2, 3))
    taskmanagers = chance.choice((1, 1, 1, 2))
    profile = Profile(
        seed=seed,
        jobmanagers=jobmanagers,
        taskmanagers=taskmanagers,
        slots=chance.choice((1, 1, 2)),
        spares=chance.choice((0, 1)),
        one_host=one_host,
        locks=one_host and chance.random() < 0.8,
        drift=0.0 if one_host else DRIFT,
        timing=timing,
        keep_results=chance.random() < 0.3,
        run_id_given=chance.random() < 0.7,
        program=_program(chance),
        register=Odds() if calm else _odds(chance),
        storage=Odds() if calm else _odds(chance),
        wire_s=chance.choice((0.0005, 0.002, 0.2)),
        cancel_at=chance.uniform(1, 40) if chance.random() < 0.1 else None,
        storage_deadline_s=chance.choice((5.0, 20.0)),
    )
    if not calm:
        profile.faults_end = chance.uniform(15, 90)
        profile.blows = _blows(chance, profile)
        _draw_people(random.Random(f"people {seed}"), profile)
        _draw_more_faults(random.Random(f"more faults {seed}"), profile)
        _draw_silence(random.Random(f"silence {seed}"), profile)
    if checkpoints:
        _draw_checkpoints(random.Random(f"checkpoints {seed}"), profile)
    if many:
        _draw_others(random.Random(f"others {seed}"), profile)
    if kubernetes:
        _draw_api_server(random.Random(f"api server {seed}"), profile)
    return profile


def _draw_api_server(chance: random.Random, profile: Profile) -> None:
    """Draw what an API server does to requests and watches, beside what befalls any register."""

    def some(share: float, most: float) -> float:
        return chance.uniform(0.1, 1) * most if chance.random() < share else 0.0

    profile.register.latency_s = chance.choice((0.005, 0.01, 0.05, 0.3))
    profile.register.done_in_spite = some(0.5, 0.1)
    profile.register.throttled = some(0.4, 0.1)
    profile.register.contested = some(0.6, 0.3)
    profile.watching = Watching(
        chance.choice((0.02, 0.2, 2.0)), silent=some(0.5, 0.2), closed=some(0.5, 0.3)
    )


def _draw_others(chance: random.Random, profile: Profile) -> None:
    """Draw further applications: some of their own, some with what the first one does."""
    profile.session, profile.deployments, profile.revised = True, [], ()
    for number in range(1, 1 + chance.choice((1, 2, 3, 5))):

        def named(job: Job, number: int = number) -> Job:
            return replace(job, name=f"{job.name}{number}", cancelled=False)

        program = _program(chance).changed(named)
        at = chance.choice((0.0, chance.uniform(0, 40)))
        priority = chance.choice((0, 0, 0, 1))
        trouble = chance.choice(("", "", "", "", SLOW, LOOPS))
        profile.others.append(Other(number, at, program, priority, trouble))


def _draw_checkpoints(chance: random.Random, profile: Profile) -> None:
    """Draw who keeps what, and what a person does to that: apart, too."""
    if chance.random() < 0.5:
        return
    names = sorted({job.name for program in profile.programs for job in program.jobs()})
    drawn = {
        name: (
            chance.choice((1, 3, 10, 40)),
            chance.random() < 0.6,
            chance.random() < 0.6,
            chance.choice((0, 0, 1)),
        )
        for name in names
        if chance.random() < 0.8
    }

    def keeping(job: Job) -> Job:
        steps, saves, streams, kills = drawn.get(job.name, (0, False, False, 0))
        steps = steps if saves or streams else 0
        kills = max(job.kills, kills if steps else 0)
        return replace(job, steps=steps, saves=saves, streams=streams, kills=kills)

    profile.program = profile.program.changed(keeping)
    profile.revised = tuple(program.changed(keeping) for program in profile.revised)
    if profile.faults_end and chance.random() < 0.15:
        at, kind = chance.uniform(0, 0.8) * profile.faults_end, chance.choice(CHECKPOINT_ACTS)
        number, target = len(profile.acts), chance.randrange(100)
        profile.acts.append(Act(number, at, kind, target, chance.uniform(5, 60)))
    if profile.faults_end and not profile.one_host and chance.random() < 0.5:
        # Much is on its way when a connection breaks, and is told again.
        profile.wire_s = 0.2
        for number in range(len(profile.blows), len(profile.blows) + chance.choice((4, 8, 16))):
            at = chance.uniform(0, profile.faults_end)
            profile.blows.append(Blow(number, at, RESET, chance.randrange(100), 0.0))
        profile.blows.sort(key=lambda blow: blow.at)


def _draw_people(chance: random.Random, profile: Profile) -> None:
    """Draw who meddles, who deploys and who asks: apart, so that the rest of a world stays."""
    first = min(profile.faults_end, 40.0)
    if chance.random() < 0.2:
        for number in range(chance.choice((1, 1, 2, 3))):
            kind, at = chance.choice(ACTS), chance.uniform(0, 0.8) * first
            profile.acts.append(Act(number, at, kind, chance.randrange(100), chance.uniform(5, 60)))
    if chance.random() < 0.15:
        names = iter("qrstuvwxyz")
        for number in range(chance.choice((1, 1, 2))):
            version = number + (chance.random() < 0.8)
            if version > len(profile.revised):
                profile.revised += (_revised(chance, profile.programs[-1], names),)
            at, replaces = chance.uniform(2, first), chance.randint(1, profile.jobmanagers)
            rerun = chance.random() < 0.4
            profile.deployments.append(
                Deployment(number, at, min(version, len(profile.revised)), replaces, rerun)
            )
        profile.deployments.sort(key=lambda one: one.at)
    if chance.random() < 0.1:
        profile.clients = chance.choice((1, 2))


def _draw_more_faults(chance: random.Random, profile: Profile) -> None:
    """Draw what is rarer, apart as well."""
    if chance.random() < 0.2:
        profile.register.repeated = chance.uniform(0, 0.1)
        profile.storage.repeated = chance.uniform(0, 0.1)
    if not profile.one_host and chance.random() < 0.12:
        _isolate(chance, profile)
    if chance.random() < 0.1:
        profile.other_timing = Timing(*chance.choice(LEASES))
    if chance.random() < 0.1:
        profile.strikes = chance.uniform(0.002, 0.02)
    if chance.random() < 0.25:
        for number in range(len(profile.blows), len(profile.blows) + chance.choice((1, 2, 4))):
            at, kind = chance.uniform(0, profile.faults_end), chance.choice(RARE_BLOWS)
            profile.blows.append(Blow(number, at, kind, chance.randrange(100), 0.0))
        profile.blows.sort(key=lambda blow: blow.at)


def _draw_silence(chance: random.Random, profile: Profile) -> None:
    """Draw answers that are lost for longer than any patience, and guardians that stand still."""
    if chance.random() < 0.3:
        profile.standing = chance.uniform(0.2, 1.0)
    if chance.random() < 0.15:
        at, lasts_s = chance.uniform(0, 30), PATIENCE_S * chance.uniform(1.1, 2.0)
        silence = Blow(len(profile.blows), at, SILENCE, 0, lasts_s)
        profile.blows = sorted([*profile.blows, silence], key=lambda blow: blow.at)
        profile.faults_end = max(profile.faults_end, at + lasts_s + 10)


def _isolate(chance: random.Random, profile: Profile) -> None:
    """Let a TaskManager be cut off around its timeout, with a job that runs for longer."""
    if not profile.program.stages:
        return
    (first, *others), *later = profile.program.stages
    long = replace(first, runs_s=chance.uniform(40, 80), raises=0, kills=0)
    profile.program = replace(profile.program, stages=((long, *others), *later))
    at, lasts_s = chance.uniform(6, 20), ORPHAN_S * chance.uniform(0.6, 1.5)
    kind, number = "cut a TaskManager off", len(profile.blows)
    profile.blows.append(Blow(number, at, kind, chance.randrange(100), lasts_s))
    profile.blows.sort(key=lambda blow: blow.at)
    profile.faults_end = max(profile.faults_end, at + lasts_s + 10)


def _revised(chance: random.Random, program: Program, names: Iterator[str]) -> Program:
    """Return a program that a person has changed: a stage less, another job, another order."""
    stages = [stage for stage in program.stages if chance.random() < 0.8]
    if chance.random() < 0.6:
        stages.insert(chance.randrange(len(stages) + 1), (_job(chance, next(names)),))
    if chance.random() < 0.2:
        chance.shuffle(stages)
    return Program(tuple(stages), (), program.catches)


def _program(chance: random.Random) -> Program:
    names = iter("abcdefghijklmnop")
    stages = tuple(
        tuple(_job(chance, next(names)) for _ in range(chance.choice((1, 1, 2))))
        for _ in range(chance.choice((0, 1, 1, 2, 2, 3)))
    )
    detours: tuple[tuple[tuple[Job, ...], ...], ...] = ()
    if chance.random() < 0.25 and stages:
        other = tuple((_job(chance, next(names)),) for _ in range(chance.choice((1, 2))))
        detours = ((*stages[: chance.randrange(len(stages))], *other), stages)
    return Program(stages, detours, catches=chance.random() < 0.5)


def _job(chance: random.Random, name: str) -> Job:
    drawn = chance.random()
    return Job(
        name,
        runs_s=chance.choice((0.1, 1.0, 5.0, 20.0)) * chance.uniform(0.5, 1.5),
        raises=chance.choice((1, 2, 5)) if drawn < 0.15 else 0,
        kills=1 if 0.15 < drawn < 0.25 else 0,
        cancelled=0.25 < drawn < 0.3,
    )


def _odds(chance: random.Random) -> Odds:
    def some(share: float, most: float) -> float:
        return chance.uniform(0.1, 1) * most if chance.random() < share else 0.0

    return Odds(
        fails=some(0.3, 0.2),
        request_lost=some(0.25, 0.1),
        answer_lost=some(0.4, 0.2),
        late=some(0.3, 0.1),
        slow=some(0.3, 0.3),
        crash=some(0.4, 0.03),
        pause=some(0.3, 0.02),
        stale=some(0.3, 0.05),
        latency_s=chance.choice((0.001, 0.001, 0.02, 0.2)),
    )


BLOWS = (
    "crash a JobManager",
    "crash a TaskManager",
    "crash a driver",
    "crash a main",
    "pause a JobManager",
    "pause a TaskManager",
    "pause a driver",
    "pause a main",
    "freeze a JobManager with its guardian",
    "freeze a TaskManager with its guardian",
    "freeze a host",
    "cut a TaskManager off",
    "the register is down",
    "the storage is down",
)

RESET = "the connections of a host are reset"

SILENCE = "the storage is silent"  # It does what it is asked for, and says nothing.

RARE_BLOWS = (
    "the wall clock of a host jumps",
    "the clock of a host jumps ahead",
    "the clock of a host runs at another rate",
    RESET,
)

ACTS = (
    "delete a result file",
    "edit a result file",
    "delete a staged file",
    "edit a staged file",
    "delete a plan",
    "edit a plan",
    "delete the record",
    "edit the record",
    "delete a tombstone's file",
    "edit a tombstone's file",
    "delete a document",
    "edit a document",
    "edit the registry",
    "edit the leader's record",
    "delete the leader's record",
    "put foreign files",
    "put foreign documents",
    "cancel a job",
    "cancel the application",
)

CHECKPOINT_ACTS = ("delete a job's checkpoints", "edit a job's checkpoints")


def _blows(chance: random.Random, profile: Profile) -> list[Blow]:
    kinds = chance.sample(BLOWS, chance.randint(1, 6))
    blows = []
    for number in range(chance.choice((0, 1, 2, 4, 8))):
        # Most of what matters happens early, while there is still something to be lost.
        at = min(chance.expovariate(1 / 12), profile.faults_end)
        lasts_s = chance.choice(LIMITS) * chance.uniform(0.4, 1.6)
        blows.append(Blow(number, at, chance.choice(kinds), chance.randrange(100), lasts_s))
    return sorted(blows, key=lambda blow: blow.at)
