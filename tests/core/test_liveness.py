from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.config import Configuration, options
from understudy.config.configuration import KILL_MARGIN_S
from understudy.core.lease import JITTER_FACTOR, Timing
from understudy.core.liveness import (
    Silence,
    answered,
    expired,
    forget,
    leader_hold,
    next_expiry,
    orphan_deadline,
)
from understudy.model import Incarnation

EXPLORE = settings(max_examples=150, deadline=None, derandomize=True)

TM1, TM2 = Incarnation("tm1"), Incarnation("tm2")


def silence(**at: float) -> Silence:
    return Silence(40.0, {Incarnation(name): moment for name, moment in at.items()})


def test_a_taskmanager_is_awaited_from_its_last_answer_on() -> None:
    expected = silence(tm1=7.0, tm2=3.0)

    actual = answered(answered(answered(silence(), TM1, 1.0), TM2, 3.0), TM1, 7.0)

    assert expected == actual


def test_who_is_proved_dead_is_not_awaited_any_more() -> None:
    expected = silence(tm2=3.0)

    actual = forget(forget(silence(tm1=1.0, tm2=3.0), TM1), TM1)

    assert expected == actual


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (0.0, ()),
        (40.9, ()),
        (41.0, (TM1,)),
        (42.9, (TM1,)),
        (43.0, (TM1, TM2)),
    ],
)
def test_the_drivers_of_the_silent_are_dead_after_the_grace(
    now: float, expected: tuple[Incarnation, ...]
) -> None:
    actual = expired(silence(tm1=1.0, tm2=3.0), now)

    assert expected == actual


@pytest.mark.parametrize(
    ("state", "expected"),
    [(silence(), None), (silence(tm1=1.0), 41.0), (silence(tm1=5.0, tm2=3.0), 43.0)],
)
def test_the_next_look_is_when_the_first_may_expire(state: Silence, expected: float | None) -> None:
    actual = next_expiry(state)

    assert expected == actual


def test_the_time_of_an_orphan_counts_from_the_sending_of_what_was_answered() -> None:
    expected = 130.0

    actual = orphan_deadline(100.0, 30.0)

    assert expected == actual


@EXPLORE
@given(
    orphan=st.integers(11, 600),
    more=st.integers(1, 100),
    delay=st.floats(0, 60),
    slow=st.floats(1 / 1.05, 1.0),
    kill=st.floats(0, KILL_MARGIN_S),
)
def test_a_leader_gives_up_a_taskmanager_only_after_its_drivers_are_dead(
    orphan: int, more: int, delay: float, slow: float, kill: float
) -> None:
    grace_ms = round(orphan * 1050 + KILL_MARGIN_S * 1000) + more
    configuration = Configuration(
        {
            "taskmanager.orphan-timeout": f"{orphan} s",
            "jobmanager.adoption-grace": f"{grace_ms} ms",
        }
    )
    # The TaskManager's clock may be slow by up to 5 %: its seconds are longer.
    sent_at, answered_at = 1000.0, 1000.0 + delay
    orphan_s = configuration.get(options.ORPHAN_TIMEOUT)
    lived_s = (orphan_deadline(sent_at, orphan_s) - sent_at) / slow
    dead_at = sent_at + lived_s + kill
    state = answered(Silence(configuration.get(options.ADOPTION_GRACE)), TM1, answered_at)

    assert () == expired(state, dead_at - 1e-6)


@EXPLORE
@given(retry_s=st.floats(0.1, 10), more=st.floats(0.01, 60), longer=st.floats(0.01, 60))
def test_a_leader_is_held_to_its_deadline_before_a_standby_may_start(
    retry_s: float, more: float, longer: float
) -> None:
    renew_s = retry_s * JITTER_FACTOR + more
    timing = Timing(renew_s + longer, renew_s, retry_s)
    sent_at = 1000.0
    deadline = sent_at + timing.renew_deadline_s

    actual = leader_hold(deadline, timing.lease_s, timing.renew_deadline_s)

    assert deadline < actual < sent_at + timing.lease_s


def test_a_leader_is_held_half_way_between_its_deadline_and_the_end_of_the_lease() -> None:
    expected = 112.5

    actual = leader_hold(110.0, 15.0, 10.0)

    assert expected == actual
