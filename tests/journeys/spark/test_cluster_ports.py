"""Two drivers on one host with the same ports set: the second takes the next ones, as in Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.harness import WHOLE_S, Run
from tests.journeys.spark.conftest import Begin, left_behind, on
from tests.support.spark_cluster import SparkCluster
from tests.support.zookeeper import free_port

pytestmark = [pytest.mark.spark, pytest.mark.long]

JOBS = ("one", "two")
KEYS, EACH = 40, 25
RETRIES = 16
"""What Spark's ``spark.port.maxRetries`` is by default."""

FEW = ("--name", "ports", "--jobmanagers", "1", "--slots", "2", "-D", "taskmanager.spare-drivers=0")


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    driver_port: int
    block_port: int
    names: list[str]
    """The Spark applications while tasks of both jobs ticked."""
    code: int
    left: dict[int, str]

    def notes(self) -> list[dict[str, Any]]:
        """Return what the attempts have noted."""
        return [json.loads(line) for line in self.run.lines("attempts.txt")]


@pytest.fixture(scope="module")
def story(begin: Begin, ground: Path, spark_cluster: SparkCluster) -> Story:
    """Run two jobs at once, whose drivers are told the same ports."""
    driver_port, block_port = free_port(), free_port()
    ports = (
        *("--conf", f"spark.driver.port={driver_port}"),
        *("--conf", f"spark.blockManager.port={block_port}"),
    )
    options = (*on(spark_cluster), *FEW, *ports)
    run = begin("at_once_on_a_cluster.py", str(ground), *JOBS, options=options)
    for job in JOBS:
        run.until_line("marks.txt", f"tick {job} 1".__eq__, WHOLE_S)
    names = sorted(spark_cluster.state().names)
    for job in JOBS:
        (ground / f"go-{job}").touch()
    code = run.finish(WHOLE_S)
    return Story(run, driver_port, block_port, names, code, left_behind(ground))


def test_both_jobs_run_at_once_and_compute_what_is_right(story: Story) -> None:
    shuffled = {str(key): EACH for key in range(KEYS)}

    assert 0 == story.code, story.run.story()
    assert [f"ports / {job} #1" for job in JOBS] == story.names
    assert [(job, 1) for job in JOBS] == sorted(
        (note["job"], note["attempt"]) for note in story.notes()
    )
    assert dict.fromkeys(JOBS, shuffled) == json.loads(
        (story.run.place / "values.json").read_text()
    )
    assert {} == story.left


def test_each_driver_has_a_port_of_its_own_from_the_one_that_is_set(story: Story) -> None:
    ports = {note["port"] for note in story.notes()}
    blocks = {int(note["blocks"].rpartition(":")[2]) for note in story.notes()}

    for found, first in ((ports, story.driver_port), (blocks, story.block_port)):
        assert len(JOBS) == len(found)
        assert found <= set(range(first, first + RETRIES + 1))
    assert story.driver_port in ports
