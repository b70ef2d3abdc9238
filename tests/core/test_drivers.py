from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from understudy.core.drivers import (
    STARTING_MAX,
    DriverState,
    Promote,
    Seat,
    Start,
    Starts,
    arrange,
    hopeless,
    start_pause_s,
)
from understudy.model import Incarnation

WORDS = {
    "starting": DriverState.STARTING,
    "warm": DriverState.WARM,
    "busy": DriverState.BUSY,
    "ending": DriverState.ENDING,
}


def seats(*told: str) -> list[Seat]:
    """Read "a: 1 warm" (driver a, in slot 1) and "b: warm" (driver b, a spare)."""
    found = []
    for line in told:
        name, _, rest = line.partition(": ")
        *slot, state = rest.split()
        found.append(Seat(Incarnation(name), int(slot[0]) if slot else None, WORDS[state]))
    return found


def promote(name: str, slot: int) -> Promote:
    return Promote(Incarnation(name), slot)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], [Start(1)]),
        (["a: 1 starting"], []),
        (["a: 1 warm"], [Start(2)]),
        (["a: 2 warm"], [Start(1)]),
        (["a: 1 warm", "b: 2 warm"], [Start(None)]),
        (["a: 1 busy", "b: 2 busy"], [Start(None)]),
        (["a: 1 warm", "b: 2 warm", "c: starting"], []),
        (["a: 1 warm", "b: 2 warm", "c: warm"], []),
        (["b: 2 busy", "c: warm"], [promote("c", 1), Start(None)]),
        (["b: 2 busy", "c: starting"], [promote("c", 1)]),
        (["b: 2 busy", "c: starting", "d: warm"], [promote("d", 1)]),
        (["c: warm"], [promote("c", 1), Start(2)]),
        (["c: warm", "d: warm"], [promote("c", 1), promote("d", 2), Start(None)]),
        (["c: starting", "d: warm"], [promote("d", 1), promote("c", 2)]),
        (["a: 1 ending", "b: 2 warm", "c: warm"], []),
        (["a: 1 ending", "b: 2 warm"], [Start(None)]),
        (["a: 1 ending", "b: 2 ending"], [Start(None)]),
        (["a: 1 ending", "c: warm"], [promote("c", 2), Start(None)]),
        (["a: 1 warm", "b: 2 starting"], []),
        (["a: 1 warm", "b: 2 warm", "c: warm", "d: warm"], []),
    ],
    ids=str,
)
def test_two_slots_and_a_spare_are_brought_to_what_they_should_be(
    before: list[str], expected: list[Promote | Start]
) -> None:
    actual = arrange(seats(*before), 2, 1)

    assert expected == actual


@pytest.mark.parametrize(
    ("before", "slots", "spares", "expected"),
    [
        (["a: 1 warm"], 1, 0, []),
        ([], 1, 0, [Start(1)]),
        (["a: 1 warm"], 1, 2, [Start(None)]),
        (["a: 1 warm", "b: warm"], 1, 2, [Start(None)]),
        (["a: 1 warm", "b: warm", "c: warm"], 1, 2, []),
        (["a: 3 warm"], 4, 0, [Start(1)]),
        (["b: warm"], 1, 0, [promote("b", 1)]),
        (["b: warm", "c: warm"], 1, 2, [promote("b", 1), Start(None)]),
    ],
    ids=str,
)
def test_other_numbers_of_slots_and_spares_are_kept_too(
    before: list[str], slots: int, spares: int, expected: list[Promote | Start]
) -> None:
    actual = arrange(seats(*before), slots, spares)

    assert expected == actual


def test_seats_may_come_from_any_iterable() -> None:
    expected: list[Promote | Start] = []

    actual = arrange(iter(seats("a: 1 warm")), 1, 0)

    assert expected == actual


@pytest.mark.parametrize(
    ("failures", "expected"),
    [(0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (8, 60.0), (5000, 60.0)],
)
@pytest.mark.parametrize("killed", [0, 1, 5000])
def test_the_pause_after_failed_starts_doubles_up_to_a_minute(
    failures: int, killed: int, expected: float
) -> None:
    killed = min(killed, failures)

    actual = start_pause_s(Starts(failed=failures - killed, killed=killed))

    assert expected == actual


@pytest.mark.parametrize(
    ("failed", "killed", "expected"),
    [
        *[(0, 0, False), (2, 0, False), (3, 0, True), (4, 0, True)],
        *[(0, 19, False), (0, 20, True), (2, 17, False), (2, 18, True), (3, 1, True)],
    ],
)
def test_starts_are_given_up_sooner_where_drivers_end_by_themselves_than_where_they_are_killed(
    failed: int, killed: int, expected: bool
) -> None:
    assert expected is hopeless(Starts(failed, killed))


class DriversExplored(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.slots, self.spares, self.number = 1, 0, 0
        self.seats: dict[Incarnation, Seat] = {}

    @initialize(slots=st.integers(1, 4), spares=st.integers(0, 2))
    def configure(self, slots: int, spares: int) -> None:
        self.slots, self.spares = slots, spares

    @rule()
    def bring_about(self) -> None:
        for action in arrange(list(self.seats.values()), self.slots, self.spares):
            if isinstance(action, Promote):
                seat = self.seats[action.driver]
                assert seat.slot is None, "only a spare moves"
                self.put(Seat(seat.driver, action.slot, seat.state))
            else:
                self.number += 1
                self.put(Seat(Incarnation(str(self.number)), action.slot, DriverState.STARTING))

    def put(self, seat: Seat) -> None:
        self.seats[seat.driver] = seat

    def become(self, data: st.DataObject, before: list[DriverState], after: DriverState) -> None:
        able = sorted(name for name, seat in self.seats.items() if seat.state in before)
        if able:
            seat = self.seats[data.draw(st.sampled_from(able))]
            if after is not DriverState.BUSY or seat.slot is not None:
                self.put(Seat(seat.driver, seat.slot, after))

    @rule(data=st.data())
    def one_becomes_warm(self, data: st.DataObject) -> None:
        self.become(data, [DriverState.STARTING, DriverState.BUSY], DriverState.WARM)

    @rule(data=st.data())
    def one_gets_a_job(self, data: st.DataObject) -> None:
        self.become(data, [DriverState.WARM], DriverState.BUSY)

    @rule(data=st.data())
    def one_is_retired(self, data: st.DataObject) -> None:
        able = [DriverState.STARTING, DriverState.WARM, DriverState.BUSY]
        self.become(data, able, DriverState.ENDING)

    @precondition(lambda self: self.seats)
    @rule(data=st.data())
    def one_is_reaped(self, data: st.DataObject) -> None:
        del self.seats[data.draw(st.sampled_from(sorted(self.seats)))]

    @invariant()
    def a_slot_has_one_driver(self) -> None:
        taken = [seat.slot for seat in self.seats.values() if seat.slot is not None]

        assert sorted(set(taken)) == sorted(taken)
        assert all(1 <= slot <= self.slots for slot in taken)

    @invariant()
    def no_more_live_than_should(self) -> None:
        living = [seat for seat in self.seats.values() if seat.state is not DriverState.ENDING]
        starting = [seat for seat in living if seat.state is DriverState.STARTING]

        assert len(living) <= self.slots + self.spares
        assert len(starting) <= STARTING_MAX

    def teardown(self) -> None:
        for name, seat in list(self.seats.items()):
            if seat.state is DriverState.ENDING:
                del self.seats[name]
        for _ in range(self.slots + self.spares + 1):
            self.bring_about()
            for seat in list(self.seats.values()):
                self.put(Seat(seat.driver, seat.slot, DriverState.WARM))
        taken = sorted(seat.slot for seat in self.seats.values() if seat.slot is not None)

        assert list(range(1, self.slots + 1)) == taken
        assert self.slots + self.spares == len(self.seats)


DriversExplored.TestCase.settings = settings(
    max_examples=50, stateful_step_count=25, deadline=None, derandomize=True
)
TestDriversExplored = DriversExplored.TestCase
