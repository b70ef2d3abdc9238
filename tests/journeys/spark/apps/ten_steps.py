"""Ten steps, each on the kept DataFrame of the one before; then a later job reads the last one.

``computed`` is noted by the tasks, all else by the function. In its first attempt at anything the
job waits to be killed: in the middle of each step, and behind it.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import understudy
from understudy import JobContext

STEPS = 10
SCHEMA = "Id long not null, total long"


def note(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, text.encode() + b"\n")
    os.close(file)


def wait_the_first_time(point: str) -> None:
    """Wait until this process is killed; whoever comes after it goes on."""
    seen = Path("points.txt").read_text().splitlines() if Path("points.txt").exists() else []
    note("points.txt", point)
    while point not in seen:
        time.sleep(0.01)


def stepped(df: DataFrame, step: int, attempt: int) -> DataFrame:
    def work(row: Any) -> tuple[int, int]:
        if row.Id == 0:
            note("computed.txt", f"{step} {attempt}")
            wait_the_first_time(f"middle {step}")
        return row.Id, row.total + step

    return df.sparkSession.createDataFrame(df.coalesce(1).rdd.map(work), SCHEMA)


def steps(ctx: JobContext) -> dict[str, Any]:
    note("pids.txt", str(os.getpid()))
    df = ctx.spark.createDataFrame([(0, 0), (1, 100), (2, 200)], SCHEMA)
    for step in range(1, STEPS + 1):
        df = ctx.checkpoint(stepped(df, step, ctx.attempt), f"step {step}")
        note("done.txt", f"{step} {ctx.attempt}")
        wait_the_first_time(f"behind {step}")
    handle = ctx.table(df, "totals")
    note("handles.txt", json.dumps(handle, sort_keys=True))
    wait_the_first_time("behind the table")
    return {"nested": [{"handle": handle}]}


def read(ctx: JobContext, value: dict[str, Any]) -> list[list[int]]:
    note("read.txt", str(ctx.attempt))
    while not Path("go").exists():
        time.sleep(0.01)
    rows = ctx.read(value["nested"][0]["handle"]).orderBy("Id").collect()
    return [[row.Id, row.total] for row in rows]


env = understudy.get_environment()
kept = env.execute(steps)
note("values.txt", json.dumps(env.execute(read, kept.value).value))
