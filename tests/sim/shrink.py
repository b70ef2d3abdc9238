"""Making a world that fails smaller, as long as it fails alike, and keeping it.

What failed is written below ``out/``, and is run again at the beginning of every run here until
the file is removed, so that no failure is lost; a line of it that is moved to `seeds.txt` is kept
for good, everywhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from tests.sim.spec import Spec, possible_cuts
from tests.sim.world import World

KEPT = Path(__file__).with_name("seeds.txt")
FAILED = Path(__file__).parents[2] / "out" / "failed-worlds.txt"

SHRINK_S = 60.0
"""The smallest world is found within a few hundred tries; one takes a tenth of a second at most."""

STORY_LINES_MAX = 400

HEAD = """\
# Worlds that failed here: they are run again first, until this file is removed.
# To keep one for good, move its line to tests/sim/seeds.txt.
"""

_NUMBERS = re.compile(r"[0-9a-f]{8,}|[0-9]+([.][0-9]+)?|\b\w\b")

Failing = Callable[[Spec], str | None]
"""Says how a world fails, None where it does not."""


def failure_of(spec: Spec) -> str | None:
    """Run a world; return what kind of failure it ends with."""
    try:
        World(spec.seed, spec.profile()).run()
    except Exception as error:
        return kind_of(error)
    return None


def kind_of(error: Exception) -> str:
    """Return what a failure has in common with those of other worlds: no names, no numbers."""
    name = type(error).__name__
    if not isinstance(error, AssertionError):
        return name
    return f"{name}: {_NUMBERS.sub('#', str(error).partition(chr(10))[0])[:80]}"


class Patience:
    """How long one process may go on shrinking: all its worlds together."""

    def __init__(self, limit_s: float = SHRINK_S) -> None:
        self._left_s = limit_s

    def shrink(self, spec: Spec) -> Spec:
        """Shrink a world that has failed, if there is time left."""
        began = time.monotonic()
        small = shrink(spec, failure_of, self._left_s)
        self._left_s -= time.monotonic() - began
        return small


def shrink(spec: Spec, failing: Failing, limit_s: float = SHRINK_S) -> Spec:
    """Return the world without all that its failure does not need, as far as time allows."""
    until = time.monotonic() + limit_s
    if limit_s <= 0:
        return spec
    kind = failing(spec)
    assert kind, f"world {spec} does not fail"
    smaller = True
    while smaller:
        smaller = False
        for cut in possible_cuts(spec.profile()):
            if time.monotonic() > until:
                return spec
            tried = spec.less(cut)
            if tried.profile() != spec.profile() and failing(tried) == kind:
                spec, smaller = tried, True
    return spec


def keep(spec: Spec, error: Exception, path: Path = FAILED) -> None:
    """Write down that a world has failed."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_text(HEAD)
    if spec not in kept(path):
        with path.open("a") as file:
            file.write(f"{spec}  # {kind_of(error)}\n")


def kept(path: Path) -> list[Spec]:
    """Return the worlds that stand in a file."""
    if not path.exists():
        return []
    lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    return [Spec.parse(line) for line in lines if line]


def told(spec: Spec, error: Exception, *, whole: bool) -> str:
    """Say how a world failed, with its story, and how to see it again."""
    world = World(spec.seed, spec.profile())
    try:
        world.run()
    except Exception as again:
        error = again
    story = world.story
    if len(story) > STORY_LINES_MAX:
        story = [f"({len(story) - STORY_LINES_MAX} lines before)", *story[-STORY_LINES_MAX:]]
    lines = "\n".join(story if whole else story[-10:])
    return (
        f"world {spec} failed: {type(error).__name__}: {error}\n{world.profile}\n{lines}\n"
        f'to see it again: pytest tests/sim --seed "{spec}"'
    )
