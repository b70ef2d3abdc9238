"""Election by a line of contenders, on virtual time: nobody acts beside the one who may."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import pytest
from msgspec.structs import replace

from tests.ha.electorate import Contender, Electorate
from tests.support.fake_latch import TRAVEL_S, Ensemble, FakeLatch, Wire
from understudy.core.lease import Timing
from understudy.ha.retrieval import LEADER_KEY, RETRY_BACKOFF, encode_leader
from understudy.ha.turns import LatchTurns, Turns

SESSION_S, TICK_S = 10.0, 2.0
TIMING = Timing.of_session(SESSION_S)
SOON_S = 40 * TRAVEL_S
"""Longer than a takeover that waits for nothing."""
PAUSE_S = 2 * RETRY_BACKOFF.first_s
"""Before the third try to renew; a fourth one comes too late."""


class Told(asyncio.Event):
    """An event that each machine of the world may wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def set(self) -> None:
        """Tell all."""
        super().set()
        for loop, event in self._waiting:
            loop.call_soon_threadsafe(event.set)

    async def wait(self) -> Literal[True]:
        """Wait to be told."""
        if not self.is_set():
            event = asyncio.Event()
            self._waiting.append((asyncio.get_running_loop(), event))
            await event.wait()
        return True


@dataclass
class Line(Electorate):
    """Contenders who stand in line, each on a machine of its own."""

    session_s: float = SESSION_S
    tick_s: float = TICK_S
    ensemble: Ensemble = field(init=False)
    latches: dict[str, FakeLatch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ensemble = Ensemble(self.world, self.session_s, self.tick_s)

    def turns(self, contender: Contender, jitter: random.Random) -> Turns:
        """Return how it waits for its turn."""
        latch = FakeLatch(self.ensemble, contender.machine, contender.name, Wire())
        self.latches[contender.name] = latch
        contender.killed = Told()
        return LatchTurns(latch, self.timing, contender.machine.clock, self, jitter)

    def wire(self, contender: Contender) -> Wire:
        """Return its way to the ensemble."""
        return self.latches[contender.name].wire

    def cut(self, contender: Contender, *, how: str = "cut") -> None:
        """Let nothing through to the quorum, or no answer from it (``deaf``)."""
        setattr(self.wire(contender), how, True)
        contender.line.deaf = how == "deaf"
        contender.line.cut = not contender.line.deaf

    def heal(self, contender: Contender) -> None:
        """Let everything through."""
        wire = self.wire(contender)
        wire.cut = wire.deaf = wire.minority = False
        contender.line.cut = contender.line.deaf = False

    def quorum(self, *, there: bool) -> None:
        """Take the quorum away, or give it back."""
        self.ensemble.has_quorum = there
        for contender in self.contenders:
            contender.line.cut = not there

    def two(self) -> tuple[Contender, Contender]:
        """Return a leader that serves, and who stands behind it."""
        leader = self.contender("leader")
        self.until_led(leader)
        standby = self.contender("standby")
        self.later(3)
        return leader, standby

    def stopped(self, contender: Contender) -> float:
        """Let the world go on until its work has ended; return when."""
        self.world.run(lambda: contender.tenures[-1].ended_at is not None, 200)
        return self.world.now


@pytest.fixture
def line() -> Iterator[Line]:
    """A world of contenders; at its end all promises were kept."""
    found = Line()
    yield found
    found.end()


# --- grants ---------------------------------------------------------------------------------------


def test_the_first_in_line_leads_at_once_and_goes_on(line: Line) -> None:
    first = line.contender("first")

    assert line.until_led() < SOON_S
    assert (1, "nobody has led before") == (first.term, first.tenures[0].leadership.reason)
    for number in range(4):
        line.contender(f"standby-{number}")
    line.later(20 * SESSION_S)
    assert [1, 0, 0, 0, 0] == [len(one.tenures) for one in line.contenders]


def test_it_keeps_the_periods_of_the_session_that_was_granted(line: Line) -> None:
    leader = line.contender("leader")
    line.until_led()
    line.later(5 * SESSION_S)
    left_s = [until - leader.machine.time() for until in leader.holds if until is not None]

    assert TIMING == leader.election.timing
    assert TIMING.renew_deadline_s - TIMING.retry_s - SOON_S < left_s[-1] < TIMING.renew_deadline_s


def test_a_leader_writes_nothing_but_its_place_in_line(line: Line) -> None:
    leader = line.contender("leader")
    line.until_led()
    line.later(1)
    before = leader.line.writes
    line.later(10 * SESSION_S)

    assert before == leader.line.writes


def test_addresses_are_published_and_confirmed(line: Line) -> None:
    leader, _ = line.two()
    record = line.record()

    assert record is not None
    assert (leader.name, f"tcp://{leader.name}") == (record.holder, record.rpc)


@pytest.mark.parametrize("how", ["altered", "removed", "damaged"])
def test_the_record_by_which_a_leader_is_found_is_put_right_or_its_term_ends(
    line: Line, how: str
) -> None:
    line.two()
    record = line.record()
    assert record is not None
    person = line.world.machine("person")

    async def write() -> None:
        entry = await line.register.load(LEADER_KEY)
        assert entry is not None
        hand = {
            "altered": encode_leader(replace(record, rpc="tcp://nowhere")),
            "removed": None,
            "damaged": b"not JSON",
        }[how]
        await line.register.swap(LEADER_KEY, hand, entry.version)

    writing = person.spawn(write())
    line.world.run(writing.done)
    line.later(2 * SESSION_S)
    found = line.record()
    leader = line.leader()

    assert leader is not None
    assert found is not None
    assert (leader.name, f"tcp://{leader.name}") == (found.holder, found.rpc)


def test_who_steps_down_makes_way_at_once(line: Line) -> None:
    leader, standby = line.two()
    began = line.world.now
    leader.task.cancel()

    assert line.until_led(standby) - began < SOON_S
    assert (2, "it stepped down") == (standby.term, standby.tenures[0].leadership.reason)
    assert ["standby"] == [node.rpartition("-")[0] for node in line.ensemble.line]


def test_a_standby_that_closes_leaves_nothing(line: Line) -> None:
    leader, standby = line.two()
    standby.task.cancel()
    line.later(1)

    assert ["leader"] == [node.rpartition("-")[0] for node in line.ensemble.line]
    assert leader.leads


def test_who_is_proved_dead_is_dismissed_at_once(line: Line) -> None:
    leader, standby = line.two()
    leader.crash(proof=True)
    crashed_at = line.world.now

    assert line.until_led(standby) - crashed_at < SOON_S
    assert ["standby"] == [node.rpartition("-")[0] for node in line.ensemble.line]
    lost_at = standby.tenures[0].leadership.lost_at
    assert lost_at is not None
    assert abs(standby.machine.time() - lost_at) < SOON_S


def test_a_dead_standby_in_between_does_not_hold_anybody_up(line: Line) -> None:
    leader, between = line.two()
    last = line.contender("last")
    line.later(3)
    between.crash(proof=True)
    line.later(1)
    leader.crash(proof=True)
    crashed_at = line.world.now

    assert line.until_led(last) - crashed_at < SOON_S


def test_a_takeover_is_timed_from_the_end_of_the_leader_not_from_an_earlier_stir(
    line: Line,
) -> None:
    """Connections come and go: the one behind looks again, and finds the same before it."""
    leader, standby = line.two()
    line.latches["standby"]._ring()
    line.later(100)
    leader.crash(proof=False)
    crashed_at = line.world.now
    led_at = line.until_led(standby)
    lost_at = standby.tenures[0].leadership.lost_at

    assert lost_at is not None
    assert standby.machine.time() - lost_at <= led_at - crashed_at


# --- losses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session_s", "tick_s"), [(2.0, 1.0), (4.0, 2.0), (20.0, 2.0), (60.0, 3.0)]
)
@pytest.mark.parametrize("how", ["cut", "minority"])
def test_a_leader_that_is_cut_off_at_any_moment_stops_before_the_next_begins(
    session_s: float, tick_s: float, how: str
) -> None:
    """The promise itself is `Electorate.granted`'s: nobody may act while another still may."""
    timing = Timing.of_session(session_s)
    for step in range(20):
        line = Line(session_s=session_s, tick_s=tick_s)
        leader, standby = line.two()
        line.later(step / 20 * max(tick_s, timing.retry_s))
        line.cut(leader, how=how)
        cut_at = line.world.now
        stopped_after = line.stopped(leader) - cut_at
        led_after = line.until_led(standby) - cut_at

        assert timing.renew_deadline_s - timing.retry_s - SOON_S < stopped_after
        assert stopped_after <= timing.renew_deadline_s
        assert stopped_after < led_after <= session_s + 2 * tick_s + SOON_S
        line.heal(leader)
        line.later(2 * session_s)
        assert standby.leads
        line.end()


@pytest.mark.parametrize("rate", [0.92, 1.0, 1.1])
@pytest.mark.parametrize("moment", [0.0, 0.37, 0.81])
def test_a_clock_that_runs_wrong_by_a_few_percent_does_no_harm(rate: float, moment: float) -> None:
    line = Line()
    leader = line.contender("leader", rate)
    line.until_led(leader)
    standby = line.contender("standby", 2 - rate)
    line.later(3 + moment)
    line.cut(leader)

    assert line.stopped(leader) < line.until_led(standby)
    line.end()


@pytest.mark.parametrize("pause_s", [0.5 * SESSION_S, 0.75 * SESSION_S, 3 * SESSION_S])
def test_a_leader_that_stood_still_for_too_long_leads_no_more(line: Line, pause_s: float) -> None:
    leader, standby = line.two()
    leader.machine.pause()
    line.later(pause_s)
    leader.machine.resume()
    line.later(SOON_S)

    short = pause_s < TIMING.renew_deadline_s - TIMING.retry_s
    assert short == leader.leads
    line.later(2 * SESSION_S)
    assert 1 == sum(one.leads for one in (leader, standby))


def test_who_cannot_hear_answers_stops_and_comes_back(line: Line) -> None:
    """Its session lives on by what it says: nobody else may lead, and nobody does."""
    leader, standby = line.two()
    line.cut(leader, how="deaf")
    deaf_at = line.world.now

    assert line.stopped(leader) - deaf_at <= TIMING.renew_deadline_s
    line.later(2 * SESSION_S)
    assert line.leader() in {None, standby}
    line.heal(leader)
    line.later(SESSION_S)
    assert line.leader() is not None


@pytest.mark.parametrize("moment", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("shorter_s", [step / 4 for step in range(14)])
def test_losing_the_quorum_for_less_than_what_is_left_of_the_session_costs_nothing(
    line: Line, moment: float, shorter_s: float
) -> None:
    leader, standby = line.two()
    line.later(moment * TIMING.retry_s)
    line.quorum(there=False)
    # A request that was sent while it was lost fails after a quarter; the next one is sent soon
    # after, however long the loss was, and must arrive.
    longest_s = TIMING.renew_deadline_s - TIMING.retry_s - SESSION_S / 4 - PAUSE_S - 2 * TRAVEL_S
    line.later(longest_s - shorter_s)
    line.quorum(there=True)
    line.later(2 * SESSION_S)

    assert (1, 0) == (len(leader.tenures), len(standby.tenures))
    assert leader.leads


def test_losing_it_for_longer_ends_the_leadership_which_returns_by_itself(line: Line) -> None:
    leader, standby = line.two()
    line.quorum(there=False)
    lost_at = line.world.now

    assert line.stopped(leader) - lost_at <= TIMING.renew_deadline_s
    line.later(3 * SESSION_S)
    assert line.leader() is None
    line.quorum(there=True)
    back_at = line.world.now
    assert line.until_led() - back_at < SESSION_S / 2
    assert 1 == sum(one.leads for one in (leader, standby))
    assert [1, 2] == sorted(line.terms)


def test_who_cannot_give_the_term_back_is_not_killed_for_that(line: Line) -> None:
    """Its guardian holds it to a deadline only while something may act in its name."""
    leader, _ = line.two()
    line.quorum(there=False)
    line.stopped(leader)
    line.later(TRAVEL_S)

    assert leader.holds[-1] is None


def test_a_session_that_is_closed_ends_the_leadership_at_once(line: Line) -> None:
    """By the guardian of somebody who is dead, or by hand."""
    leader, standby = line.two()
    leader.line.cut = True  # It learns of it from the ensemble alone.
    leader._hold(None)  # Whoever closed it has proof: no promise of one at a time is broken.
    line.ensemble.close(line.latches["leader"].number)
    closed_at = line.world.now

    assert line.stopped(leader) - closed_at <= SESSION_S / 20 + SOON_S
    line.until_led(standby)
    leader.line.cut = False
    line.later(SESSION_S)
    assert standby.leads
    assert ["standby", "leader"] == [node.rpartition("-")[0] for node in line.ensemble.line]


def test_a_place_that_was_deleted_by_hand_ends_the_leadership_at_once(line: Line) -> None:
    leader = line.contender("leader")
    line.until_led()
    line.later(3)
    line.ensemble.delete(next(iter(line.ensemble.line)))
    deleted_at = line.world.now

    assert line.stopped(leader) - deleted_at < SOON_S
    line.until_led(leader)
    assert 2 == leader.term


# --- the line -------------------------------------------------------------------------------------


def test_a_place_whose_making_was_not_answered_blocks_nobody(line: Line) -> None:
    first = line.contender("first")
    line.latches["first"].creates_without_answer = 2
    line.until_led(first)
    second = line.contender("second")
    line.latches["second"].creates_without_answer = 1
    line.later(5)

    assert ["first", "second"] == [node.rpartition("-")[0] for node in line.ensemble.line]
    first.crash(proof=True)
    line.until_led(second)


def test_a_session_that_was_replaced_before_the_term_is_written_leads_to_nothing(
    line: Line,
) -> None:
    """The write of the term succeeds by the new session; only the place in line tells."""
    leader, standby = line.two()
    latch, waiting = line.latches["standby"], line.contender("waiting")
    line.later(3)

    def replaced() -> None:
        latch.on_stand = lambda: None
        line.world.after(1.5 * TRAVEL_S, lambda: line.ensemble.close(latch.number))

    latch.on_stand = replaced
    leader.task.cancel()
    line.until_led()
    line.later(SESSION_S)

    assert [] == standby.tenures
    assert waiting.leads
    assert ["waiting", "standby"] == [node.rpartition("-")[0] for node in line.ensemble.line]


def test_an_end_wakes_one_of_200(line: Line) -> None:
    contenders = [line.contender(f"jobmanager-{number:03}") for number in range(201)]
    line.until_led()
    line.later(SESSION_S)
    before = line.ensemble.reads
    order = [node.rpartition("-")[0] for node in line.ensemble.line]
    leader, second = (next(one for one in contenders if one.name == name) for name in order[:2])
    leader.crash(proof=False)
    line.until_led(second, limit_s=3 * SESSION_S)
    line.later(SESSION_S)

    assert line.ensemble.reads - before <= 3


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_terms_grow_and_one_acts_at_a_time(seed: int) -> None:
    chance = random.Random(seed)
    line = Line(session_s=chance.choice([2.0, 6.0, 20.0]), tick_s=chance.choice([0.2, 1.0]))
    for number in range(4):
        line.contender(f"jobmanager-{number}", chance.uniform(0.95, 1.05))
    for _ in range(40):
        one = chance.choice([one for one in line.contenders if not one.machine.crashed])
        what = chance.choice(
            ["cut", "deaf", "minority", "heal", "pause", "crash", "quorum", "ring"]
        )
        if what in {"cut", "deaf", "minority"}:
            line.cut(one, how=what)
        elif what == "pause":
            one.machine.pause()
        elif what == "quorum":
            line.quorum(there=False)
        elif what == "ring":
            line.latches[one.name]._ring()
        elif what == "crash":
            one.crash(proof=chance.random() < 0.5)
            line.contender(f"jobmanager-{len(line.contenders)}", chance.uniform(0.95, 1.05))
        line.later(chance.expovariate(1 / line.session_s))
        if chance.random() < 0.6:
            line.quorum(there=True)
            for other in line.contenders:
                other.machine.resume()
                line.heal(other)
    line.quorum(there=True)
    for other in line.contenders:
        other.machine.resume()
        line.heal(other)
    line.later(4 * line.session_s)

    assert line.leader() is not None, "it returns by itself"
    assert len(line.terms) > 3
    line.end()
