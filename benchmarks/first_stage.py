"""How long a job on a Spark cluster waits for its first result, beside plain ``spark-submit``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from benchmarks import charts, clusters
from benchmarks.clusters import APPS, PATIENCE_S, cluster
from benchmarks.figures import Chapter, Effort, Series, duration, ratio, table_of
from tests.support.spark_cluster import SparkCluster
from understudy.spark.java import find_java

IMAGE = "first-stage.png"
CORES = ("--conf", "spark.cores.max=2")
PAUSE_S = 4.0
"""So long that the next driver is warm, and its JVM quiet."""

KEPT = ("-D", "taskmanager.executors.keep-idle=1 min")


def run(effort: Effort) -> Chapter:
    """Count on one cluster: with spark-submit, on warm drivers, and on executors that were kept."""
    often = effort.of(6, 1)
    with (
        tempfile.TemporaryDirectory(prefix="understudy-bench-") as name,
        SparkCluster(Path(name)) as spark,
    ):
        plain = Series("plain spark-submit: start to first count", _plain(spark, often))
        warm = Series("warm driver: execute to first count", _jobs(spark, often))
        kept = Series("the same, executors kept", _jobs(spark, often, *KEPT))
    chart = charts.distributions(
        effort.images / IMAGE, "From the submission to the first result", [plain, warm, kept]
    )
    return Chapter(
        "First stage on a Spark cluster",
        "A standalone cluster on this machine, of a Master and two Workers with two cores each. A "
        "job counts `spark.range(1000)` on executors that start for it, in a driver that is warm "
        "and holds nothing on the cluster; beside it a PySpark script that counts the same, by "
        "`spark-submit`, from its start. Executors are alike: `spark.cores.max=2`. With "
        "`taskmanager.executors.keep-idle` a job finds the executors of the job before.",
        (table_of(plain, warm, kept),),
        f"On a warm driver the first result is there after {duration(warm.median)}, "
        f"{ratio(warm.median, plain.median)} of plain spark-submit ({duration(plain.median)}); "
        f"with executors that were kept after {duration(kept.median)}.",
        chart,
    )


def _plain(spark: SparkCluster, often: int) -> tuple[float, ...]:
    home = Path(_find_spark_home())
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
    }
    script = str(APPS / "plain_cluster.py")
    submit = [str(home / "bin" / "spark-submit"), "--master", spark.url, *CORES, script, spark.url]
    seconds = []
    for _ in range(often):
        start = time.time()
        done = subprocess.run(
            submit, capture_output=True, text=True, check=True, timeout=PATIENCE_S, env=environment
        )
        seconds.append(json.loads(done.stdout.splitlines()[-1])["first"] - start)
    return tuple(seconds)


def _jobs(spark: SparkCluster, often: int, *options: str) -> tuple[float, ...]:
    given = (*options, "-D", "taskmanager.numberOfTaskSlots=1", *CORES)
    on = ("--master", spark.url)
    with cluster("on_cluster.py", often, PAUSE_S, options=(*on, *given), spark=True) as one:
        clusters.end(one)
        return tuple(note["counted"] for note in clusters.noted(one, "counts.jsonl"))
