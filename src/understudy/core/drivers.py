"""Which drivers a TaskManager should have: one per slot, plus warm spares, as the leader wants.

A spare replaces a driver that was lost or retired; then a new spare is started. A driver is retired
where another application needs its seat, or where its own application is not served any more. The
drivers of one application start one after the other, as each start uses all cores of a small
machine for some seconds.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from understudy.core.backoff import Backoff
from understudy.model import ApplicationId, Incarnation

STARTING_MAX = 1
"""Drivers of one purpose that start at once."""

STARTING_IN_ALL_MAX = 3
"""Drivers that start at once: one that never becomes warm must not delay other applications."""

FAILED_MAX = 3
KILLED_MAX = 20
"""With the pauses between them, this many kills take a quarter of an hour before a run fails."""

START_BACKOFF = Backoff(1.0, 60.0)


class Purpose(Struct, frozen=True):
    """What a driver serves: the jobs of one application, with one session profile."""

    application_id: ApplicationId
    profile: str
    """The profile's digest."""


ANY = Purpose(ApplicationId(""), "")
"""The purpose of a driver that serves every job, as the threads of an embedded cluster do."""


class DriverState(enum.Enum):
    """The state of a driver; REST shows the value."""

    STARTING = "starting"
    WARM = "warm"
    BUSY = "busy"
    ENDING = "ending"


class Seat(Struct, frozen=True):
    """A driver, its slot (from 1; None for a spare), its state and its purpose."""

    driver: Incarnation
    slot: int | None
    state: DriverState
    purpose: Purpose = ANY
    runs: bool = False
    """An attempt runs in it."""
    uses_cores: bool = True
    """False while it waits for its code and its Python, with no process of its own."""


class Promote(Struct, frozen=True):
    """Move a spare into a slot."""

    driver: Incarnation
    slot: int


class Retire(Struct, frozen=True):
    """End an idle driver."""

    driver: Incarnation


class Start(Struct, frozen=True):
    """Start a driver for a slot, or as a spare."""

    slot: int | None
    purpose: Purpose


Action = Promote | Retire | Start

IDLE = (DriverState.STARTING, DriverState.WARM)


def arrange(
    seats: Iterable[Seat],
    slots: int,
    spares: int,
    wanted: Sequence[Purpose],
    resting: frozenset[Purpose] = frozenset(),
) -> list[Action]:
    """Return the actions that bring a TaskManager's drivers to what the leader wants.

    ``wanted`` has an entry for each driver, the most important first; drivers of ``resting``
    purposes are not started just now. A busy driver is never touched.
    """
    seats = list(seats)
    missing, surplus = _compared(seats, wanted)
    missing = [purpose for purpose in missing if purpose not in resting]
    retired = _retired(seats, slots + spares, missing, surplus, frozenset(wanted))
    actions: list[Action] = [Retire(driver) for driver in retired]
    # A driver that is ending keeps its seat until it is reaped: its memory is still in use.
    taken = {seat.slot for seat in seats if seat.slot is not None}
    empty = [slot for slot in range(1, slots + 1) if slot not in taken]
    spare = [
        seat
        for seat in seats
        if seat.slot is None
        and seat.state is not DriverState.ENDING
        and seat.driver not in retired
        and seat.purpose in wanted
    ]
    spare.sort(key=lambda seat: (seat.state is not DriverState.WARM, wanted.index(seat.purpose)))
    for seat in spare[: len(empty)]:
        actions.append(Promote(seat.driver, empty.pop(0)))
    room = slots + spares - len(seats)
    starting = Counter(seat.purpose for seat in seats if seat.state is DriverState.STARTING)
    busy = sum(seat.state is DriverState.STARTING and seat.uses_cores for seat in seats)
    places: list[int | None] = [*empty, *[None] * (slots + spares)]
    for purpose in missing:
        if room <= 0 or busy >= STARTING_IN_ALL_MAX:
            break
        if starting[purpose] < STARTING_MAX:
            starting[purpose] += 1
            busy += 1
            room -= 1
            actions.append(Start(places.pop(0), purpose))
    return actions


def _compared(seats: Iterable[Seat], wanted: Sequence[Purpose]) -> tuple[list[Purpose], list[Seat]]:
    """Return the purposes that lack a driver, and the idle drivers beyond what is wanted."""
    lacking = Counter(wanted)
    lacking.subtract(seat.purpose for seat in seats if seat.state is DriverState.BUSY)
    surplus = []
    idle = (seat for seat in seats if seat.state in IDLE)
    for seat in sorted(
        idle, key=lambda seat: (seat.state is not DriverState.WARM, seat.slot is None)
    ):
        if lacking[seat.purpose] > 0:
            lacking[seat.purpose] -= 1
        else:
            surplus.append(seat)
    missing = []
    for purpose in reversed(wanted):  # Of equal ones, those that are there are the first.
        if lacking[purpose] > 0:
            lacking[purpose] -= 1
            missing.append(purpose)
    return missing[::-1], surplus


def _retired(
    seats: Sequence[Seat],
    size: int,
    missing: Sequence[Purpose],
    surplus: Sequence[Seat],
    wanted: frozenset[Purpose],
) -> set[Incarnation]:
    """Return the idle drivers to end: of no wanted purpose, or in the place of a missing driver."""
    retired = [seat.driver for seat in surplus if seat.purpose not in wanted]
    leaving = len(retired) + sum(seat.state is DriverState.ENDING for seat in seats)
    short = min(len(missing), len(missing) - (size - len(seats)) - leaving)
    others = [seat.driver for seat in surplus if seat.purpose in wanted]
    return {*retired, *others[len(others) - max(0, min(short, len(others))) :]}


class Starts(Struct, frozen=True):
    """Failed driver starts since a driver was last warm."""

    failed: int = 0
    """Drivers that exited by themselves or were never ready, mostly because of wrong settings."""
    killed: int = 0
    """Drivers killed from outside or with their JVM, mostly by accident or for lack of memory."""


def start_pause_s(starts: Starts) -> float:
    """Return the pause before the next start after these failures."""
    return START_BACKOFF.pause_s(starts.failed + starts.killed)


def hopeless(starts: Starts) -> bool:
    """Return whether so many starts failed that none is expected to succeed."""
    return starts.failed >= FAILED_MAX or starts.failed + starts.killed >= KILLED_MAX
