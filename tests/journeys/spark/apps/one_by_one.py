"""Jobs of one slot, one after the other: what does each see of those before?"""

import json
import os
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import understudy
from understudy import JobContext, JobFailed


def look(ctx: JobContext) -> dict[str, Any]:
    """Return what a job may see of others, in the session that a plain script would make."""
    spark = SparkSession.builder.appName("a name of its own").getOrCreate()
    return {
        "driver": os.getppid(),
        "same session": spark is ctx.spark,
        "active session": SparkSession.getActiveSession() is ctx.spark,
        "context": spark.sparkContext.applicationId,
        "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
        "zone": spark.conf.get("spark.sql.session.timeZone"),
        "own": spark.conf.get("my.own", "unset"),
        "views": [table.name for table in spark.catalog.listTables()],
        "function": spark.catalog.functionExists("leaked"),
        "pool": spark.sparkContext.getLocalProperty("spark.scheduler.pool"),
        "cached": len(spark.sparkContext._jsc.getPersistentRDDs()),
    }


def litter(ctx: JobContext) -> dict[str, Any]:
    """Leave all kinds of things in the job's own session."""
    builder = SparkSession.builder.config("spark.sql.shuffle.partitions", "7")
    spark = builder.config("my.own", "leaked").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.range(3).createOrReplaceTempView("leaked")
    spark.udf.register("leaked", lambda number: number)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "leaked")
    return look(ctx)


def cache(ctx: JobContext) -> dict[str, Any]:
    """Leave a cached table, which would take memory from all that follow."""
    ctx.spark.range(3).createOrReplaceTempView("kept")
    ctx.spark.catalog.cacheTable("kept")
    ctx.spark.table("kept").count()
    return look(ctx)


def stop(ctx: JobContext) -> dict[str, Any]:
    """End as many scripts do."""
    seen = look(ctx)
    ctx.spark.stop()
    return seen


def ask(ctx: JobContext) -> None:
    """Ask for what only a new driver could have."""
    with Path("asked.txt").open("a") as file:
        file.write("x\n")
    SparkSession.builder.config("spark.driver.memory", "3g").getOrCreate()


def stream(ctx: JobContext) -> Any:
    """Return a query: the job lasts until it ends."""
    rows = ctx.spark.readStream.schema("line STRING").text("in")
    sink = rows.writeStream.format("parquet").option("checkpointLocation", "points")
    return sink.trigger(availableNow=True).start("out")


Path("in").mkdir(exist_ok=True)
Path("in/one.txt").write_text("a\nb\n")
env = understudy.get_environment()
seen = {
    "littering": env.execute(litter).value,
    "after litter": env.execute(look, name="first look").value,
    "streaming": env.execute(stream).value,
    "caching": env.execute(cache).value,
    "after cache": env.execute(look, name="second look").value,
    "stopping": env.execute(stop).value,
}
try:
    env.execute(ask)
except JobFailed as error:
    seen["asking"] = [error.error_type, str(error)]
Path("seen.json").write_text(json.dumps(seen))
