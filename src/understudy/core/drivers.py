"""Which drivers a TaskManager should have: one per slot, plus warm spares.

A spare replaces a driver that was lost or retired; then a new spare is started. Drivers start one
after the other, as each start uses all cores of a small machine for some seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from msgspec import Struct

from understudy.core.backoff import Backoff
from understudy.model import Incarnation

STARTING_MAX = 1

FAILED_MAX = 3
KILLED_MAX = 20
"""With the pauses between them, this many kills take a quarter of an hour before a run fails."""

START_BACKOFF = Backoff(1.0, 60.0)


class DriverState(enum.Enum):
    """The state of a driver; REST shows the value."""

    STARTING = "starting"
    WARM = "warm"
    BUSY = "busy"
    ENDING = "ending"


class Seat(Struct, frozen=True):
    """A driver, its slot (from 1; None for a spare) and its state."""

    driver: Incarnation
    slot: int | None
    state: DriverState


class Promote(Struct, frozen=True):
    """Move a spare into a slot."""

    driver: Incarnation
    slot: int


class Start(Struct, frozen=True):
    """Start a driver for a slot, or as a spare."""

    slot: int | None


def arrange(seats: Iterable[Seat], slots: int, spares: int) -> list[Promote | Start]:
    """Return the actions that fill slots and spares; warm spares move first."""
    seats = list(seats)
    living = [seat for seat in seats if seat.state is not DriverState.ENDING]
    # A driver that is ending keeps its seat until it is reaped: its memory is still in use.
    taken = {seat.slot for seat in seats if seat.slot is not None}
    empty = [slot for slot in range(1, slots + 1) if slot not in taken]
    available = sorted(
        (seat for seat in living if seat.slot is None),
        key=lambda seat: seat.state is not DriverState.WARM,
    )
    actions: list[Promote | Start] = []
    for seat in available:
        if empty:
            actions.append(Promote(seat.driver, empty.pop(0)))
    spares_left = max(0, len(available) - len(actions))
    wanted: list[int | None] = [*empty, *[None] * max(0, spares - spares_left)]
    starting = sum(seat.state is DriverState.STARTING for seat in living)
    actions.extend(Start(slot) for slot in wanted[: max(0, STARTING_MAX - starting)])
    return actions


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
