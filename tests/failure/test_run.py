"""A run that cannot go on is judged all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failure import run
from tests.failure.cluster import Stage
from tests.failure.history import Pen
from tests.failure.run import Plan, play, told


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Return a stage on which nobody leads, and whose history has one violation."""
    made = Stage(tmp_path, 0.0, None)
    pen = Pen(made.history, "one")
    said = {"term": 2, "key": "tally-0", "verb": "count", "about": "", "n": 1}
    for number, term in enumerate((2, 1)):
        pen.note("begin", **{**said, "term": term}, id=number)
        pen.note("end", id=number, outcome="done")
    yield made
    made.close()


def test_what_was_written_before_nobody_led_is_judged_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MARGIN_S", 0.0)

    verdict = play(Plan(seed=1, faults=3), stage, [lambda _: pytest.fail("nobody leads")])

    stale, *ends = verdict.violations
    assert "count of term 1 by one was acknowledged" in stale
    assert [
        "a round was not played to its end: AssertionError('nobody leads')",
        "the end was not played to its end: AssertionError('nobody leads at the end')",
    ] == ends
    assert "nobody leads" in told(verdict)
    assert {"done": 2} == verdict.counts["writes"]
