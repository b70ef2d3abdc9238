"""Slot allocation: the ResourceManager's ledger of which TaskManager runs which job.

Only slots with a warm driver of the job's application and profile are allocated. Jobs of one
application are served first come, first served. Between applications the highest priority comes
first, then the application that holds the fewest slots, then the one that has waited longest.

A job that finds no warm driver claims a place for one: a driver that is starting, an empty seat, or
the seat of an idle driver of another application. `wanted` tells each TaskManager which drivers to
have. A claimed place is given to no later job, so that an application whose drivers start slowly is
not passed over for ever.

The ledger combines the TaskManagers' reports with later allocations; a report never revokes a slot
that was allocated after it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from understudy.core.drivers import ANY, DriverState, Purpose, Seat
from understudy.model import ApplicationId, Incarnation, JobId

NOBODY = Incarnation("")
"""The driver of a place that has none yet."""


class Placement(Struct, frozen=True):
    """A slot, named by its TaskManager and driver."""

    taskmanager: Incarnation
    driver: Incarnation


class Request(Struct, frozen=True):
    """A job that wants a slot."""

    job_id: JobId
    purpose: Purpose
    priority: int = 0
    """Requests of higher priority are served first."""
    number: int = 0
    """Grows with each request of the ledger."""


class Held(Struct, frozen=True):
    """A slot that a job holds, and what the driver in it serves."""

    placement: Placement
    purpose: Purpose


class Workplace(Struct, frozen=True):
    """A TaskManager as it has reported itself."""

    slots: int
    spares: int = 0
    seats: tuple[Seat, ...] = ()
    """Its drivers."""


class Ledger(Struct, frozen=True):
    """TaskManagers, allocated slots and waiting jobs."""

    workplaces: Mapping[Incarnation, Workplace] = field(default_factory=dict)
    given: Mapping[JobId, Held] = field(default_factory=dict)
    queues: Mapping[ApplicationId, Mapping[JobId, Request]] = field(default_factory=dict)
    """The waiting requests of each application, oldest first."""
    served: tuple[Purpose, ...] = ()
    """What drivers are kept for, the last used last."""
    failing: frozenset[tuple[Incarnation, Purpose]] = frozenset()
    """TaskManagers that could not start a driver for a purpose: others are preferred."""
    carries: int | None = None
    """How many jobs the Spark cluster can run at once; None if unknown."""
    requests: int = 0
    """How many requests there were."""


class Offer(Struct, frozen=True):
    """Allocate this slot to that job."""

    job_id: JobId
    placement: Placement


Step = tuple[Ledger, list[Offer]]


# --- jobs -----------------------------------------------------------------------------------------


def request(ledger: Ledger, job_id: JobId, purpose: Purpose, priority: int = 0) -> Step:
    """Request a slot; a request that cannot be served waits in its application's queue."""
    queue = ledger.queues.get(purpose.application_id, {})
    if job_id in ledger.given or job_id in queue:
        return ledger, []
    number = ledger.requests + 1
    queue = {**queue, job_id: Request(job_id, purpose, priority, number)}
    queues = {**ledger.queues, purpose.application_id: queue}
    return _serve(replace(ledger, queues=queues, requests=number))


def withdraw(ledger: Ledger, job_id: JobId) -> Step:
    """Withdraw a job's request, or release its slot."""
    given = {job: held for job, held in ledger.given.items() if job != job_id}
    return _serve(replace(_without(ledger, {job_id}), given=given))


def occupy(ledger: Ledger, job_id: JobId, placement: Placement, purpose: Purpose) -> Ledger:
    """Record that a job runs in a slot that an earlier leader allocated."""
    return replace(ledger, given={**ledger.given, job_id: Held(placement, purpose)})


def waiting(ledger: Ledger) -> tuple[JobId, ...]:
    """Return the waiting jobs in the order in which they would be served now."""
    return tuple(request.job_id for request in _in_fair_order(ledger))


# --- applications ---------------------------------------------------------------------------------


def serve(ledger: Ledger, purpose: Purpose) -> Ledger:
    """Keep drivers for this purpose, which counts as used last."""
    others = tuple(one for one in ledger.served if one != purpose)
    return replace(ledger, served=(*others, purpose))


def leave(ledger: Ledger, application: ApplicationId) -> Step:
    """Forget an application: its requests, its slots, and what drivers are kept for it."""
    jobs = {job for job, held in ledger.given.items() if held.purpose.application_id == application}
    return _serve(
        replace(
            ledger,
            given={job: held for job, held in ledger.given.items() if job not in jobs},
            queues={key: queue for key, queue in ledger.queues.items() if key != application},
            served=tuple(one for one in ledger.served if one.application_id != application),
            failing=frozenset(
                one for one in ledger.failing if one[1].application_id != application
            ),
        )
    )


# --- TaskManagers ---------------------------------------------------------------------------------


def report(
    ledger: Ledger, taskmanager: Incarnation, workplace: Workplace, carries: int | None = None
) -> Step:
    """Apply a report: a TaskManager's drivers, and the Spark cluster's capacity in jobs."""
    carries = ledger.carries if carries is None else carries
    warm = {seat.purpose for seat in workplace.seats if seat.state is DriverState.WARM}
    failing = frozenset(
        (where, purpose)
        for where, purpose in ledger.failing
        if where != taskmanager or purpose not in warm
    )
    workplaces = {**ledger.workplaces, taskmanager: workplace}
    return _serve(replace(ledger, workplaces=workplaces, carries=carries, failing=failing))


def cannot_start(ledger: Ledger, taskmanager: Incarnation, application: ApplicationId) -> Ledger:
    """Prefer other TaskManagers for an application's drivers, until one is warm here."""
    purposes = (one for one in ledger.served if one.application_id == application)
    return replace(ledger, failing=ledger.failing | {(taskmanager, one) for one in purposes})


def gone(ledger: Ledger, taskmanager: Incarnation) -> Ledger:
    """Forget a TaskManager: its slots are offered no more; its jobs release theirs themselves."""
    workplaces = {known: one for known, one in ledger.workplaces.items() if known != taskmanager}
    failing = frozenset(one for one in ledger.failing if one[0] != taskmanager)
    return replace(ledger, workplaces=workplaces, failing=failing)


def wanted(ledger: Ledger) -> dict[Incarnation, tuple[Purpose, ...]]:
    """Return the drivers that each TaskManager shall have, the most important first.

    First those of jobs that run, then those that waiting jobs have claimed, then the idle ones that
    are there. What is left goes to the purposes that were used last.
    """
    floor = _Floor(ledger)
    for one in _in_fair_order(ledger):
        if floor.claim(one) is None:
            break
    return {name: floor.wanted(name) for name in ledger.workplaces}


# --- how it is decided ----------------------------------------------------------------------------


def _in_fair_order(ledger: Ledger) -> Iterator[Request]:
    """Yield the waiting requests, each as if those before it held a slot."""
    holds = Counter(held.purpose.application_id for held in ledger.given.values())
    lines = {application: iter(queue.values()) for application, queue in ledger.queues.items()}
    heads: list[tuple[int, int, int, Request]] = []  # No two have the same number.

    def put(application: ApplicationId) -> None:
        if head := next(lines[application], None):
            heapq.heappush(heads, (-head.priority, holds[application], head.number, head))

    for application in lines:
        put(application)
    while heads:
        first = heapq.heappop(heads)[-1]
        yield first
        holds[first.purpose.application_id] += 1
        put(first.purpose.application_id)


def _serve(ledger: Ledger) -> Step:
    floor = _Floor(ledger)
    served: dict[JobId, Held] = {}
    for one in _in_fair_order(ledger):
        placement = floor.claim(one)
        if placement is None:
            break
        if placement.driver != NOBODY:
            served[one.job_id] = Held(placement, one.purpose)
    if not served:
        return ledger, []
    for held in served.values():
        ledger = serve(ledger, held.purpose)
    ledger = replace(_without(ledger, set(served)), given={**ledger.given, **served})
    return ledger, [Offer(job_id, held.placement) for job_id, held in served.items()]


def _without(ledger: Ledger, jobs: set[JobId]) -> Ledger:
    queues = {}
    for application, queue in ledger.queues.items():
        left = queue
        if not jobs.isdisjoint(queue):
            left = {job_id: one for job_id, one in queue.items() if job_id not in jobs}
        if left:
            queues[application] = left
    return replace(ledger, queues=queues)


class _Floor:
    """The seats of all TaskManagers while requests claim them, one after the other."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._recent = {purpose: -age for age, purpose in enumerate(reversed(ledger.served))}
        self._wanted: dict[Incarnation, list[Purpose]] = {name: [] for name in ledger.workplaces}
        self._idle: dict[Incarnation, list[Seat]] = {}
        self._busy = Counter(held.placement.taskmanager for held in ledger.given.values())
        self._running = len(ledger.given)
        for held in ledger.given.values():
            if held.placement.taskmanager in self._wanted:
                self._wanted[held.placement.taskmanager].append(held.purpose)
        taken = {held.placement.driver for held in ledger.given.values()}
        for name, workplace in ledger.workplaces.items():
            self._idle[name] = []
            for seat in workplace.seats:
                if seat.driver in taken or seat.state is DriverState.ENDING:
                    continue
                if seat.runs:  # Of a job that no application here knows, or has given up.
                    self._busy[name] += 1
                    self._wanted[name].append(seat.purpose)
                else:
                    self._idle[name].append(seat)

    def claim(self, request: Request) -> Placement | None:
        """Claim a place for a request; its driver is empty where none is warm yet.

        None: every slot is taken, or the Spark cluster carries no more jobs.
        """
        carries = self._ledger.carries
        if carries is not None and self._running >= carries:
            return None
        # The least busy TaskManager first, so that one loss affects the fewest jobs.
        free = sorted(
            (
                name
                for name, workplace in self._ledger.workplaces.items()
                if self._busy[name] < workplace.slots
            ),
            key=lambda name: self._busy[name],
        )
        if not free:
            return None
        ways = (
            self._in_slot,
            self._settling,
            self._spare,
            self._coming,
            self._empty,
            self._of_others,
        )
        failing = self._ledger.failing
        sound = [name for name in free if (name, request.purpose) not in failing]
        for names in (sound, free):
            for way in ways:
                for name in names:
                    if (driver := way(name, request.purpose)) is not None:
                        self._busy[name] += 1
                        self._running += 1
                        self._wanted[name].append(request.purpose)
                        return Placement(name, driver)
        return None

    def wanted(self, name: Incarnation) -> tuple[Purpose, ...]:
        """Return the drivers that a TaskManager shall have."""
        found = self._wanted[name]
        workplace = self._ledger.workplaces[name]
        size = workplace.slots + workplace.spares
        rest = [seat.purpose for seat in self._idle[name] if seat.purpose in self._recent]
        found += sorted(rest, key=lambda purpose: self._recent[purpose], reverse=True)
        found = found[: max(size, len(found) - len(rest))]
        counts = Counter(found)
        while self._recent and len(found) < size:
            purpose = min(self._recent, key=lambda one: (counts[one], -self._recent[one]))
            counts[purpose] += 1
            found.append(purpose)
        return tuple(found)

    def _in_slot(self, name: Incarnation, purpose: Purpose) -> Incarnation | None:
        """Take a warm driver that has a slot."""
        seat = self._take(name, purpose, lambda seat: _seated(seat, DriverState.WARM))
        return seat.driver if seat else None

    def _settling(self, name: Incarnation, purpose: Purpose) -> Incarnation | None:
        """Wait for a driver whose attempt has just ended: it is warm, or ending, in a moment."""
        seat = self._take(name, purpose, lambda seat: _seated(seat, DriverState.BUSY))
        return NOBODY if seat else None

    def _spare(self, name: Incarnation, purpose: Purpose) -> Incarnation | None:
        """Take a warm spare."""
        seat = self._take(name, purpose, lambda seat: seat.state is DriverState.WARM)
        return seat.driver if seat else None

    def _coming(self, name: Incarnation, purpose: Purpose) -> Incarnation | None:
        """Wait for a driver that is going to be warm."""
        seat = self._take(name, purpose, lambda seat: seat.state is not DriverState.WARM)
        return NOBODY if seat else None

    def _take(
        self, name: Incarnation, purpose: Purpose, fits: Callable[[Seat], bool]
    ) -> Seat | None:
        """Take the first idle driver of this purpose that fits."""
        for seat in self._idle[name]:
            if seat.purpose in (purpose, ANY) and fits(seat):
                self._idle[name].remove(seat)
                return seat
        return None

    def _empty(self, name: Incarnation, purpose: Purpose) -> Incarnation | None:
        """Take a seat without a driver."""
        workplace = self._ledger.workplaces[name]
        size = workplace.slots + workplace.spares
        return NOBODY if len(self._wanted[name]) + len(self._idle[name]) < size else None

    def _of_others(self, name: Incarnation, purpose: Purpose) -> Incarnation | None:
        """Take the seat of an idle driver, of the purpose that was used least recently."""
        if not self._idle[name]:
            return None
        self._idle[name].remove(min(self._idle[name], key=lambda seat: self._age(seat.purpose)))
        return NOBODY

    def _age(self, purpose: Purpose) -> int:
        return self._recent.get(purpose, -len(self._recent))


def _seated(seat: Seat, state: DriverState) -> bool:
    return seat.state is state and seat.slot is not None
