"""Failures of a real API server, judged by the history of all that was written and granted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failure import kubernetes
from tests.failure.run import Plan, told
from tests.kubernetes.control_plane import need

SEED, FAULTS, MANY = 3, 5, 300


@pytest.mark.parametrize("count", [FAULTS, pytest.param(MANY, marks=pytest.mark.long)])
def test_nothing_is_violated_while_an_api_server_fails(count: int, tmp_path: Path) -> None:
    need()
    plan = Plan(SEED, count, pairs=True, session_s=kubernetes.LEASE_S)

    verdict = kubernetes.run(plan, tmp_path)
    print(told(verdict))

    assert [] == verdict.violations, f"{verdict.story}, see {tmp_path}"
    assert verdict.counts["faults"] >= count - 1
    assert verdict.counts["writes"]["done"] > 10 * count
