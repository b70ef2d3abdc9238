"""A job that gets no executors for too long fails, says who holds the cores, and lets go.

That a job waits and says for whom is in `test_cluster_jobs`, and when its time is over in
`tests/driver/test_executor_watch.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journeys.harness import WHOLE_S, Run
from tests.journeys.spark.conftest import Begin, left_behind, on
from tests.support.foreign_application import ForeignApplication
from tests.support.spark_cluster import SparkCluster, State

pytestmark = [pytest.mark.spark, pytest.mark.long]

HOLDER = "nightly"
JOB = "shuffles"
WAIT_S = 3
OPTIONS = (
    *("--name", "patient", "--jobmanagers", "1", "--slots", "1"),
    *("-D", "taskmanager.spare-drivers=0"),
    *("-D", f"taskmanager.executors.wait-timeout={WAIT_S} s"),
)
"""The restart strategy is the default, by which an exception of the function is restarted."""


@dataclass
class Story:
    """What was seen of the run."""

    run: Run
    code: int
    after: State
    """What the Master said after the run, while the foreign application still held all cores."""
    left: dict[int, str]


@pytest.fixture(scope="module")
def story(begin: Begin, ground: Path, spark_cluster: SparkCluster) -> Story:
    """Run a job while a foreign application holds all cores, and goes on to."""
    with ForeignApplication(spark_cluster.url, HOLDER, ground) as nightly:
        nightly.counted()
        run = begin("held_on_a_cluster.py", JOB, options=(*on(spark_cluster), *OPTIONS))
        code = run.finish(WHOLE_S)
        after = spark_cluster.await_state(
            lambda state: state.names == [HOLDER], what="a Master without our application"
        )
    return Story(run, code, after, left_behind(ground))


def test_the_job_fails_and_the_message_names_the_holder(story: Story) -> None:
    [failed] = story.run.of("job-status", name=JOB, status="FAILED")
    waits = f"waits for executors: the cluster has 0 of 4 cores free; '{HOLDER}' holds 4"
    said = story.run.log.read_text()

    assert 1 == story.code, story.run.story()
    assert "ExecutorsUnavailable" in said
    assert f"the job {waits} (taskmanager.executors.wait-timeout is {WAIT_S} s)" in said
    assert 1 == failed["attempt"]


def test_it_is_not_restarted(story: Story) -> None:
    [finished] = story.run.of("application-finished")

    assert "FAILED" == finished["status"]
    assert [("FAILED", 1)] == [(job["status"], job["attempt"]) for job in finished["jobs"]]
    assert [f"{JOB} 1"] == story.run.lines("jobs.txt")


def test_its_application_leaves_the_master_and_nothing_stays(story: Story) -> None:
    names = [one.name for one in story.after.completed if one.name.startswith("patient")]

    assert [f"patient / {JOB} #1"] == names
    assert (4, [HOLDER]) == (story.after.cores_used, story.after.names)
    assert {} == story.left
