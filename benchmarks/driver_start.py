"""How long a job waits for its next driver, beside the start of plain PySpark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from benchmarks import charts, clusters
from benchmarks.clusters import APPS, PATIENCE_S, cluster
from benchmarks.figures import Chapter, Effort, Series, duration, ratio, table_of
from tests.journeys.harness import Run

IMAGE = "driver-start.png"


def run(effort: Effort) -> Chapter:
    """Kill drivers that have a warm spare, and drivers that have none."""
    often = effort.of(5, 1)
    plain = Series("plain PySpark: start to first count", _plain_starts(often))
    warm = Series("driver killed, warm spare", _restarts(often, spares=1))
    cold = Series("driver killed, no spare", _restarts(often, spares=0))
    chart = charts.distributions(
        effort.images / IMAGE,
        "From the kill, or the start, to the first result",
        [plain, cold, warm],
    )
    return Chapter(
        "Restart of a driver",
        "A driver is killed with SIGKILL in the middle of a job. Its whole tree (the JVM too) is "
        "reaped, then the job's function runs again in the next driver; the time ends with the "
        "function's first `spark.range(1000).count()`. Beside it a plain PySpark script, from its "
        "start to the same count. One slot, `local[2]`; without a spare: "
        "`taskmanager.spare-drivers=0`.",
        (table_of(plain, cold, warm),),
        f"With a warm spare the job counts again {duration(warm.median)} after the kill: "
        f"{ratio(warm.median, plain.median)} of a start of plain PySpark "
        f"({duration(plain.median)}); without a spare {ratio(cold.median, plain.median)}.",
        chart,
    )


def _restarts(often: int, spares: int) -> tuple[float, ...]:
    options = (
        *("-D", f"taskmanager.spare-drivers={spares}"),
        *("-D", "taskmanager.numberOfTaskSlots=1"),
    )
    with cluster("again.py", options=options, spark=True) as one:
        clusters.next_note(one, "first.jsonl", 0)
        seconds = tuple(_restart(one, number, warm=spares > 0) for number in range(1, often + 1))
        clusters.end(one)
    return seconds


def _restart(one: Run, attempts: int, *, warm: bool) -> float:
    slots = one.busy()[0]["slots"] if warm else one.get("/taskmanagers")["taskmanagers"][0]["slots"]
    time.sleep(clusters.SETTLE_S)
    killed = time.time()
    os.kill(slots[0]["driver_pid"], signal.SIGKILL)
    again = clusters.next_note(one, "first.jsonl", attempts)
    assert again["attempt"] == attempts + 1, again
    return float(again["time"]) - killed


def _plain_starts(often: int) -> tuple[float, ...]:
    seconds = []
    for _ in range(often):
        start = time.time()
        command = [sys.executable, str(APPS / "plain.py"), "0"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
        seconds.append(json.loads(done.stdout.splitlines()[0])["first"] - start)
    return tuple(seconds)
