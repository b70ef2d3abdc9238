from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from understudy.core.drivers import (
    ANY,
    STARTING_IN_ALL_MAX,
    STARTING_MAX,
    Action,
    DriverState,
    Promote,
    Purpose,
    Retire,
    Seat,
    Start,
    Starts,
    arrange,
    hopeless,
    start_pause_s,
)
from understudy.model import ApplicationId, Incarnation

WORDS = {
    "starting": DriverState.STARTING,
    "warm": DriverState.WARM,
    "busy": DriverState.BUSY,
    "ending": DriverState.ENDING,
}


PURPOSES = {
    "": ANY,
    **{name: Purpose(ApplicationId(name), "") for name in ("red", "blue", "green", "gray")},
}
RED, BLUE, GREEN, GRAY = (PURPOSES[name] for name in ("red", "blue", "green", "gray"))


def seats(*told: str) -> list[Seat]:
    """Read "a: 1 warm" (driver a, in slot 1) and "b: warm red" (driver b, a spare, of red)."""
    found = []
    for line in told:
        name, _, rest = line.partition(": ")
        words = rest.split()
        slot = int(words.pop(0)) if words[0].isdigit() else None
        state, purpose = WORDS[words[0]], PURPOSES["".join(words[1:])]
        found.append(Seat(Incarnation(name), slot, state, purpose))
    return found


def start(slot: int | None, purpose: Purpose = ANY) -> Start:
    return Start(slot, purpose)


def retire(name: str) -> Retire:
    return Retire(Incarnation(name))


def promote(name: str, slot: int) -> Promote:
    return Promote(Incarnation(name), slot)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], [start(1)]),
        (["a: 1 starting"], []),
        (["a: 1 warm"], [start(2)]),
        (["a: 2 warm"], [start(1)]),
        (["a: 1 warm", "b: 2 warm"], [start(None)]),
        (["a: 1 busy", "b: 2 busy"], [start(None)]),
        (["a: 1 warm", "b: 2 warm", "c: starting"], []),
        (["a: 1 warm", "b: 2 warm", "c: warm"], []),
        (["b: 2 busy", "c: warm"], [promote("c", 1), start(None)]),
        (["b: 2 busy", "c: starting"], [promote("c", 1)]),
        (["b: 2 busy", "c: starting", "d: warm"], [promote("d", 1)]),
        (["c: warm"], [promote("c", 1), start(2)]),
        (["c: warm", "d: warm"], [promote("c", 1), promote("d", 2), start(None)]),
        (["c: starting", "d: warm"], [promote("d", 1), promote("c", 2)]),
        (["a: 1 ending", "b: 2 warm", "c: warm"], []),
        (["a: 1 ending", "b: 2 warm"], [start(None)]),
        (["a: 1 ending", "b: 2 ending"], [start(None)]),
        (["a: 1 ending", "c: warm"], [promote("c", 2), start(None)]),
        (["a: 1 warm", "b: 2 starting"], []),
        (["a: 1 warm", "b: 2 warm", "c: warm", "d: warm"], []),
    ],
    ids=str,
)
def test_two_slots_and_a_spare_are_brought_to_what_they_should_be(
    before: list[str], expected: list[Action]
) -> None:
    actual = arrange(seats(*before), 2, 1, [ANY] * 3)

    assert expected == actual


@pytest.mark.parametrize(
    ("before", "slots", "spares", "expected"),
    [
        (["a: 1 warm"], 1, 0, []),
        ([], 1, 0, [start(1)]),
        (["a: 1 warm"], 1, 2, [start(None)]),
        (["a: 1 warm", "b: warm"], 1, 2, [start(None)]),
        (["a: 1 warm", "b: warm", "c: warm"], 1, 2, []),
        (["a: 3 warm"], 4, 0, [start(1)]),
        (["b: warm"], 1, 0, [promote("b", 1)]),
        (["b: warm", "c: warm"], 1, 2, [promote("b", 1), start(None)]),
    ],
    ids=str,
)
def test_other_numbers_of_slots_and_spares_are_kept_too(
    before: list[str], slots: int, spares: int, expected: list[Action]
) -> None:
    actual = arrange(seats(*before), slots, spares, [ANY] * (slots + spares))

    assert expected == actual


@pytest.mark.parametrize(
    ("before", "wanted", "expected"),
    [
        ([], [RED, BLUE, RED], [start(1, RED), start(2, BLUE)]),
        (["a: 1 starting red"], [RED, BLUE, RED], [start(2, BLUE)]),
        (["a: 1 warm red", "b: 2 warm red", "c: warm red"], [RED, BLUE, RED], [retire("c")]),
        (["a: 1 warm red", "b: 2 warm red", "c: starting red"], [BLUE, RED, RED], [retire("c")]),
        (["a: 1 warm red", "b: 2 warm red"], [RED, BLUE, RED], [start(None, BLUE)]),
        (["a: 1 busy red", "b: 2 busy red", "c: warm red"], [BLUE, BLUE], [retire("c")]),
        (["a: 1 busy red", "b: 2 busy red"], [BLUE, BLUE], [start(None, BLUE)]),
        (["a: 1 busy red", "b: 2 ending red", "c: warm red"], [RED, BLUE, RED], []),
        (["a: 1 busy red", "c: warm red"], [RED, RED, BLUE], [promote("c", 2), start(None, BLUE)]),
        (["c: starting blue", "d: warm red"], [BLUE, RED], [promote("d", 1), promote("c", 2)]),
        (["c: warm blue", "d: warm red"], [RED, BLUE], [promote("d", 1), promote("c", 2)]),
        (["a: 1 warm red", "b: 2 warm blue"], [RED, RED], [retire("b"), start(None, RED)]),
        (["a: 1 warm red", "b: 2 busy blue"], [], [retire("a")]),
        (["c: warm red"], [], [retire("c")]),
        (["a: 1 warm red", "b: 2 ending blue"], [RED, RED], [start(None, RED)]),
    ],
    ids=str,
)
def test_drivers_of_several_applications_are_brought_to_what_is_wanted(
    before: list[str], wanted: list[Purpose], expected: list[Action]
) -> None:
    assert expected == arrange(seats(*before), 2, 1, wanted)


def test_one_application_whose_drivers_start_slowly_or_rest_delays_no_other() -> None:
    wanted = [RED, RED, BLUE, GREEN, GRAY]

    assert [start(2, BLUE), start(3, GREEN)] == arrange(seats("a: 1 starting red"), 5, 0, wanted)
    assert [start(1, BLUE), start(2, GREEN), start(3, GRAY)] == arrange(
        [], 5, 0, wanted, resting=frozenset({RED})
    )


def test_seats_may_come_from_any_iterable() -> None:
    expected: list[Action] = []

    actual = arrange(iter(seats("a: 1 warm")), 1, 0, [ANY])

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
    purposes = st.sampled_from([RED, BLUE])

    def __init__(self) -> None:
        super().__init__()
        self.slots, self.spares, self.number = 1, 0, 0
        self.seats: dict[Incarnation, Seat] = {}
        self.wanted: list[Purpose] = []

    @initialize(slots=st.integers(1, 4), spares=st.integers(0, 2), data=st.data())
    def configure(self, slots: int, spares: int, data: st.DataObject) -> None:
        self.slots, self.spares = slots, spares
        self.wish(data)

    @rule(data=st.data())
    def wish(self, data: st.DataObject) -> None:
        size = self.slots + self.spares
        self.wanted = data.draw(st.lists(self.purposes, min_size=size, max_size=size))

    @rule()
    def bring_about(self) -> None:
        for action in arrange(list(self.seats.values()), self.slots, self.spares, self.wanted):
            if isinstance(action, Start):
                self.number += 1
                name = Incarnation(str(self.number))
                self.put(Seat(name, action.slot, DriverState.STARTING, action.purpose))
                continue
            seat = self.seats[action.driver]
            if isinstance(action, Promote):
                assert seat.slot is None, "only a spare moves"
                self.put(replace(seat, slot=action.slot))
            else:
                assert seat.state in {DriverState.STARTING, DriverState.WARM}
                self.put(replace(seat, state=DriverState.ENDING))

    def put(self, seat: Seat) -> None:
        self.seats[seat.driver] = seat

    def become(self, data: st.DataObject, before: list[DriverState], after: DriverState) -> None:
        able = sorted(name for name, seat in self.seats.items() if seat.state in before)
        if able:
            self.put(replace(self.seats[data.draw(st.sampled_from(able))], state=after))

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
        starting = [seat for seat in self.seats.values() if seat.state is DriverState.STARTING]

        assert len(self.seats) <= self.slots + self.spares
        assert len(starting) <= STARTING_IN_ALL_MAX
        for purpose in {seat.purpose for seat in starting}:
            assert sum(seat.purpose == purpose for seat in starting) <= STARTING_MAX

    def teardown(self) -> None:
        for _ in range(2 * (self.slots + self.spares) + 1):
            for name, seat in list(self.seats.items()):
                if seat.state is DriverState.ENDING:
                    del self.seats[name]
                else:
                    self.put(replace(seat, state=DriverState.WARM))
            self.bring_about()
        taken = sorted(seat.slot for seat in self.seats.values() if seat.slot is not None)

        assert list(range(1, self.slots + 1)) == taken
        assert sorted(map(str, self.wanted)) == sorted(
            str(seat.purpose) for seat in self.seats.values()
        )


DriversExplored.TestCase.settings = settings(
    max_examples=50, stateful_step_count=25, deadline=None, derandomize=True
)
TestDriversExplored = DriversExplored.TestCase
