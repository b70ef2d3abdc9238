"""A hundred applications on four slots, while leaders and TaskManagers are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.sim.program import Blow, Job, Other, Program, draw
from tests.sim.test_worlds import CALM
from tests.sim.world import World
from tests.support.kept_things import things_in
from understudy.model import ApplicationStatus, RegistryBody, RunId
from understudy.taskmanager.task_manager import TaskManager


def crowd(
    seed: int, applications: int, kills: Sequence[tuple[str, float]], lasts_s: float
) -> World:
    """Return a session of so many applications of five jobs, and whom somebody kills how often."""
    blows = [
        Blow(0, at * every_s, kind, 1, 0.0)
        for kind, every_s in kills
        for at in range(1, int(lasts_s / every_s))
    ]
    numbered = [
        replace(blow, number=number)
        for number, blow in enumerate(sorted(blows, key=lambda blow: blow.at))
    ]
    settings: dict[str, Any] = {
        **CALM,
        "jobmanagers": 2,
        "taskmanagers": 2,
        "locks": True,
        "one_host": True,
        "blows": numbered,
        "faults_end": lasts_s,
    }
    profile = replace(draw(seed), **settings)
    profile.others = [
        Other(number, number * 0.05, _program(number)) for number in range(1, applications)
    ]
    return World(seed, profile)


def _program(number: int) -> Program:
    jobs = [Job(f"{name}{number}", 0.5) for name in "abcde"]
    return Program(((jobs[0], jobs[1]), (jobs[2],), (jobs[3], jobs[4])))


def ends(world: World) -> list[ApplicationStatus]:
    """Return how the runs have ended."""
    registry = world.watch.documents["registry"].body
    assert isinstance(registry, RegistryBody)
    return [registry.tombstones[RunId(run)].status for run in world.runs]


@pytest.mark.parametrize(
    "kills",
    [
        [("crash a JobManager", 7.0)],
        [("crash a JobManager", 11.0), ("crash a TaskManager", 60.0)],
    ],
    ids=["leaders", "leaders and TaskManagers"],
)
def test_many_applications_all_finish_while_somebody_is_killed_again_and_again(
    kills: list[tuple[str, float]],
) -> None:
    world = crowd(7, 20, kills, 120.0)
    world.run()

    assert world.watch.term > 5
    assert {ApplicationStatus.FINISHED} == set(ends(world))


@pytest.mark.long
def test_a_hundred_applications_all_finish_while_leaders_are_killed_every_few_seconds() -> None:
    world = crowd(18, 100, [("crash a JobManager", 7.0), ("crash a TaskManager", 90.0)], 600.0)
    world.run()

    assert world.watch.term > 40
    assert {ApplicationStatus.FINISHED} == set(ends(world))


def test_nothing_is_kept_of_applications_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = kept_after(10, monkeypatch), kept_after(40, monkeypatch)

    assert few == many


def kept_after(applications: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Let so many applications end; return what is in the memory of JobManagers and TaskManagers.

    The tombstones in the registry are bounded by its size.
    """
    found: Counter[str] = Counter()
    world = crowd(7, applications, [], 5.0)
    workers: list[TaskManager] = []

    def manager(*arguments: Any) -> TaskManager:
        workers.append(TaskManager(*arguments))
        return workers[-1]

    def settle() -> None:
        for one in (*world.managers.values(), *workers):
            found.update(things_in(one))
        World._settle(world)

    monkeypatch.setattr("tests.sim.world.TaskManager", manager)
    monkeypatch.setattr(world, "_settle", settle)
    world.run()
    return dict(found)
