from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from msgspec.structs import replace as change

from understudy.config import Configuration
from understudy.core import lease
from understudy.core.lease import ContenderState, HeldTerm, Observed, Timing, Wait, Write
from understudy.errors import ConfigurationError
from understudy.model import Incarnation, LeaderRecord

ME, YOU = Incarnation("me"), Incarnation("you")
NOBODY = Incarnation("")
MINE = LeaderRecord(holder=ME, term=0, session="mine", rest="r", rpc="s", since=7.0)
FRESH = ContenderState(ME, Timing())


def record(
    holder: Incarnation = YOU, term: int = 4, renewals: int = 0, lease_s: float = 15.0
) -> LeaderRecord:
    return LeaderRecord(
        holder=holder, term=term, session="s", renewals=renewals, lease_s=lease_s, since=3.0
    )


def seen(
    what: LeaderRecord | None, at: float, state: ContenderState = FRESH, floor: int = 0
) -> ContenderState:
    return lease.observe(state, what, floor, at)


# --- the periods ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("periods", "expected"),
    [
        ((15.0, 10.0, 0.0), "retry-period is 0 s: it must be positive"),
        ((15.0, 10.0, -1.0), "retry-period is -1 s: it must be positive"),
        (
            (15.0, 2.4, 2.0),
            "renew-deadline (2.4 s) must be longer than retry-period × 1.2 (2.4 s), or one missed "
            "renewal ends the leadership",
        ),
        (
            (15.0, 2.0, 2.0),
            "renew-deadline (2 s) must be longer than retry-period × 1.2 (2.4 s), or one missed "
            "renewal ends the leadership",
        ),
        (
            (10.0, 10.0, 2.0),
            "lease-duration (10 s) must be longer than renew-deadline (10 s), or a standby may "
            "start before the leader stopped",
        ),
        (
            (9.5, 10.0, 2.0),
            "lease-duration (9.5 s) must be longer than renew-deadline (10 s), or a standby may "
            "start before the leader stopped",
        ),
    ],
)
def test_periods_that_contradict_each_other_are_refused_with_a_sentence(
    periods: tuple[float, float, float], expected: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Timing(*periods)

    assert expected == str(caught.value)


@pytest.mark.parametrize("periods", [(15.0, 10.0, 2.0), (2.42, 2.41, 2.0), (0.3, 0.2, 0.1)])
def test_periods_that_fit_are_taken(periods: tuple[float, float, float]) -> None:
    timing = Timing(*periods)

    assert periods == (timing.lease_s, timing.renew_deadline_s, timing.retry_s)


PREFIX = "high-availability.leader-election."


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Timing(15.0, 10.0, 2.0)),
        (
            {
                f"{PREFIX}lease-duration": "3 s",
                f"{PREFIX}renew-deadline": "2 s",
                f"{PREFIX}retry-period": "500 ms",
            },
            Timing(3.0, 2.0, 0.5),
        ),
    ],
)
def test_the_periods_are_the_configured_ones(settings: dict[str, str], expected: Timing) -> None:
    actual = Timing.of(Configuration(settings))

    assert expected == actual


def test_flinks_equal_lease_and_renew_deadline_are_refused() -> None:
    configuration = Configuration({f"{PREFIX}renew-deadline": "15 s"})

    with pytest.raises(ConfigurationError, match="must be longer than renew-deadline"):
        Timing.of(configuration)


# --- what is seen ---------------------------------------------------------------------------------


def test_a_record_is_timed_from_when_it_was_first_seen_like_this() -> None:
    expected = Observed(record(renewals=1), 12.0)

    state = seen(record(renewals=0), 10.0)
    state = seen(record(renewals=1), 12.0, state)
    state = seen(record(renewals=1), 14.0, state)

    assert expected == state.observed


def test_an_absent_record_is_a_vacancy_above_the_highest_term() -> None:
    expected = Observed(LeaderRecord(holder=NOBODY, term=6, session=""), 10.0)

    state = seen(None, 10.0, floor=6)

    assert expected == state.observed


def test_a_record_below_the_highest_term_is_a_vacancy() -> None:
    expected = Observed(change(record(term=4), holder=NOBODY, term=6), 10.0)

    state = seen(record(term=4), 10.0, floor=6)

    assert expected == state.observed


def test_a_record_of_the_highest_term_is_taken_as_it_is() -> None:
    expected = Observed(record(term=6), 10.0)

    state = seen(record(term=6), 10.0, floor=6)

    assert expected == state.observed


LEADING = replace(FRESH, leading=HeldTerm(4, 110.0), observed=Observed(record(ME), 100.0))


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (record(ME), HeldTerm(4, 110.0)),
        (record(ME, renewals=9), HeldTerm(4, 110.0)),
        (record(YOU), None),
        (record(YOU, term=5), None),
        (record(ME, term=5), None),
        (record(NOBODY), None),
        (None, None),
    ],
)
def test_who_sees_another_holder_or_term_leads_no_longer(
    what: LeaderRecord | None, expected: HeldTerm | None
) -> None:
    state = seen(what, 101.0, LEADING)

    assert expected == state.leading


# --- what is done ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "now", "expected"),
    [
        (record(), 100.0, Wait(115.0)),
        (record(), 114.9, Wait(115.0)),
        (record(), 115.0, Write(change(MINE, term=5), 115.0)),
        (record(lease_s=30.0), 129.9, Wait(130.0)),
        (record(lease_s=30.0), 130.0, Write(change(MINE, term=5), 130.0)),
        (record(lease_s=1.0), 114.9, Wait(115.0)),
        (record(lease_s=1e9), 101.0, Wait(3700.0)),
        (record(NOBODY), 100.0, Write(change(MINE, term=5), 100.0)),
        (record(ME), 100.0, Write(change(MINE, term=5), 100.0)),
        (None, 100.0, Write(change(MINE, term=1), 100.0)),
    ],
)
def test_a_standby_waits_for_the_longer_lease_and_then_takes_the_next_term(
    what: LeaderRecord | None, now: float, expected: Write | Wait
) -> None:
    actual = lease.decide(seen(what, 100.0), MINE, now)

    assert expected == actual


def test_a_takeover_begins_to_count_renewals_anew() -> None:
    expected = Write(change(MINE, term=5, renewals=0), 115.0)

    actual = lease.decide(seen(record(), 100.0), change(MINE, renewals=9), 115.0)

    assert expected == actual


def test_a_holder_that_is_proved_dead_is_not_waited_for() -> None:
    expected = Write(change(MINE, term=5), 100.0)

    actual = lease.decide(lease.proven_dead(seen(record(), 100.0), YOU), MINE, 100.0)

    assert expected == actual


def test_the_death_of_somebody_else_does_not_shorten_the_lease() -> None:
    expected = Wait(115.0)

    state = lease.proven_dead(seen(record(), 100.0), Incarnation("third"))
    actual = lease.decide(state, MINE, 100.0)

    assert expected == actual


def test_all_that_are_proved_dead_are_remembered() -> None:
    expected = frozenset({YOU, Incarnation("third")})

    state = lease.proven_dead(lease.proven_dead(FRESH, YOU), Incarnation("third"))

    assert expected == state.dead


def test_a_leader_renews_its_term_and_session_with_its_newest_addresses() -> None:
    expected = Write(
        change(MINE, term=4, session="s", renewals=8, since=3.0, rest="new", rpc="newer"), 104.0
    )

    state = seen(record(ME, renewals=7), 101.0, LEADING)
    actual = lease.decide(state, change(MINE, rest="new", rpc="newer"), 104.0)

    assert expected == actual


def test_no_decision_is_taken_before_the_record_was_read() -> None:
    with pytest.raises(AssertionError, match="observe before deciding"):
        lease.decide(FRESH, MINE, 0.0)


def test_the_deadline_counts_from_the_sending_of_what_was_acknowledged() -> None:
    mine = change(MINE, term=5)
    expected = ContenderState(ME, Timing(), Observed(mine, 100.0), HeldTerm(5, 110.0))

    actual = lease.written(seen(record(NOBODY), 90.0), Write(mine, 100.0))

    assert expected == actual


@pytest.mark.parametrize(
    ("now", "expected"), [(100.0, True), (109.9, True), (110.0, False), (200.0, False)]
)
def test_a_leader_leads_until_its_deadline(now: float, *, expected: bool) -> None:
    actual = lease.leads(LEADING, now)

    assert expected == actual


def test_who_holds_no_term_does_not_lead() -> None:
    actual = lease.leads(FRESH, 0.0)

    assert not actual


# --- two contenders -------------------------------------------------------------------------------


@dataclass
class Flight:
    """A write on its way to the register, or back."""

    write: Write
    expected: int
    accepted: int | None = None
    done: bool = False


@dataclass
class Contender:
    """One process with a clock of its own; it never asks what time it is elsewhere."""

    state: ContenderState
    rate: float
    offset: float
    version: int | None = None
    answer: tuple[LeaderRecord | None, int] | None = None
    flight: Flight | None = None
    ghosts: list[Flight] = field(default_factory=list)

    def now(self, true_time: float) -> float:
        return self.offset + self.rate * true_time

    def leads(self, true_time: float) -> bool:
        return lease.leads(self.state, self.now(true_time))


@dataclass
class Race:
    contenders: list[Contender]
    time: float = 0.0
    record: LeaderRecord | None = None
    version: int = 0
    terms: dict[int, Incarnation] = field(default_factory=dict)

    def act(self, one: Contender, action: str) -> None:
        now = one.now(self.time)
        match action:
            case "read":
                one.answer = (self.record, self.version)
            case "see" if one.answer and not one.flight:
                what, one.version = one.answer
                one.state, one.answer = lease.observe(one.state, what, 0, now), None
            case "send" if one.version is not None and not one.flight:
                mine = LeaderRecord(holder=one.state.me, term=0, session=one.state.me)
                decision = lease.decide(one.state, mine, now)
                if isinstance(decision, Write):
                    one.flight = Flight(decision, one.version)
            case "arrive" if one.flight:
                self.arrive(one.flight)
            case "acknowledge" if one.flight and one.flight.done:
                one.version = one.flight.accepted
                if one.flight.accepted is not None:
                    one.state = lease.written(one.state, one.flight.write)
                one.flight = None
            case "give up waiting" if one.flight:
                one.ghosts.append(one.flight)  # It may arrive yet, long after.
                one.flight, one.version = None, None
            case "arrive late" if one.ghosts:
                self.arrive(one.ghosts.pop(0))

    def arrive(self, flight: Flight) -> None:
        if flight.done:
            return
        flight.done = True
        if flight.expected == self.version:
            term, holder = flight.write.record.term, flight.write.record.holder
            assert self.terms.setdefault(term, holder) == holder, "a term has two holders"
            assert self.record is None or term >= self.record.term, "terms fall"
            self.record = flight.write.record
            self.version = flight.accepted = self.version + 1


ACTIONS = ["read", "see", "send", "arrive", "acknowledge", "give up waiting", "arrive late"]
TURNS = st.tuples(
    st.integers(0, 1),
    st.sampled_from(
        [
            *((action,) for action in ACTIONS),
            # Most of the time things go as they should: else nobody would ever lead.
            ("read", "see", "send", "arrive", "acknowledge"),
            ("read", "see", "send", "arrive", "acknowledge"),
            ("read", "see"),
            ("read", "see"),
            ("send", "arrive"),
            ("send", "arrive", "acknowledge"),
        ]
    ),
    st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0, 4.9, 5.0, 9.9, 10.0, 14.9, 15.0, 30.0]),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    turns=st.lists(TURNS, min_size=5, max_size=30),
    rates=st.tuples(st.sampled_from([1.0, 1.2, 1.49]), st.sampled_from([1.0, 1.2, 1.49])),
    offsets=st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)),
)
def test_two_contenders_whose_clocks_drift_within_bounds_never_lead_at_once(
    turns: list[tuple[int, tuple[str, ...], float]],
    rates: tuple[float, float],
    offsets: tuple[float, float],
) -> None:
    contenders = [
        Contender(ContenderState(me, Timing()), rate, offset)
        for me, rate, offset in zip((ME, YOU), rates, offsets, strict=True)
    ]
    race = Race(contenders)
    for number, actions, pause_s in turns:
        race.time += pause_s
        for action in actions:
            race.act(contenders[number], action)

            assert not all(one.leads(race.time) for one in contenders)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.floats(0.1, 9.9), min_size=1, max_size=20))
def test_a_leader_that_renews_in_time_leads_on_and_is_never_overtaken(pauses: list[float]) -> None:
    leader, standby = (Contender(ContenderState(me, Timing()), 1.0, 0.0) for me in (ME, YOU))
    race = Race([leader, standby])
    for action in ["read", "see", "send", "arrive", "acknowledge"]:
        race.act(leader, action)
    for pause_s in pauses:
        race.time += pause_s

        assert leader.leads(race.time)
        for action in ["send", "arrive", "acknowledge"]:
            race.act(leader, action)
        for action in ["read", "see", "send", "arrive", "acknowledge"]:
            race.act(standby, action)

    assert not standby.leads(race.time)
    assert {1: ME} == race.terms


def test_a_standby_leads_within_a_lease_after_the_last_renewal_it_saw() -> None:
    leader, standby = (Contender(ContenderState(me, Timing()), 1.0, 0.0) for me in (ME, YOU))
    race = Race([leader, standby])
    for action in ["read", "see", "send", "arrive", "acknowledge"]:
        race.act(leader, action)
    expected = {0.0: False, 5.0: False, 10.0: False, 14.9: False, 15.0: True}

    actual = {}
    for moment in expected:
        race.time = moment
        for action in ["read", "see", "send", "arrive", "acknowledge"]:
            race.act(standby, action)
        actual[moment] = standby.leads(race.time)

    assert expected == actual
    assert {1: ME, 2: YOU} == race.terms


# --- the periods of a session ---------------------------------------------------------------------


@given(
    session_s=st.floats(0.2, 3600.0),
    tick_share=st.floats(0.001, 0.5),
    rate=st.floats(0.92, 1.08),
)
@settings(max_examples=200)
def test_a_leader_has_stopped_before_its_session_can_have_expired(
    session_s: float, tick_share: float, rate: float
) -> None:
    """The quorum hears of a client half a tick late; a tick is 3 s at most, and half a session."""
    timing = Timing.of_session(session_s)
    half_a_tick_s = min(tick_share * session_s, 3.0) / 2

    assert timing.renew_deadline_s / rate <= session_s - half_a_tick_s


@pytest.mark.parametrize(
    ("session_s", "lease_s", "act_s"),
    [
        (2.0, 1.5, 1.05),
        (4.0, 3.0, 2.4),
        (6.0, 4.5, 3.9),
        (20.0, 18.5, 16.65),
        (60.0, 58.5, 52.65),
    ],
)
def test_a_session_gives_the_periods_of_a_leader(
    session_s: float, lease_s: float, act_s: float
) -> None:
    """It acts for nine tenths of the lease, but has 0.6 s to stop where there is so much."""
    timing = Timing.of_session(session_s)

    assert pytest.approx((lease_s, act_s, 0.1 * session_s)) == (
        timing.lease_s,
        timing.renew_deadline_s,
        timing.retry_s,
    )


def test_with_zookeeper_the_session_timeout_is_what_counts() -> None:
    configuration = Configuration(
        {
            "high-availability.type": "ZooKeeper",
            "high-availability.zookeeper.quorum": "zk:2181",
            "high-availability.storageDir": "s3://bucket/ha",
            "high-availability.zookeeper.client.session-timeout": "8 s",
        }
    )

    assert Timing.of_session(8.0) == Timing.of(configuration)
