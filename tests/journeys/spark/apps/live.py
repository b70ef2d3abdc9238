"""Files to Parquet, as a streaming job that ends when the file ``go`` is there; then a count.

``runs.txt`` has a line for each time that the query is started: attempt, run id, process.
"""

import os
import threading
import time
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

import understudy
from understudy import JobContext


def note(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, text.encode() + b"\n")
    os.close(file)


def end_when_told(query: StreamingQuery) -> None:
    while not Path("go").exists():
        time.sleep(0.02)
    query.processAllAvailable()
    query.stop()


def live(ctx: JobContext) -> StreamingQuery:
    ctx.spark.sparkContext.setLogLevel("ERROR")
    rows = ctx.spark.readStream.schema("id long").json(str(Path("in").absolute()))
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", ctx.checkpoint_location / "orders")
        .trigger(processingTime="200 milliseconds")
        .start(str(Path("out").absolute()))
    )
    note("runs.txt", f"{ctx.attempt} {query.runId} {os.getpid()}")
    threading.Thread(target=end_when_told, args=(query,), daemon=True).start()
    return query


def count(ctx: JobContext) -> dict[str, int]:
    rows = ctx.spark.read.parquet(str(Path("out").absolute()))
    return {"rows": rows.count(), "distinct": rows.distinct().count()}


if __name__ == "__main__":
    env = understudy.get_environment()
    streamed = env.execute(live, name="live").value
    found = env.execute(count, name="count").value
    print(f"streamed {streamed}, rows {found['rows']}, distinct {found['distinct']}")
