"""Fixtures of the guardian's tests: guardians that are cleared away, with all they guarded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.guardian.ground import Guard
from understudy.process import guardian

StartGuard = Callable[..., Guard]


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    """Make this process the one that inherits orphans, and leave none behind."""
    before = set(guardian.descendants())
    guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 1)
    yield
    while left := set(guardian.descendants()) - before:
        for pid in left:
            guardian.kill(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 0)


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[StartGuard]:
    """Return a function that starts a guardian with an obedient worker."""
    guards: list[Guard] = []

    def begin(*orders: str, **spec: Any) -> Guard:
        one = Guard(tmp_path / "locks" / spec.get("incarnation", "one"), *orders, **spec)
        guards.append(one)
        return one

    yield begin
    for one in guards:
        one.process.kill()
        one.wait()
        one.close()
