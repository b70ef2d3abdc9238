"""The demo on a Spark cluster: one process of each kind is killed, and nothing is lost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journeys import harness
from tests.journeys.spark.conftest import left_behind

pytestmark = [pytest.mark.spark, pytest.mark.long]

DEMO = Path(__file__).parents[3] / "examples" / "demo_cluster.py"
DEMO_S = 1800
"""It takes three minutes on an idle machine, and ends its processes itself."""


@dataclass
class Shown:
    """What the demo has printed, and what it has left."""

    text: str
    code: int
    place: Path
    left: dict[int, str]

    @property
    def story(self) -> str:
        """What it tells at the end."""
        return self.text.rpartition("What happened")[2]


@pytest.fixture(scope="module")
def shown(ground: Path) -> Shown:
    """Run the demo."""
    done = subprocess.run(
        [sys.executable, str(DEMO)],
        cwd=ground,
        env=harness.environment(ground),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEMO_S,
        check=False,
    )
    return Shown(done.stdout, done.returncode, ground, left_behind(ground))


def test_one_of_each_kind_is_killed_and_nothing_is_lost(shown: Shown) -> None:
    assert 0 == shown.code, shown.text[-4000:]
    assert "killed: driver, executor, leader, worker" in shown.story
    assert "lost: nothing" in shown.story
    assert "Spark's Master: 0 cores are held" in shown.story


def test_the_loss_of_the_leader_costs_no_attempt_and_that_of_the_driver_one(shown: Shown) -> None:
    assert re.search(r"adopted: (?!nothing)\w+", shown.story)
    assert "restarted: planes and airports" in shown.story
    assert "flights / load #1" in shown.story
    assert "flights / planes and airports #2" in shown.story


def test_the_report_is_that_of_all_flights(shown: Shown) -> None:
    report = json.loads((shown.place / "out" / "demo-cluster" / "out" / "report.json").read_text())

    assert report


def test_no_process_is_left(shown: Shown) -> None:
    assert {} == shown.left
