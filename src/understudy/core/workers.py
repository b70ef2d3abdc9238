"""Workers: how many TaskManagers a leader asks for, and which it lets go.

A worker is the place of one TaskManager, provided on request, as a pod by Kubernetes. Workers are
asked for when jobs wait for more slots than are free or coming, and let go when they have been
without work for a time and are not needed. What an earlier leader asked for is found first, and
counted. A worker that does not come, or ends before its TaskManager has registered, is replaced
after a pause that doubles; meanwhile its problem is why jobs wait.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Mapping
from typing import NewType

from msgspec import Struct, field
from msgspec.structs import replace

from understudy.config import Configuration, options
from understudy.core.backoff import Backoff
from understudy.core.slots import Ledger
from understudy.model import Incarnation, Term

WorkerId = NewType("WorkerId", str)
"""``TERM-NUMBER``: a leader never gives one twice, so that a repeated request asks for nothing."""

RETRY_MAX_S = 300.0
"""Longest pause after failures: a quota or an image that is put right is noticed within minutes."""


class WorkerState(enum.Enum):
    """What the provider says of a worker."""

    COMING = "coming"
    """It was asked for, and does not run yet."""
    RUNNING = "running"
    ENDING = "ending"
    """It was asked to end; its processes may live."""
    DEAD = "dead"
    """All its processes are proved dead."""


class SeenWorker(Struct, frozen=True):
    """A worker as its provider sees it."""

    worker: WorkerId
    incarnation: Incarnation
    """Of the TaskManager that runs there."""
    state: WorkerState
    problem: str = ""
    """Why it does not run yet, or how it has ended."""


class Load(Struct, frozen=True):
    """A registered TaskManager's slots, and how many of them run jobs."""

    slots: int
    busy: int


class PoolLimits(Struct, frozen=True):
    """The options of a pool."""

    slots: int
    """Of each worker."""
    slots_min: int
    slots_max: int
    redundant: int
    """Workers beyond what is needed, while anything is."""
    idle_s: float
    registration_s: float
    """How long a worker may take until its TaskManager registers."""
    recovery_s: float
    """The same, for one that ran before this leader was there."""
    retry: Backoff

    @classmethod
    def of(cls, configuration: Configuration) -> PoolLimits:
        """Return the limits of a configuration."""
        return cls(
            configuration.get(options.SLOTS),
            configuration.get(options.SLOTS_MIN),
            configuration.get(options.SLOTS_MAX),
            configuration.get(options.REDUNDANT_WORKERS),
            configuration.get(options.WORKER_IDLE),
            configuration.get(options.WORKER_REGISTRATION),
            configuration.get(options.ADOPTION_GRACE),
            Backoff(configuration.get(options.WORKER_RETRY), RETRY_MAX_S),
        )


class Worker(Struct, frozen=True):
    """A worker that this leader has found or asked for."""

    registers_by: float
    idle_since: float | None
    """None while it runs jobs."""
    seen: SeenWorker | None = None
    """None until the provider has answered."""
    has_registered: bool = False
    is_let_go: bool = False
    dead_since: float | None = None


class Pool(Struct, frozen=True):
    """The workers of one term."""

    term: Term
    limits: PoolLimits
    workers: Mapping[WorkerId, Worker] = field(default_factory=dict)
    taskmanagers: Mapping[Incarnation, Load] = field(default_factory=dict)
    waiting: int = 0
    is_known: bool = False
    """Whether the provider has said which workers there are."""
    asked: int = 0
    """How many workers were asked for in this term."""
    failures: int = 0
    """How many workers in a row have not come."""
    asks_from: float = 0.0
    """The time before which none is asked for."""
    problem: str = ""
    """Why the last one has not come."""


# --- events ---------------------------------------------------------------------------------------


class Demand(Struct, frozen=True):
    """What jobs need, and what TaskManagers have."""

    waiting: int
    """Jobs that wait for a slot, and could run if they had one."""
    taskmanagers: Mapping[Incarnation, Load]


class WorkersListed(Struct, frozen=True):
    """All workers that there are, as the provider sees them."""

    seen: tuple[SeenWorker, ...]


class WorkerRefused(Struct, frozen=True):
    """The provider does not give a worker."""

    worker: WorkerId
    problem: str


class WorkersUnseen(Struct, frozen=True):
    """The provider cannot be asked which workers there are."""

    problem: str


class TimePassed(Struct, frozen=True):
    """Nothing else has happened."""


Event = Demand | WorkersListed | WorkerRefused | WorkersUnseen | TimePassed


def demand_of(ledger: Ledger) -> Demand:
    """Return what a ledger of slots needs, and has."""
    waiting = sum(len(queue) for queue in ledger.queues.values())
    if ledger.carries is not None:
        waiting = min(waiting, max(0, ledger.carries - len(ledger.given)))
    busy = Counter(held.placement.taskmanager for held in ledger.given.values())
    taken = {held.placement.driver for held in ledger.given.values()}
    for name, workplace in ledger.workplaces.items():
        # Attempts of applications that are parked, and of those that no application here knows.
        busy[name] += sum(seat.runs and seat.driver not in taken for seat in workplace.seats)
    loads = {name: Load(one.slots, busy[name]) for name, one in ledger.workplaces.items()}
    return Demand(waiting, loads)


# --- commands -------------------------------------------------------------------------------------


class Create(Struct, frozen=True):
    """Ask for a worker."""

    worker: WorkerId


class Remove(Struct, frozen=True):
    """Let a worker go, or remove what is left of it."""

    worker: WorkerId
    why: str


Command = Create | Remove
Step = tuple[Pool, list[Command]]


def step(pool: Pool, event: Event, now: float) -> Step:
    """Take an event in, and decide which workers to ask for and to let go."""
    match event:
        case Demand(waiting, taskmanagers):
            pool = _loaded(replace(pool, waiting=waiting, taskmanagers=taskmanagers), now)
        case WorkersListed(seen):
            pool = _listed(pool, {one.worker: one for one in seen}, now)
        case WorkerRefused(worker, problem) if worker in pool.workers:
            left = {name: one for name, one in pool.workers.items() if name != worker}
            pool = _failed(replace(pool, workers=left), problem, now)
        case WorkersUnseen(problem):
            pool = replace(pool, problem=problem)
        case _:
            pass
    if not pool.is_known:
        return pool, []
    pool, gone = _let_go_lost(pool, now)
    pool, created = _asked_for(pool, now)
    pool, surplus = _let_go_idle(pool, now)
    return pool, [*gone, *created, *surplus]


def next_look(pool: Pool, now: float) -> float | None:
    """Return when something has to be decided although nothing happens; None: never."""
    times = [pool.asks_from] if _lacks(pool) > 0 else []
    for one in pool.workers.values():
        if one.dead_since is not None:
            times.append(one.dead_since + pool.limits.idle_s)
        elif not one.is_let_go:
            if one.idle_since is not None:
                times.append(one.idle_since + pool.limits.idle_s)
            if not one.has_registered:
                times.append(one.registers_by)
    return min((at for at in times if at > now), default=None)


def why_none(pool: Pool) -> str:
    """Return why no further TaskManager is there; empty if nothing is known to be wrong."""
    for name, one in pool.workers.items():
        if one.seen and one.seen.state is WorkerState.COMING and one.seen.problem:
            return f"TaskManager {name}: {one.seen.problem}"
    if not pool.problem and _lacks(pool) > 0 and not _room(pool):
        return f"slotmanager.number-of-slots.max is {pool.limits.slots_max}"
    return pool.problem


def going(pool: Pool) -> frozenset[Incarnation]:
    """Return the TaskManagers that get no further job, as their workers end."""
    return frozenset(
        one.seen.incarnation for one in pool.workers.values() if one.seen and not _stays(one)
    )


def dead(pool: Pool) -> frozenset[Incarnation]:
    """Return the TaskManagers that are proved dead."""
    return frozenset(
        one.seen.incarnation
        for one in pool.workers.values()
        if one.seen and one.seen.state is WorkerState.DEAD
    )


# --- how it is decided ----------------------------------------------------------------------------


def _stays(worker: Worker) -> bool:
    state = worker.seen.state if worker.seen else WorkerState.COMING
    return not worker.is_let_go and state in (WorkerState.COMING, WorkerState.RUNNING)


def _coming(pool: Pool) -> int:
    """Return how many workers are going to register."""
    return sum(not one.has_registered for one in pool.workers.values() if _stays(one))


def _staying(pool: Pool) -> dict[Incarnation, Load]:
    leaving = going(pool)
    return {name: load for name, load in pool.taskmanagers.items() if name not in leaving}


def _free(pool: Pool) -> int:
    """Return the slots that run nothing, or are coming."""
    free = sum(max(0, one.slots - one.busy) for one in _staying(pool).values())
    return free + _coming(pool) * pool.limits.slots


def _total(pool: Pool) -> int:
    slots = sum(one.slots for one in _staying(pool).values())
    return slots + _coming(pool) * pool.limits.slots


def _wanted_free(pool: Pool) -> int:
    """Return how many slots must be free: for waiting jobs, and for those that lose theirs."""
    staying = _staying(pool)
    losing = sum(load.busy for name, load in pool.taskmanagers.items() if name not in staying)
    needed = pool.waiting + losing
    in_use = needed or any(load.busy for load in staying.values())
    return needed + (pool.limits.redundant * pool.limits.slots if in_use else 0)


def _lacks(pool: Pool) -> int:
    """Return how many slots are missing, whether or not they may be had."""
    return max(_wanted_free(pool) - _free(pool), pool.limits.slots_min - _total(pool))


def _room(pool: Pool) -> int:
    """Return how many workers may be asked for."""
    return max(0, (pool.limits.slots_max - _total(pool)) // pool.limits.slots)


def _loaded(pool: Pool, now: float) -> Pool:
    """Note which workers have registered, and which are idle."""
    workers, come = {}, False
    for name, one in pool.workers.items():
        load = pool.taskmanagers.get(one.seen.incarnation) if one.seen else None
        if load:
            come = come or not one.has_registered
            since = one.idle_since if one.has_registered else None
            idle_since = None if load.busy else now if since is None else since
            workers[name] = replace(one, has_registered=True, idle_since=idle_since)
        else:
            workers[name] = one
    if come:
        return replace(pool, workers=workers, failures=0, asks_from=now, problem="")
    return replace(pool, workers=workers)


def _listed(pool: Pool, seen: Mapping[WorkerId, SeenWorker], now: float) -> Pool:
    """Take in what the provider sees."""
    workers: dict[WorkerId, Worker] = {}
    problems: list[str] = []
    for name, one in pool.workers.items():
        if name in seen or one.seen is None:  # Not seen yet: its request is under way.
            workers[name] = one
        elif not (one.is_let_go or one.has_registered or one.dead_since is not None):
            problems.append(f"TaskManager {name} was removed before it registered")
    for name, found in seen.items():
        one = workers.get(name) or _found(pool, found, now)
        if one.dead_since is not None:
            continue  # Death is final, whatever is seen later.
        if found.state is WorkerState.DEAD:
            one = replace(one, dead_since=now)
            if not (one.is_let_go or one.has_registered) and pool.is_known:
                problems.append(f"TaskManager {name} ended before it registered: {found.problem}")
        workers[name] = replace(one, seen=found)
    problem = pool.problem if pool.failures else ""
    pool = _loaded(replace(pool, workers=workers, is_known=True, problem=problem), now)
    return _failed(pool, problems[-1], now) if problems else pool


def _found(pool: Pool, seen: SeenWorker, now: float) -> Worker:
    """Return a worker that an earlier leader has asked for."""
    runs = seen.state is WorkerState.RUNNING
    limit_s = pool.limits.recovery_s if runs else pool.limits.registration_s
    return Worker(now + limit_s, now)


def _failed(pool: Pool, problem: str, now: float) -> Pool:
    """Note that a worker has not come; those that were asked for with it count as one failure."""
    if now < pool.asks_from:
        return replace(pool, problem=problem)
    failures = pool.failures + 1
    asks_from = now + pool.limits.retry.pause_s(failures)
    return replace(pool, failures=failures, asks_from=asks_from, problem=problem)


def _let_go_lost(pool: Pool, now: float) -> Step:
    """Let workers go that do not register, or are lost, and what is left of the dead.

    What is left of a dead one stays for a while: people read its log, and the next leader may need
    the proof.
    """
    commands: list[Command] = []
    for name, one in pool.workers.items():
        if one.is_let_go or one.seen is None:
            continue
        if one.dead_since is not None:
            why = "it has ended" if now >= one.dead_since + pool.limits.idle_s else ""
        elif one.has_registered:
            lost = one.seen.incarnation not in pool.taskmanagers
            why = "its TaskManager was given up" if lost else ""
        elif now >= one.registers_by:
            why = "its TaskManager has not registered in time"
            if _stays(one):
                pool = _failed(pool, f"TaskManager {name}: {one.seen.problem or why}", now)
        else:
            why = ""
        if why:
            pool = _without(pool, name)
            commands.append(Remove(name, why))
    return pool, commands


def _without(pool: Pool, name: WorkerId) -> Pool:
    """Count a worker no longer; it stays in view until the provider sees it no more."""
    gone = replace(pool.workers[name], is_let_go=True)
    return replace(pool, workers={**pool.workers, name: gone})


def _asked_for(pool: Pool, now: float) -> Step:
    lacks = _lacks(pool)
    if lacks <= 0 or now < pool.asks_from:
        return pool, []
    count = min(math.ceil(lacks / pool.limits.slots), _room(pool))
    if pool.failures:
        # One is tried, and none while another one may still come.
        count = min(count, 1 - min(1, _coming(pool)))
    numbers = range(pool.asked + 1, pool.asked + count + 1)
    names = [WorkerId(f"{pool.term}-{number}") for number in numbers]
    new = {name: Worker(now + pool.limits.registration_s, now) for name in names}
    pool = replace(pool, workers={**pool.workers, **new}, asked=pool.asked + count)
    return pool, [Create(name) for name in names]


def _let_go_idle(pool: Pool, now: float) -> Step:
    """Let workers go that have been idle for long, the longest idle first, as far as none lacks."""
    idle = [
        (one.idle_since, name)
        for name, one in pool.workers.items()
        if one.seen and _stays(one) and one.idle_since is not None
    ]
    commands: list[Command] = []
    for since, name in sorted(idle):
        seen = pool.workers[name].seen
        load = pool.taskmanagers.get(seen.incarnation) if seen else None
        slots = load.slots if load else pool.limits.slots
        if now >= since + pool.limits.idle_s and _lacks(pool) + slots <= 0:
            pool = _without(pool, name)
            commands.append(Remove(name, f"idle for {pool.limits.idle_s:g} s"))
    return pool, commands
