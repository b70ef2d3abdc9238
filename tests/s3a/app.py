"""Kept DataFrames, states and a streaming query whose checkpoints lie on S3; drivers are lost."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

import understudy
from understudy import JobContext

STEPS, FILES, ROWS = 3, 6, 100


def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text + "\n")


def steps(ctx: JobContext) -> dict[str, Any]:
    df = ctx.spark.range(ROWS).withColumnRenamed("id", "total")
    for step in range(1, STEPS + 1):
        df = ctx.checkpoint(df.selectExpr(f"total + {step} AS total"), f"step {step}")
        if step > (ctx.restored() or 0):
            note("computed.txt", f"{step} {ctx.attempt}")
            ctx.save(step)
        if step == 2 and ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return {"handle": ctx.table(df)}


def streams(ctx: JobContext) -> StreamingQuery:
    rows = ctx.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json("in")
    sink = rows.writeStream.format("parquet").option("checkpointLocation", ctx.checkpoint_location)
    query = sink.trigger(availableNow=True).start("out")
    note("locations.txt", str(ctx.checkpoint_location))
    if ctx.attempt == 1:
        threading.Thread(target=die_later, args=(query,), daemon=True).start()
    return query


def die_later(query: StreamingQuery) -> None:
    while query.lastProgress is None or query.lastProgress["batchId"] < 2:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


def read(ctx: JobContext, kept: dict[str, Any]) -> dict[str, Any]:
    rows = ctx.spark.read.schema("id long").parquet("out")
    (total,) = ctx.read(kept["handle"]).selectExpr("sum(total)").collect()
    return {"total": total[0], "rows": [rows.count(), rows.distinct().count()]}


Path("in").mkdir(exist_ok=True)
for number in range(FILES):
    ids = range(number * ROWS, (number + 1) * ROWS)
    Path(f"in/{number}.json").write_text("".join(f'{{"id": {one}}}\n' for one in ids))
env = understudy.get_environment()
kept = env.execute(steps)
streamed = env.execute(streams)
found = env.execute(read, kept.value).value
found["attempts"] = [kept.attempt, streamed.attempt]
Path(sys.argv[1]).write_text(json.dumps(found))
