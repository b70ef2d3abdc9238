"""The clusters that the other tests run on: what they say is so, and nothing of them stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.foreign_application import ROWS, ForeignApplication
from tests.support.spark_cluster import PATIENCE_S, SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.long]

HOLD = """
import pathlib, sys
from tests.support.spark_cluster import SparkCluster
from tests.support.foreign_application import ForeignApplication
place = pathlib.Path(sys.argv[1])
with SparkCluster(place / "cluster", workers=1) as cluster:
    with ForeignApplication(cluster.url, "held", place) as application:
        application.counted()
        print("ready", flush=True)
        sys.stdin.read()
"""


def test_a_cluster_runs_plain_pyspark_and_is_idle_after_that(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    idle = spark_cluster.state()
    with ForeignApplication(spark_cluster.url, "plain", tmp_path) as plain:
        counted = plain.counted()
        busy = spark_cluster.state()
        executors = spark_cluster.executors()
    after = spark_cluster.await_idle()

    assert (4, 0, 1, True) == (idle.cores, idle.cores_used, idle.workers, idle.idle)
    assert ROWS == counted
    assert (4, ["plain"]) == (busy.cores_used, busy.names)
    assert [busy.application("plain").id] == list(executors.values())
    assert [] == [pid for pid in executors if Path(f"/proc/{pid}").exists()]
    assert "plain" in [application.name for application in after.completed]


def test_a_cluster_bears_the_loss_of_its_master_and_of_a_worker(tmp_path: Path) -> None:
    with SparkCluster(tmp_path / "cluster") as cluster:
        cluster.kill_master()
        cluster.restart_master()
        cluster.kill_worker()
        one_less = cluster.await_state(lambda state: state.workers == 1)
        cluster.start_worker()
        whole = cluster.state()
        here = cluster.processes()

    assert (2, 4) == (one_less.cores, whole.cores)
    assert 3 == len(here)
    assert {} == cluster.processes()


def test_a_cluster_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    cluster = SparkCluster(tmp_path / "cluster")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    with holder:
        assert holder.stdout is not None
        ready = holder.stdout.readline()
        here = cluster.processes()
        holder.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while cluster.processes() and time.monotonic() < deadline:
        time.sleep(0.05)

    assert b"ready\n" == ready
    assert len(here) > 2
    assert {} == cluster.processes()
