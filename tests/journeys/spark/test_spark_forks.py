"""Children that a job with a session forks: the JVM hears nothing of them."""

from __future__ import annotations

import pytest

from tests.journeys.spark.conftest import Begin

pytestmark = pytest.mark.spark

ALONE = ("--jobmanagers", "1", "--slots", "1", "-D", "taskmanager.spare-drivers=0")


def test_a_forked_child_does_not_reach_the_jvm_and_its_parent_does(begin: Begin) -> None:
    run = begin("forked.py", options=ALONE)
    code = run.finish()

    assert code == 0, run.story()
    assert "value {'codes': [8, 8], 'count': 1000}" in run.log.read_text()
    assert run.lines("told.txt") == ["UsageError"] * 2
