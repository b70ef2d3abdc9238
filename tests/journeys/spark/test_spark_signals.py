"""Random signals to the processes of a run with real Spark, JVMs and all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import Plan, run

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_whatever_signals_hit_nothing_is_violated(tmp_path: Path) -> None:
    verdict = run(Plan(5, signals=10, mean_pause_s=2.0, spark=True), tmp_path)

    assert [] == verdict.violations, "\n".join(verdict.story)
