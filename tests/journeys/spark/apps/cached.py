"""A job that reads what it has cached, after it has written there once more."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import understudy
from understudy import JobContext


def look(ctx: JobContext) -> dict[str, list[int]]:
    spark = ctx.spark
    ctx.write(spark.range(3), "out")
    cached = spark.read.parquet("out").cache()
    seen: dict[str, list[int]] = {"first": [cached.count()]}

    def counted() -> list[int]:
        return [df.count() for df in (cached, spark.read.parquet("out"))]

    ctx.write(spark.range(5), "out", mode="append")
    seen["append"] = counted()
    ctx.write(spark.range(7), "out", mode="overwrite")
    seen["overwrite"] = counted()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(ctx.write, spark.range(2), "out", "append").result()
    seen["thread"] = counted()

    def keep(df: Any, batch_id: int) -> None:
        df.write.mode("append").parquet("out")

    lines = spark.readStream.schema("id LONG").json("in")
    sink = lines.writeStream.foreachBatch(ctx.fenced_batch(keep))
    sink = sink.option("checkpointLocation", ctx.checkpoint_location)
    sink.trigger(availableNow=True).start().awaitTermination()
    seen["batch"] = counted()
    return seen


Path("in").mkdir()
Path("in/0.json").write_text('{"id": 1}\n')
Path("seen.json").write_text(json.dumps(understudy.get_environment().execute(look).value))
