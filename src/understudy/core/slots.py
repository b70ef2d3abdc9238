"""Slot allocation: the ResourceManager's ledger of which TaskManager runs which job.

Only slots with a warm driver are allocated, first come, first served. The ledger combines the
TaskManagers' reports with later allocations; a report never revokes a slot that was allocated
after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from understudy.model import Incarnation, JobId


class Placement(Struct, frozen=True):
    """A slot, named by its TaskManager and driver."""

    taskmanager: Incarnation
    driver: Incarnation


class Ledger(Struct, frozen=True):
    """Warm slots, allocated slots and waiting jobs."""

    warm: Mapping[Incarnation, tuple[Incarnation, ...]] = field(default_factory=dict)
    """TaskManager → its warm drivers, in reported order."""
    given: Mapping[JobId, Placement] = field(default_factory=dict)
    waiting: tuple[JobId, ...] = ()
    carries: int | None = None
    """How many jobs the Spark cluster can run at once; None if unknown."""


class Offer(Struct, frozen=True):
    """Allocate this slot to that job."""

    job_id: JobId
    placement: Placement


def request(ledger: Ledger, job_id: JobId) -> tuple[Ledger, list[Offer]]:
    """Request a slot; a request that cannot be served waits in the queue."""
    if job_id in ledger.given or job_id in ledger.waiting:
        return ledger, []
    return _serve(replace(ledger, waiting=(*ledger.waiting, job_id)))


def withdraw(ledger: Ledger, job_id: JobId) -> tuple[Ledger, list[Offer]]:
    """Withdraw a job's request, or release its slot."""
    given = {job: place for job, place in ledger.given.items() if job != job_id}
    waiting = tuple(job for job in ledger.waiting if job != job_id)
    return _serve(replace(ledger, given=given, waiting=waiting))


def occupy(ledger: Ledger, job_id: JobId, placement: Placement) -> Ledger:
    """Record that a job runs in a slot that an earlier leader allocated."""
    return replace(ledger, given={**ledger.given, job_id: placement})


def report(
    ledger: Ledger,
    taskmanager: Incarnation,
    warm: tuple[Incarnation, ...],
    carries: int | None = None,
) -> tuple[Ledger, list[Offer]]:
    """Apply a report: a TaskManager's warm drivers, and the Spark cluster's capacity in jobs."""
    carries = ledger.carries if carries is None else carries
    return _serve(replace(ledger, warm={**ledger.warm, taskmanager: warm}, carries=carries))


def gone(ledger: Ledger, taskmanager: Incarnation) -> Ledger:
    """Forget a TaskManager: its slots are offered no more; its jobs release theirs themselves."""
    warm = {known: drivers for known, drivers in ledger.warm.items() if known != taskmanager}
    return replace(ledger, warm=warm)


def _serve(ledger: Ledger) -> tuple[Ledger, list[Offer]]:
    taken = {placement.driver for placement in ledger.given.values()}
    free = [
        Placement(taskmanager, driver)
        for taskmanager, drivers in ledger.warm.items()
        for driver in drivers
        if driver not in taken
    ]
    busy: dict[Incarnation, int] = {}
    for placement in ledger.given.values():
        busy[placement.taskmanager] = busy.get(placement.taskmanager, 0) + 1
    offers = []
    waiting, given = list(ledger.waiting), dict(ledger.given)
    while waiting and free and (ledger.carries is None or len(given) < ledger.carries):
        # The least busy TaskManager first, so that one loss affects the fewest jobs.
        best = min(free, key=lambda place: busy.get(place.taskmanager, 0))
        free.remove(best)
        busy[best.taskmanager] = busy.get(best.taskmanager, 0) + 1
        job_id = waiting.pop(0)
        given[job_id] = best
        offers.append(Offer(job_id, best))
    return replace(ledger, waiting=tuple(waiting), given=given), offers
