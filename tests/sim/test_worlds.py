"""Every world reaches its end, and nothing is violated on the way."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sim.program import LOOPS, SLOW, Job, Odds, Other, Program, draw
from tests.sim.shrink import Patience, keep, told
from tests.sim.spec import Spec
from tests.sim.world import World
from understudy.model import RunId

STORIES = [3, 11, 40, 45, 82, 110, 216, 496]

Record = Callable[[str, object], None]


def test_no_fault_breaks_an_invariant_and_every_run_ends(
    batch: list[Spec],
    patience: Patience,
    record_property: Record,
    request: pytest.FixtureRequest,
) -> None:
    failures = _run(batch, patience, record_property)

    if request.config.getoption("--seed", None) is not None and not failures:
        print(_story(batch[0]))
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)


def test_no_fault_breaks_an_invariant_among_many_applications(
    crowd: list[Spec],
    patience: Patience,
    record_property: Record,
    request: pytest.FixtureRequest,
) -> None:
    failures = _run(crowd, patience, record_property)

    if request.config.getoption("--seed", None) is not None and not failures:
        print(_story(crowd[0]))
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)


def test_no_fault_of_an_api_server_breaks_an_invariant(
    kubernetes_batch: list[Spec],
    patience: Patience,
    record_property: Record,
    request: pytest.FixtureRequest,
) -> None:
    failures = _run(kubernetes_batch, patience, record_property)

    if request.config.getoption("--seed", None) is not None and not failures:
        print(_story(kubernetes_batch[0]))
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)


def test_an_application_in_trouble_delays_no_other_and_ends_no_term() -> None:
    """One has slow storage, one fails again and again; two others are as if they were alone."""
    quick = Program((tuple(Job(name, 1.0) for name in ("x", "y")),))
    profile = replace(draw(0), **CALM)
    troubles = (SLOW, LOOPS, "")
    profile.others = [
        Other(number, 0.0, quick.changed(named(number)), trouble=trouble)
        for number, trouble in enumerate(troubles, start=1)
    ]
    world = World(0, profile)
    world.run()
    ends = {str(run): _moment(world, f"run {run} is buried") for run in world.runs}

    assert 1 == world.watch.term
    assert max(ends["run-1"], ends["other-3"]) < 40
    assert min(ends["other-1"], ends["other-2"]) > 40


def test_where_nothing_happens_one_term_is_enough() -> None:
    world = World(0, replace(draw(0), **{**CALM, "session": False}))
    world.run()

    assert 1 == world.watch.term
    assert [RunId("run-1")] == [ended.run_id for ended in world.ended]


CALM: dict[str, Any] = {
    "jobmanagers": 1,
    "taskmanagers": 1,
    "slots": 2,
    "spares": 0,
    "session": True,
    "program": Program(((Job("a", 1.0),),)),
    "register": Odds(),
    "storage": Odds(),
    "blows": [],
    "acts": [],
    "deployments": [],
    "revised": (),
    "other_timing": None,
    "clients": 0,
    "standing": 0.0,
    "strikes": 0.0,
    "wire_s": 0.001,
    "cancel_at": None,
    "faults_end": 0.0,
}


def named(number: int) -> Callable[[Job], Job]:
    """Return what gives the jobs of an application names of their own."""
    return lambda job: replace(job, name=f"{job.name}{number}")


def _moment(world: World, text: str) -> float:
    (line,) = (line for line in world.story if line.endswith(text))
    return float(line.split()[0])


def test_a_world_that_has_failed_once_does_not_fail_again(
    kept_world: Spec, patience: Patience, record_property: Record
) -> None:
    failures = _run([kept_world], patience, record_property)

    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)


def test_the_same_seed_tells_the_same_story_in_every_process() -> None:
    told = f"from tests.sim.test_worlds import stories; print(stories({STORIES}))"
    here = stories(STORIES)

    for hash_seed in ("1", "2"):
        other = subprocess.run(
            [sys.executable, "-c", told],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        )
        assert here == other.stdout.strip()


def stories(seeds: Iterable[int]) -> str:
    """Return the digest of several worlds' stories."""
    return hashlib.sha256("\n".join(_story(Spec(seed)) for seed in seeds).encode()).hexdigest()


def _run(specs: Iterable[Spec], patience: Patience, record_property: Record) -> list[str]:
    """Run worlds; return how they failed: of the first failure the smallest world there is."""
    failures: list[str] = []
    began = time.process_time()
    virtual_s, worlds = 0.0, 0
    for spec in specs:
        world = World(spec.seed, spec.profile())
        try:
            world.run()
        except Exception as error:
            small = spec if failures else patience.shrink(spec)
            keep(small, error)
            failures.append(told(small, error, whole=not failures))
        virtual_s += world.time.now
        worlds += 1
    record_property("worlds", worlds)
    record_property("virtual_s", virtual_s)
    record_property("processor_s", time.process_time() - began)
    return failures


def _story(spec: Spec) -> str:
    world = World(spec.seed, spec.profile())
    try:
        world.run()
    except AssertionError as error:
        world.tell(str(error))
    return "\n".join(world.story)
