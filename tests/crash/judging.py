"""What must be true of a run that was struck: it comes to the end it would have come to anyway."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.crash.points import End, Manner, PointWorld, Strike, Victim, Write
from tests.crash.quiet import Combination

STORY_LINES_MAX = 120

Strikes = Mapping[int, Strike]


@dataclass(frozen=True)
class Undisturbed:
    """A run that nothing was done to."""

    end: End
    entered: Mapping[str, int]
    writes: tuple[Write, ...]


@functools.cache
def undisturbed(combination: Combination, *, one_host: bool = True) -> Undisturbed:
    """Return how a run goes by itself."""
    world = PointWorld(combination, {}, one_host=one_host)
    world.run()
    return Undisturbed(world.end(), dict(world.entered), tuple(world.writes))


def struck(combination: Combination, strikes: Strikes) -> tuple[PointWorld, str]:
    """Run it with these strikes; return the world, and what was wrong, or nothing."""
    world = PointWorld(combination, strikes, one_host=on_one_host(strikes))
    try:
        world.run()
        _compare(world, undisturbed(combination, one_host=on_one_host(strikes)), strikes)
    except Exception as error:
        return world, _told(combination, strikes, world, error)
    return world, ""


def on_one_host(strikes: Strikes) -> bool:
    """Say whether the cluster is on one host: unless a host is to die alone."""
    return all(strike.victim is not Victim.HOST for strike in strikes.values())


def orders(combination: Combination, strike: Strike) -> Iterator[int]:
    """Return the numbers of the writes that can be struck so."""
    for write in undisturbed(combination, one_host=on_one_host({0: strike})).writes:
        if write.divisible or strike.manner is not Manner.HALF_DONE:
            yield write.number


def name_of(combination: Combination, strikes: Strikes) -> str:
    """Return what `--point` takes."""
    told = [
        f"{number}/{strike.manner.name}/{strike.victim.name}".lower()
        for number, strike in strikes.items()
    ]
    return ":".join([str(combination), *told])


def _compare(world: PointWorld, baseline: Undisturbed, strikes: Strikes) -> None:
    end, demand = world.end(), world.watch.demand
    missed = [number for number in strikes if number > len(world.writes)]
    demand(not missed, f"there is no write {missed}")
    demand(end.status is baseline.end.status, f"it ended {end.status}, not {baseline.end.status}")
    demand(end.jobs == baseline.end.jobs, f"jobs ended {end.jobs}, not {baseline.end.jobs}")
    demand(end.kept == baseline.end.kept, f"kept is {end.kept}, not {baseline.end.kept}")
    losses = sum(
        kind == "driver" or strike.victim is not Victim.PROCESS
        for kind, strike in zip(world.crashed, strikes.values(), strict=True)
    )
    for name, usual in baseline.entered.items():
        times = world.entered.get(name, 0)
        right = usual <= times <= usual + losses
        demand(right, f"{name} was executed {times} times, not {usual} to {usual + losses}")
    most = 1 + len(strikes)
    demand(1 <= world.mains <= most, f"main was executed {world.mains} times, not up to {most}")


def _told(combination: Combination, strikes: Strikes, world: PointWorld, error: Exception) -> str:
    story = world.story
    if len(story) > STORY_LINES_MAX:
        story = [f"({len(story) - STORY_LINES_MAX} lines before)", *story[-STORY_LINES_MAX:]]
    writes = {write.number: write for write in world.writes}
    hit = [f"{writes.get(number, number)}: {strike}" for number, strike in strikes.items()]
    return "\n".join(
        [
            f"{combination}, {'; then '.join(hit)}",
            f"{type(error).__name__}: {error}",
            *story,
            f"to see it again: pytest tests/crash --point {name_of(combination, strikes)}",
        ]
    )
