"""Two jobs that append: one step after the other, and one batch of a stream after the other."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import understudy
from understudy import JobContext

STEPS = 8
FILES = 8
ROWS = 100
LAST = int(sys.argv[1])
"""The attempt that nobody kills."""


def note(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, text.encode() + b"\n")
    os.close(file)


def begin(job: str, attempt: int) -> None:
    """Note that an attempt has begun, and wait until it may write."""
    note(f"{job}.txt", str(attempt))
    while not Path(f"{job}-{attempt}.go").exists():
        time.sleep(0.02)


def hold(job: str, attempt: int) -> None:
    """Wait for the kill, before the last write: no attempt ends before that."""
    if attempt < LAST:
        note(f"{job}-{attempt}.held", "")
    while attempt < LAST:
        time.sleep(0.02)


def appends(ctx: JobContext) -> None:
    """Append rows in as many writes as there are steps; each write is two files."""
    begin("appends", ctx.attempt)
    for step in range(STEPS):
        if step == STEPS - 1:
            hold("appends", ctx.attempt)
        rows = ctx.spark.range(step * ROWS, (step + 1) * ROWS, numPartitions=2)
        ctx.write(rows, "appended", mode="append")
        note("steps.txt", f"{ctx.attempt} {step}")


def batches(ctx: JobContext) -> Any:
    """Append each file of a directory as a batch of its own, with plain Spark in it."""
    begin("batches", ctx.attempt)

    def keep(df: Any, batch_id: int) -> None:
        if batch_id == FILES - 1:
            hold("batches", ctx.attempt)
        df.repartition(2).write.mode("append").parquet("batched")
        df.write.save("batched-too", format="json", mode="append")
        note("kept.txt", f"{ctx.attempt} {batch_id}")

    lines = ctx.spark.readStream.schema("value STRING").option("maxFilesPerTrigger", 1).text("in")
    sink = lines.writeStream.foreachBatch(ctx.fenced_batch(keep))
    query = sink.option("checkpointLocation", "points").trigger(availableNow=True).start()
    query.awaitTermination()


def count(ctx: JobContext) -> dict[str, list[int]]:
    """Return how many rows each target has, and how many different ones."""
    tables = {
        "appended": ctx.spark.read.parquet("appended"),
        "batched": ctx.spark.read.parquet("batched"),
        "batched-too": ctx.spark.read.json("batched-too"),
    }
    return {name: [df.count(), df.distinct().count()] for name, df in tables.items()}


Path("in").mkdir(exist_ok=True)
for number in range(FILES):
    text = "".join(f"{number}-{row}\n" for row in range(ROWS))
    if not Path(f"in/{number}.txt").exists():
        Path(f"in/.{number}").write_text(text)
        Path(f"in/.{number}").rename(f"in/{number}.txt")
env = understudy.get_environment()
env.execute(appends)
env.execute(batches)
counted = env.execute(count).value
Path("counted.json").write_text(json.dumps(counted))
