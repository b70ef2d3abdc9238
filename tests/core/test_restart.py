from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.config import Configuration
from understudy.config.option import INFINITE
from understudy.core.restart import (
    LOSSES_PER_ATTEMPT,
    Again,
    NoRestart,
    Strategy,
    after_exception,
    after_loss,
    is_listed,
)
from understudy.model import Restarts

EXPLORE = settings(max_examples=150, deadline=None, derandomize=True)

MIDDLE = 0.5
"""The draw of the jitter that changes nothing."""

NONE = Strategy("none", 0)
FIXED = Strategy("fixed-delay", 3, 7.0, 7.0, 1.0, 0.0, float("inf"))
RATE = Strategy("failure-rate", 2, 1.0, 1.0, 1.0, 0.0, float("inf"), 60.0)
ENDLESS = Strategy(attempts=INFINITE)

SHORT_S = 0.0
LONG_S = 3600.0

OWN = Strategy(retries=2)
OWN_FIXED = Strategy("fixed-delay", 3, 7.0, 7.0, 1.0, 0.0, float("inf"), retries=5)
OWN_RATE = Strategy("failure-rate", 1, 1.0, 1.0, 1.0, 0.0, float("inf"), 60.0, retries=2)
NO_MORE = NoRestart("the job allows 2 restarts (retries=2)")


def counts(failures: int = 0, losses: int = 0, ages: tuple[float, ...] = ()) -> Restarts:
    return Restarts(failures=failures, losses=losses, ages=ages)


@pytest.mark.parametrize(
    ("strategy", "restarts", "ran_s", "expected"),
    [
        (Strategy(), counts(0), SHORT_S, Again(1.0, counts(1))),
        (Strategy(), counts(1), SHORT_S, Again(1.5, counts(2))),
        (Strategy(), counts(2), SHORT_S, Again(2.25, counts(3))),
        (Strategy(), counts(3), SHORT_S, NoRestart("the restart strategy allows 3 restarts")),
        (Strategy(), counts(3), LONG_S - 0.1, NoRestart("the restart strategy allows 3 restarts")),
        (Strategy(), counts(3), LONG_S, Again(1.0, counts(1))),
        (Strategy(), counts(1, losses=9), SHORT_S, Again(1.5, counts(2, losses=9))),
        (Strategy(), counts(3, losses=1), LONG_S, Again(1.0, counts(1))),
        (Strategy(), counts(1, losses=9), LONG_S, Again(1.0, counts(1))),
        (Strategy(), counts(1, losses=9), LONG_S - 0.1, Again(1.5, counts(2, losses=9))),
        (
            Strategy(attempts=1),
            counts(1),
            SHORT_S,
            NoRestart("the restart strategy allows one restart"),
        ),
        (
            Strategy(attempts=0),
            counts(0),
            SHORT_S,
            NoRestart("the restart strategy allows no restart"),
        ),
        (ENDLESS, counts(10), SHORT_S, Again(1.5**10, counts(11))),
        (ENDLESS, counts(11), SHORT_S, Again(60.0, counts(12))),
        (ENDLESS, counts(10**6), SHORT_S, Again(60.0, counts(10**6 + 1))),
        (
            ENDLESS,
            counts(INFINITE),
            SHORT_S,
            NoRestart("the restart strategy allows restarts without limit"),
        ),
        (Strategy(multiplier=1.0), counts(2), SHORT_S, Again(1.0, counts(3))),
        (NONE, counts(0), LONG_S, NoRestart("the restart strategy is 'none'")),
        (FIXED, counts(0), SHORT_S, Again(7.0, counts(1))),
        (FIXED, counts(2), LONG_S, Again(7.0, counts(3))),
        (FIXED, counts(3), LONG_S, NoRestart("the restart strategy allows 3 restarts")),
        (FIXED, counts(1, losses=1), SHORT_S, Again(7.0, counts(2, losses=1))),
        (FIXED, counts(1, losses=1), LONG_S, Again(7.0, counts(2, losses=1))),
        (
            FIXED,
            counts(1, losses=2),
            SHORT_S,
            NoRestart("the restart strategy allows 3 restarts"),
        ),
    ],
)
def test_an_exception_waits_the_backoff_and_counts(
    strategy: Strategy, restarts: Restarts, ran_s: float, expected: Again | NoRestart
) -> None:
    actual = after_exception(strategy, restarts, ran_s, MIDDLE)

    assert expected == actual


@pytest.mark.parametrize(
    ("strategy", "restarts", "ran_s", "expected"),
    [
        (Strategy(), counts(0), SHORT_S, Again(0.0, counts(0, 1))),
        (Strategy(), counts(2, 0), SHORT_S, Again(0.0, counts(2, 1))),
        (Strategy(), counts(0, 1), SHORT_S, Again(1.0, counts(0, 2))),
        (Strategy(), counts(0, 2), SHORT_S, Again(1.5, counts(0, 3))),
        (Strategy(), counts(3, 2), SHORT_S, Again(1.5, counts(3, 3))),
        (Strategy(), counts(0, 29), SHORT_S, Again(60.0, counts(0, 30))),
        (Strategy(), counts(0, 2), 0.9, Again(1.5, counts(0, 3))),
        (Strategy(), counts(0, 2), 1.0, Again(0.0, counts(0, 3))),
        (Strategy(), counts(0, 29), LONG_S - 0.1, Again(0.0, counts(0, 30))),
        (Strategy(), counts(0, 30), LONG_S, Again(0.0, counts(0, 1))),
        (
            Strategy(),
            counts(0, 30),
            LONG_S - 0.1,
            NoRestart("its process was lost 31 times in a row"),
        ),
        (ENDLESS, counts(0, 1_000_000), SHORT_S, Again(60.0, counts(0, 1_000_001))),
        (Strategy(attempts=1), counts(0, 9), SHORT_S, Again(1.5**8, counts(0, 10))),
        (
            Strategy(attempts=1),
            counts(0, 10),
            SHORT_S,
            NoRestart("its process was lost 11 times in a row"),
        ),
        (NONE, counts(0), LONG_S, NoRestart("the restart strategy is 'none'")),
        (FIXED, counts(0), SHORT_S, Again(0.0, counts(0, 1))),
        (FIXED, counts(2, 0), SHORT_S, Again(0.0, counts(2, 1))),
        (FIXED, counts(0, 1), LONG_S, Again(7.0, counts(0, 2))),
        (FIXED, counts(2, 1), LONG_S, NoRestart("the restart strategy allows 3 restarts")),
        (FIXED, counts(0, 3), LONG_S, NoRestart("the restart strategy allows 3 restarts")),
    ],
)
def test_the_first_restart_after_a_loss_is_immediate_and_counts(
    strategy: Strategy, restarts: Restarts, ran_s: float, expected: Again | NoRestart
) -> None:
    actual = after_loss(strategy, restarts, ran_s, MIDDLE)

    assert expected == actual


@pytest.mark.parametrize(
    ("strategy", "restarts", "expected"),
    [
        (Strategy(), counts(1, 30), Again(0.0, counts(1, 1))),
        (NONE, counts(0), NoRestart("the restart strategy is 'none'")),
        (FIXED, counts(0, 3), NoRestart("the restart strategy allows 3 restarts")),
    ],
)
def test_losses_of_attempts_that_brought_the_job_further_do_not_add_up_unless_one_said_how_many(
    strategy: Strategy, restarts: Restarts, expected: Again | NoRestart
) -> None:
    actual = after_loss(strategy, restarts, SHORT_S, MIDDLE, advanced=True)

    assert expected == actual


@pytest.mark.parametrize(
    ("restarts", "ran_s", "expected"),
    [
        (counts(), SHORT_S, Again(1.0, counts(1, 0, (1.0,)))),
        (counts(), LONG_S, Again(1.0, counts(1, 0, (1.0,)))),
        (counts(1, 0, (1.0,)), 2.5, Again(1.0, counts(2, 0, (4.5, 1.0)))),
        (counts(0, 1, (0.0,)), 2.5, Again(1.0, counts(1, 1, (3.5, 1.0)))),
        (counts(2, 0, (50.0, 1.0)), 10.1, Again(1.0, counts(3, 0, (12.1, 1.0)))),
        (counts(2, 0, (50.0, 1.0)), 60.0, Again(1.0, counts(1, 0, (1.0,)))),
        (counts(2, 9, (50.0, 1.0)), 60.0, Again(1.0, counts(1, 0, (1.0,)))),
        (
            counts(2, 0, (50.0, 1.0)),
            10.0,
            NoRestart("the restart strategy allows 2 restarts within 60 s"),
        ),
        (counts(1, 0, (1.0,)), 0.00012, Again(1.0, counts(2, 0, (2.0, 1.0)))),
        (counts(1, 0, (1.0,)), -5.0, Again(1.0, counts(2, 0, (2.0, 1.0)))),
    ],
)
def test_a_failure_rate_allows_so_many_restarts_within_its_interval(
    restarts: Restarts, ran_s: float, expected: Again | NoRestart
) -> None:
    actual = after_exception(RATE, restarts, ran_s, MIDDLE)

    assert expected == actual


@pytest.mark.parametrize(
    ("restarts", "ran_s", "expected"),
    [
        (counts(), SHORT_S, Again(0.0, counts(0, 1, (0.0,)))),
        (counts(1, 0, (1.0,)), 2.5, Again(0.0, counts(1, 1, (3.5, 0.0)))),
        (counts(0, 1, (0.0,)), 2.5, Again(1.0, counts(0, 2, (3.5, 1.0)))),
        (counts(0, 9, (50.0,)), 10.1, Again(0.0, counts(0, 1, (0.0,)))),
        (
            counts(1, 1, (50.0, 0.0)),
            10.0,
            NoRestart("the restart strategy allows 2 restarts within 60 s"),
        ),
    ],
)
def test_a_failure_rate_counts_losses_too_and_the_first_restart_is_immediate(
    restarts: Restarts, ran_s: float, expected: Again | NoRestart
) -> None:
    actual = after_loss(RATE, restarts, ran_s, MIDDLE)

    assert expected == actual


@EXPLORE
@given(
    attempts=st.integers(1, 5),
    delay_s=st.integers(0, 5),
    interval_s=st.integers(1, 60),
    lives=st.lists(st.tuples(st.booleans(), st.integers(0, 40)), min_size=1, max_size=30),
)
def test_a_failure_rate_gives_up_at_the_failure_that_is_one_too_many_and_never_before(
    attempts: int, delay_s: int, interval_s: int, lives: list[tuple[bool, int]]
) -> None:
    strategy = Strategy(
        "failure-rate", attempts, delay_s, delay_s, 1.0, 0.0, float("inf"), interval_s
    )

    now, times, restarts = 0.0, list[float](), Restarts()
    for raises, ran_s in lives:
        now += ran_s
        earlier = [time for time in times if now - time <= interval_s]
        expected = len(earlier) >= attempts
        decide = after_exception if raises else after_loss
        decision = decide(strategy, restarts, ran_s, MIDDLE)
        actual = isinstance(decision, NoRestart)

        assert expected == actual

        if isinstance(decision, NoRestart):
            return
        times.append(now)
        now += decision.delay_s
        restarts = decision.restarts

        assert len(restarts.ages) <= attempts


@pytest.mark.parametrize(
    ("chance", "expected"), [(0.0, 0.9), (0.25, 0.95), (0.5, 1.0), (0.75, 1.05), (1.0, 1.1)]
)
def test_the_jitter_makes_a_pause_longer_or_shorter_by_its_share(
    chance: float, expected: float
) -> None:
    decision = after_exception(Strategy(), counts(), SHORT_S, chance)
    actual = decision.delay_s if isinstance(decision, Again) else None

    assert pytest.approx(expected) == actual


def test_the_jitter_is_drawn_for_losses_too() -> None:
    expected = Again(0.9, counts(0, 2))

    actual = after_loss(Strategy(), counts(0, 1), SHORT_S, 0.0)

    assert expected == actual


def test_no_pause_is_longer_than_the_longest() -> None:
    expected = Again(60.0, counts(21))

    actual = after_exception(ENDLESS, counts(20), SHORT_S, 0.99)

    assert expected == actual


def test_a_huge_multiplier_waits_the_longest_pause() -> None:
    expected = Again(60.0, counts(61))

    actual = after_exception(
        Strategy(attempts=INFINITE, multiplier=1e6), counts(60), SHORT_S, MIDDLE
    )

    assert expected == actual


def test_a_small_multiplier_reaches_the_longest_pause_too() -> None:
    strategy = Strategy(attempts=INFINITE, multiplier=1.01, jitter=0.0)
    expected = Again(60.0, counts(1001))

    actual = after_exception(strategy, counts(1000), SHORT_S, MIDDLE)

    assert expected == actual


@pytest.mark.parametrize("failures", [0, 60, 10**6])
def test_pauses_of_no_time_stay_so(failures: int) -> None:
    expected = Again(0.0, counts(failures + 1))

    actual = after_exception(
        Strategy(attempts=INFINITE, initial_s=0.0), counts(failures), SHORT_S, MIDDLE
    )

    assert expected == actual


def test_the_longest_pauses_differ_too() -> None:
    expected = Again(54.0, counts(21))

    actual = after_exception(ENDLESS, counts(20), SHORT_S, 0.0)

    assert expected == actual


def test_a_pause_is_never_shorter_than_none_whatever_the_jitter() -> None:
    expected = Again(0.0, counts(1))

    actual = after_exception(Strategy(jitter=3.0), counts(), SHORT_S, 0.0)

    assert expected == actual


def test_an_attempt_that_ran_for_long_before_its_exception_breaks_the_row_of_losses() -> None:
    expected = Again(0.0, counts(1, 1))

    raised = after_exception(Strategy(), counts(0, 30), LONG_S, MIDDLE)
    assert isinstance(raised, Again)
    actual = after_loss(Strategy(), raised.restarts, SHORT_S, MIDDLE)

    assert expected == actual


@EXPLORE
@given(
    attempts=st.integers(0, 12),
    chances=st.lists(st.floats(0, 1, exclude_max=True), min_size=13, max_size=13),
    kind=st.sampled_from(["fixed-delay", "exponential-delay"]),
)
def test_a_function_that_always_raises_is_restarted_just_so_often(
    attempts: int, chances: list[float], kind: str
) -> None:
    strategy = Strategy(kind, attempts)
    expected = attempts

    restarts, actual = Restarts(), 0
    for chance in chances:
        decision = after_exception(strategy, restarts, SHORT_S, chance)
        if isinstance(decision, NoRestart):
            break
        restarts, actual = decision.restarts, actual + 1

    assert expected == actual


@EXPLORE
@given(
    attempts=st.integers(1, 5),
    lives=st.lists(st.tuples(st.booleans(), st.floats(0, LONG_S, exclude_max=True))),
    kind=st.sampled_from(["fixed-delay", "exponential-delay"]),
)
def test_a_job_that_never_runs_for_long_is_given_up_in_the_end(
    attempts: int, lives: list[tuple[bool, float]], kind: str
) -> None:
    strategy = Strategy(kind, attempts)
    patience = attempts + LOSSES_PER_ATTEMPT * attempts
    lives = (lives or [(False, 0.0)]) * (patience + 1)

    restarts, given_up = Restarts(), False
    for raises, ran_s in lives:
        decide = after_exception if raises else after_loss
        decision = decide(strategy, restarts, ran_s, MIDDLE)
        if isinstance(decision, NoRestart):
            given_up = True
            break
        restarts = decision.restarts

    assert given_up


@EXPLORE
@given(
    failures=st.integers(0, 200),
    losses=st.integers(0, 29),
    ran_s=st.floats(0, 1e6),
    chance=st.floats(0, 1, exclude_max=True),
    jitter=st.floats(0, 1),
)
def test_a_pause_is_never_negative_and_its_core_never_shrinks(
    failures: int, losses: int, ran_s: float, chance: float, jitter: float
) -> None:
    drawn = Strategy(attempts=INFINITE, jitter=jitter)
    plain = Strategy(attempts=INFINITE, jitter=0.0)

    after = [
        after_exception(drawn, counts(failures), SHORT_S, chance),
        after_loss(drawn, counts(0, losses), ran_s, chance),
    ]
    first = after_exception(plain, counts(failures), SHORT_S, chance)
    second = after_exception(plain, counts(failures + 1), SHORT_S, chance)

    assert all(isinstance(each, Again) and each.delay_s >= 0 for each in after)
    assert isinstance(first, Again)
    assert isinstance(second, Again)
    assert first.delay_s <= second.delay_s <= plain.maximum_s


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Strategy("exponential-delay", 3, 1.0, 60.0, 1.5, 0.1, 3600.0)),
        (
            {
                "restart-strategy.exponential-delay.attempts-before-reset-backoff": "infinite",
                "restart-strategy.exponential-delay.initial-backoff": "2 s",
                "restart-strategy.exponential-delay.max-backoff": "3 min",
                "restart-strategy.exponential-delay.backoff-multiplier": "2.0",
                "restart-strategy.exponential-delay.jitter-factor": "0.5",
                "restart-strategy.exponential-delay.reset-backoff-threshold": "5 min",
            },
            Strategy("exponential-delay", INFINITE, 2.0, 180.0, 2.0, 0.5, 300.0),
        ),
        (
            {"restart-strategy.type": "fixed-delay"},
            Strategy("fixed-delay", 1, 1.0, 1.0, 1.0, 0.0, float("inf")),
        ),
        (
            {
                "restart-strategy.type": "fixeddelay",
                "restart-strategy.fixed-delay.attempts": "4",
                "restart-strategy.fixed-delay.delay": "10 s",
            },
            Strategy("fixed-delay", 4, 10.0, 10.0, 1.0, 0.0, float("inf")),
        ),
        (
            {"restart-strategy.type": "failure-rate"},
            Strategy("failure-rate", 1, 1.0, 1.0, 1.0, 0.0, float("inf"), 60.0),
        ),
        (
            {
                "restart-strategy.type": "failurerate",
                "restart-strategy.failure-rate.max-failures-per-interval": "3",
                "restart-strategy.failure-rate.failure-rate-interval": "5 min",
                "restart-strategy.failure-rate.delay": "10 s",
            },
            Strategy("failure-rate", 3, 10.0, 10.0, 1.0, 0.0, float("inf"), 300.0),
        ),
        ({"restart-strategy.type": "disable"}, Strategy("none", 0)),
    ],
)
def test_the_strategy_is_the_configured_one(settings: dict[str, str], expected: Strategy) -> None:
    actual = Strategy.of(Configuration(settings))

    assert expected == actual


PARSE = (
    "pyspark.errors.exceptions.captured.ParseException",
    "pyspark.errors.exceptions.base.AnalysisException",
    "builtins.Exception",
)
"""The classes of an exception, as PySpark has them."""


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (("AnalysisException",), True),
        (("pyspark.errors.AnalysisException",), True),
        (("pyspark.errors.exceptions.base.AnalysisException",), True),
        (("NameError", "ParseException"), True),
        (("Exception",), True),
        ((), False),
        (("Analysis",), False),
        (("other.AnalysisException",), False),
        (("pyspark.err.AnalysisException",), False),
        (("pyspark.errors.exceptions.base",), False),
    ],
)
def test_a_list_names_a_class_bare_or_by_its_module_or_a_package_around_it(
    listed: tuple[str, ...], expected: bool
) -> None:
    assert expected is is_listed(PARSE, listed)


@pytest.mark.parametrize(
    ("strategy", "restarts", "ran_s", "expected"),
    [
        (OWN, counts(0), SHORT_S, Again(1.0, counts(1))),
        (OWN, counts(2), SHORT_S, NO_MORE),
        (OWN, counts(2), LONG_S, NO_MORE),
        (OWN, counts(1, losses=9), LONG_S, Again(1.5, counts(2))),
        (Strategy(retries=5), counts(4), SHORT_S, Again(5.0625, counts(5))),
        (
            Strategy(retries=0),
            counts(0),
            SHORT_S,
            NoRestart("the job allows no restart (retries=0)"),
        ),
        (Strategy("none", 0, retries=2), counts(1), SHORT_S, Again(1.5, counts(2))),
        (OWN_FIXED, counts(4, losses=3), SHORT_S, Again(7.0, counts(5, losses=3))),
        (OWN_RATE, counts(1, ages=(5.0, 55.0)), 10.0, Again(1.0, counts(2, ages=(16.0,)))),
        (OWN_RATE, counts(2), SHORT_S, NO_MORE),
    ],
)
def test_a_limit_of_the_job_replaces_that_of_the_strategy(
    strategy: Strategy, restarts: Restarts, ran_s: float, expected: Again | NoRestart
) -> None:
    assert expected == after_exception(strategy, restarts, ran_s, MIDDLE)


@pytest.mark.parametrize(
    ("strategy", "restarts", "expected"),
    [
        (Strategy("none", 0, retries=2), counts(0), NoRestart("the restart strategy is 'none'")),
        (OWN_FIXED, counts(5, losses=2), Again(7.0, counts(5, losses=3))),
        (OWN_FIXED, counts(0, losses=3), NoRestart("the restart strategy allows 3 restarts")),
        (OWN_RATE, counts(2), Again(0.0, counts(2, losses=1, ages=(0.0,)))),
        (OWN, counts(2, losses=4), Again(1.5**4 * 1.0 / 1.5, counts(2, losses=5))),
    ],
)
def test_losses_keep_their_rule_beside_a_limit_of_the_job(
    strategy: Strategy, restarts: Restarts, expected: Again | NoRestart
) -> None:
    assert expected == after_loss(strategy, restarts, SHORT_S, MIDDLE)
