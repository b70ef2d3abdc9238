"""Every world reaches its end, and nothing is violated on the way."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.sim.world import World

STORY_LINES_MAX = 400
STORIES = [3, 11, 40, 45, 82, 110, 216, 496]

Record = Callable[[str, object], None]


def test_no_fault_breaks_an_invariant_and_every_run_ends(
    batch: range, record_property: Record, request: pytest.FixtureRequest
) -> None:
    failures = _run(batch, record_property)

    if request.config.getoption("--seed", None) is not None and not failures:
        print(_story(batch[0]))
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)


def test_a_world_that_has_failed_once_does_not_fail_again(
    kept_seed: int, record_property: Record
) -> None:
    failures = _run([kept_seed], record_property)

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
    return hashlib.sha256("\n".join(_story(seed) for seed in seeds).encode()).hexdigest()


def _run(seeds: Iterable[int], record_property: Record) -> list[str]:
    failures = []
    began = time.process_time()
    virtual_s, worlds = 0.0, 0
    for seed in seeds:
        world = World(seed)
        try:
            world.run()
        except Exception as error:
            failures.append(_told(seed, world, error))
        virtual_s += world.time.now
        worlds += 1
    record_property("worlds", worlds)
    record_property("virtual_s", virtual_s)
    record_property("processor_s", time.process_time() - began)
    return failures


def _told(seed: int, world: World, error: Exception) -> str:
    story = world.story
    if len(story) > STORY_LINES_MAX:
        story = [f"({len(story) - STORY_LINES_MAX} lines before)", *story[-STORY_LINES_MAX:]]
    lines = "\n".join(story)
    return (
        f"world {seed} failed: {type(error).__name__}: {error}\n{world.profile}\n{lines}\n"
        f"to see it again: pytest tests/sim --seed {seed}"
    )


def _story(seed: int) -> str:
    world = World(seed)
    try:
        world.run()
    except AssertionError as error:
        world.tell(str(error))
    return "\n".join(world.story)
