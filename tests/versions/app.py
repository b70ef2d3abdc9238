"""Three kinds of jobs: SQL, a Python function in tasks, micro-batches; then their figures."""

import json
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, udf

import understudy
from understudy import JobContext

ROWS = 1_000
FILES = 4


def note(text: str) -> None:
    with Path("marks.txt").open("a") as file:
        file.write(text + "\n")


def load(ctx: JobContext) -> dict[str, Any]:
    """Write a table with SQL, and the files of a stream."""
    ctx.spark.range(ROWS).createOrReplaceTempView("numbers")
    table = ctx.spark.sql("SELECT id, id % 7 AS day, sum(id) OVER () AS total FROM numbers")
    table.write.mode("overwrite").parquet("table")
    table.select("id").repartition(FILES).write.mode("overwrite").json("arrivals")
    java = ctx.spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    return {"spark": ctx.spark.version, "java": java.getProperty("java.version")}


def squares(ctx: JobContext) -> dict[str, int]:
    """Compute with a Python function in tasks, again and again until the file ``go`` is there."""

    @udf("long")
    def square(number: int) -> int:
        return number * number

    while True:
        found = ctx.spark.read.parquet("table").select(square(col("id")).alias("s"))
        total = found.groupBy().sum("s").collect()[0][0]
        note(f"squares {ctx.attempt}")
        if Path("go").exists():
            return {"attempt": ctx.attempt, "total": total}
        time.sleep(0.05)


def follow(ctx: JobContext) -> Any:
    """Take one file a batch; the first attempt waits in its third batch to be killed."""

    def keep(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"kept/batch={number}")
        note(f"batch {number} of {ctx.attempt}")
        if number == 2 and ctx.attempt == 1:
            time.sleep(600)

    rows = ctx.spark.readStream.schema("id LONG").option("maxFilesPerTrigger", "1").json("arrivals")
    sink = rows.writeStream.foreachBatch(keep).option("checkpointLocation", "points")
    return sink.trigger(availableNow=True).start()


def count(ctx: JobContext) -> dict[str, int]:
    """Return what all batches have kept."""
    row = ctx.spark.read.parquet("kept").selectExpr("count(*)", "count(DISTINCT id)").collect()[0]
    return {"rows": row[0], "different": row[1]}


env = understudy.get_environment()
found = {
    "imported": pyspark.__version__,
    "load": env.execute(load, name="load").value,
    "squares": env.execute(squares, name="squares").value,
    "follow": env.execute(follow, name="follow").attempt,
    "count": env.execute(count, name="count").value,
}
Path("found.json").write_text(json.dumps(found))
