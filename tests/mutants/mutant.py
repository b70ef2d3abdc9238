"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One fault: ``before`` occurs once in ``path`` (below ``src/understudy``)."""

    name: str
    invariant: int
    path: str
    before: str
    after: str
    tests: tuple[str, ...]


def mutant(name: str, invariant: int, path: str, before: str, after: str, *tests: str) -> Mutant:
    """Return a mutant."""
    return Mutant(name, invariant, path, before, after, tests)
