"""A crash at any write leaves a state from which recovery reaches the same end as without it.

`PointWorld` checks every invariant on the way (tests/sim/invariants.py), and that nothing is left
(tests/sim/ending.py); `judging` compares the ends: status, results and what is kept are the same,
and no function that ended, and no `main`, is executed more often than it was crashed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

import pytest

from tests.crash.conftest import PAIRS, WRITES, parse
from tests.crash.judging import Strikes, name_of, orders, struck, undisturbed
from tests.crash.points import Manner, Strike, Victim
from tests.crash.quiet import COMBINATIONS, Combination

Record = Callable[[str, object], None]

AT_EVERY_WRITE = [
    Strike(manner)
    for manner in (
        Manner.NOT_DONE,
        Manner.HALF_DONE,
        Manner.UNANSWERED,
        Manner.DONE,
        Manner.ANSWER_LOST,
    )
]
"""What happens at each single write, where all are asked for."""

AT_MANY_WRITES = [
    Strike(Manner.REFUSED),
    *(
        Strike(manner, victim)
        for victim in (Victim.HOST, Victim.ALL)
        for manner in (Manner.NOT_DONE, Manner.HALF_DONE, Manner.UNANSWERED)
    ),
]
"""What happens at one write in so many, unless all pairs are asked for."""

MANY = 12

FIRST = [Strike(manner) for manner in (Manner.NOT_DONE, Manner.UNANSWERED, Manner.ANSWER_LOST)]
SECOND = [*FIRST, Strike(Manner.HALF_DONE)]
"""What happens first, and what happens during the recovery from it."""

FAILURES_MAX = 3
"""So many stories are told of one combination; the others are only named."""

by_combination = pytest.mark.parametrize("combination", COMBINATIONS, ids=str)


@pytest.mark.parametrize("strike", AT_EVERY_WRITE, ids=str)
@by_combination
def test_a_crash_at_any_write_changes_nothing_of_the_end(
    combination: Combination,
    strike: Strike,
    record_property: Record,
    request: pytest.FixtureRequest,
) -> None:
    step = _every(request)
    first = (COMBINATIONS.index(combination) + AT_EVERY_WRITE.index(strike)) % step
    points = ({number: strike} for number in islice(orders(combination, strike), first, None, step))

    _demand(combination, points, record_property, "crash_points")


@pytest.mark.parametrize("strike", AT_MANY_WRITES, ids=str)
@by_combination
def test_neither_does_an_error_or_the_loss_of_a_host_or_of_the_cluster(
    combination: Combination,
    strike: Strike,
    record_property: Record,
    request: pytest.FixtureRequest,
) -> None:
    step = 1 if request.config.getoption("--pairs", "") == "all" else MANY
    first = (COMBINATIONS.index(combination) + AT_MANY_WRITES.index(strike)) % step
    points = ({number: strike} for number in islice(orders(combination, strike), first, None, step))

    _demand(combination, points, record_property, "crash_points")


@pytest.mark.parametrize("strike", SECOND, ids=str)
@by_combination
def test_neither_does_a_crash_at_any_write_of_a_takeover(
    combination: Combination,
    strike: Strike,
    record_property: Record,
    request: pytest.FixtureRequest,
) -> None:
    step = _every(request)
    first = (COMBINATIONS.index(combination) + SECOND.index(strike)) % step
    points = islice(_takeover(combination, strike), first, None, step)

    _demand(combination, points, record_property, "crash_pairs")


@pytest.mark.parametrize("first", FIRST, ids=str)
@by_combination
def test_neither_does_a_second_crash_during_the_recovery_from_the_first(
    combination: Combination,
    first: Strike,
    record_property: Record,
    request: pytest.FixtureRequest,
) -> None:
    asked = request.config.getoption("--pairs", str(PAIRS))
    step = 1 if asked == "all" else math.isqrt(int(asked))

    _demand(combination, _pairs(combination, first, step), record_property, "crash_pairs")


def test_the_point_that_was_asked_for(point: str) -> None:
    combination, strikes = parse(point)
    world, wrong = struck(combination, strikes)
    print("\n".join([*world.story, *map(str, world.writes)]))

    assert not wrong, wrong


@by_combination
def test_every_kind_of_process_writes(combination: Combination) -> None:
    kinds = {write.kind for write in undisturbed(combination).writes}

    assert ({"jm", "main", "driver"} if combination.jobs else {"jm"}) == kinds


def _every(request: pytest.FixtureRequest) -> int:
    """Return at which so-manieth write a crash is asked for."""
    asked = request.config.getoption("--writes", str(WRITES))
    return 1 if asked == "all" else int(asked)


def _takeover(combination: Combination, strike: Strike) -> Iterator[Strikes]:
    """Yield every write of the leader that comes after one that crashed in the middle of the run.

    Its takeover is over when it has made its address known: with its second write of the record.
    """
    ours = [write for write in undisturbed(combination).writes if write.who == "jm-1"]
    middle = ours[len(ours) // 2].number
    world, wrong = struck(combination, {middle: FIRST[0]})
    assert not wrong, wrong
    records = 0
    for write in world.writes[middle:]:
        if records < 2 and (write.divisible or strike.manner is not Manner.HALF_DONE):
            yield {middle: FIRST[0], write.number: strike}
        records += write.subject == "leader"


def _pairs(combination: Combination, first: Strike, step: int) -> Iterator[Strikes]:
    """Yield the pairs: the second write is one of the recovery from the first strike."""
    offset = COMBINATIONS.index(combination) + FIRST.index(first)
    for number in islice(orders(combination, first), offset % step, None, step):
        world, wrong = struck(combination, {number: first})
        if wrong:
            continue  # The single crash tells it.
        second = chain.from_iterable(
            ((write, strike) for strike in SECOND) for write in world.writes[number:]
        )
        for write, strike in islice(second, (offset + number) % step, None, step):
            if write.divisible or strike.manner is not Manner.HALF_DONE:
                yield {number: first, write.number: strike}


def _demand(
    combination: Combination, points: Iterable[Strikes], record_property: Record, counted: str
) -> None:
    failures: list[str] = []
    names: list[str] = []
    count = 0
    for strikes in points:
        count += 1
        _, wrong = struck(combination, strikes)
        if wrong:
            names.append(name_of(combination, strikes))
            if len(failures) < FAILURES_MAX:
                failures.append(wrong)
    record_property(counted, count)
    if failures:
        told = "\n\n".join(failures)
        pytest.fail(f"{len(names)} of {count}: {', '.join(names)}\n\n{told}", pytrace=False)
