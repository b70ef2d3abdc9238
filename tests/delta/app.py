"""Two jobs that append to Delta tables; each loses drivers just after Delta has committed."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import understudy
from understudy import JobContext

STEPS = 5
ROWS = 100


def lose(ctx: JobContext, at: int) -> None:
    """End this driver after so many commits, before anything of the last one is recorded."""
    writes: Any = ctx._keeping.writes._writes
    published, seen = writes._published, []

    def dies(*arguments: Any) -> None:
        seen.append(arguments)
        if ctx.attempt <= 2 and len(seen) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        published(*arguments)

    writes._published = dies


def appends(ctx: JobContext) -> None:
    lose(ctx, 2)
    for step in range(STEPS):
        rows = ctx.spark.range(step * ROWS, (step + 1) * ROWS)
        ctx.write(rows, "appended", mode="append", format="delta")


def batches(ctx: JobContext) -> None:
    lose(ctx, 2)

    def keep(df: Any, batch_id: int) -> None:
        df.write.format("delta").mode("append").save("batched")

    lines = ctx.spark.readStream.schema("value STRING").option("maxFilesPerTrigger", 1).text("in")
    sink = lines.writeStream.foreachBatch(ctx.fenced_batch(keep))
    query = sink.option("checkpointLocation", "points").trigger(availableNow=True).start()
    query.awaitTermination()


def count(ctx: JobContext) -> dict[str, list[int]]:
    tables = {name: ctx.spark.read.format("delta").load(name) for name in ("appended", "batched")}
    return {name: [df.count(), df.distinct().count()] for name, df in tables.items()}


Path("in").mkdir(exist_ok=True)
for number in range(STEPS):
    lines = "".join(f"{number}-{row}\n" for row in range(ROWS))
    Path(f"in/{number}.txt").write_text(lines)
env = understudy.get_environment()
attempts = [env.execute(appends).attempt, env.execute(batches).attempt]
Path("counted.json").write_text(
    json.dumps({"attempts": attempts, **env.execute(count, name="count").value})
)
