"""Random signals to random processes: a short form of ``python -m tests.chaos``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import Plan, run
from tests.support.sampling import quickly


@pytest.mark.parametrize("seed", quickly([1, 2], [2]))
def test_whatever_signals_hit_nothing_is_violated(seed: int, tmp_path: Path) -> None:
    verdict = run(Plan(seed, signals=10, mean_pause_s=1.0, job_s=1.0), tmp_path)

    assert [] == verdict.violations, "\n".join(verdict.story)
    assert verdict.attempts > 5
