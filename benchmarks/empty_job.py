"""What a job costs beside a plain call: the price of being durable before it is told."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks import charts
from benchmarks.clusters import APPS, PATIENCE_S, cluster, let_begin
from benchmarks.figures import Chapter, Effort, Series, duration, ratio, table_of

IMAGE = "empty-job.png"


def run(effort: Effort) -> Chapter:
    """Measure empty jobs on a warm slot, with and without Spark."""
    often = effort.of(200, 10)
    alone = _plain_pyspark(often)
    on_spark = _in_cluster(often, spark=True)
    without = _in_cluster(effort.of(500, 20), spark=False)
    pyspark = Series("plain PySpark script: spark.range(1000).count()", alone)
    empty = Series("empty job, Spark", on_spark["empty"])
    job = Series("job that does spark.range(1000).count()", on_spark["job"])
    inside = Series("that call inside the job", on_spark["inside"])
    plain = Series("the same call, in a loop in one job", on_spark["plain"])
    bare = Series("empty job, session-less driver", without["empty"])
    call = Series("plain Python call", without["plain"])
    chart = charts.distributions(
        effort.images / IMAGE,
        "An empty job beside a plain PySpark call",
        [pyspark, plain, job, empty, bare],
    )
    return Chapter(
        "An empty job on a warm slot",
        "From `env.execute` in `main` to its return, with two JobManagers, once both slots and the "
        "spare have warm drivers; plan, intent, outcome and result are on disk by then. The plain "
        "calls run on the same machine in the same run.",
        (table_of(pyspark, plain, inside, job, empty, bare, call),),
        f"An empty job costs {duration(empty.median)}, "
        f"{ratio(empty.median, pyspark.median)} of one `count()` of plain PySpark; the job that "
        f"counts takes {ratio(job.median, pyspark.median)} as long as the plain call.",
        chart,
    )


def _in_cluster(often: int, *, spark: bool) -> dict[str, tuple[float, ...]]:
    with cluster("empty.py", often, "spark" if spark else "", spark=spark) as run:
        let_begin(run)
        assert run.finish(PATIENCE_S) == 0, run.story()
        figures = json.loads((run.place / "figures.json").read_text())
    return {name: tuple(samples) for name, samples in figures.items()}


def _plain_pyspark(often: int) -> tuple[float, ...]:
    command = [sys.executable, str(APPS / "plain.py"), str(often)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    return tuple(json.loads(done.stdout.splitlines()[-1])["calls"])
