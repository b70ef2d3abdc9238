"""A job that appends to Delta tables, and one that waits until the first is run anew."""

import json
import time
from pathlib import Path
from typing import Any

import understudy
from understudy import JobContext

ROWS = 100


def appends(ctx: JobContext) -> None:
    ctx.write(ctx.spark.range(ROWS), "again", mode="append", format="delta")

    def keep(df: Any, batch_id: int) -> None:
        df.write.format("delta").mode("append").save("again-batched")

    lines = ctx.spark.readStream.schema("value STRING").text("lines")
    sink = lines.writeStream.foreachBatch(ctx.fenced_batch(keep))
    location = ctx.checkpoint_location
    sink.option("checkpointLocation", location).trigger(availableNow=True).start()


def waits(ctx: JobContext) -> None:
    Path("waiting").touch()
    while not Path("go").exists():
        time.sleep(0.05)


def count(ctx: JobContext) -> dict[str, list[int]]:
    tables = {
        name: ctx.spark.read.format("delta").load(name) for name in ("again", "again-batched")
    }
    return {name: [df.count(), df.distinct().count()] for name, df in tables.items()}


Path("lines").mkdir(exist_ok=True)
if not Path("lines/0.txt").exists():
    Path("lines/0.txt").write_text("".join(f"{row}\n" for row in range(ROWS)))
env = understudy.get_environment()
appended = env.execute(appends)
env.execute(waits)
Path("again.json").write_text(
    json.dumps({"attempt": appended.attempt, **env.execute(count, name="count").value})
)
