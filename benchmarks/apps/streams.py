"""The same streaming query again and again, in turn with its batches recorded and without.

A query that is started in the JVM behind PySpark's back is not seen by Understudy, and so is not
recorded: that is how one driver does both. Notes each run in ``runs.jsonl``.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

import understudy
from understudy import JobContext

BATCHES, RUNS = (int(word) for word in sys.argv[1:])
"""Batches of a run, and pairs of runs."""


def processor_s() -> float:
    """Return the processor time of the cluster's processes, but for drivers that wait for a job."""
    parents, used, kinds = {}, {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            kinds[path.name] = (path / "cmdline").read_text(errors="replace")
        except OSError:
            continue
        parents[path.name] = fields[1]
        used[path.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    top = str(os.getpid())
    above = {top}
    while "understudy" in kinds.get(parents[top], ""):
        top = parents[top]
        above.add(top)
    total, todo = 0.0, [top]
    while todo:
        pid = todo.pop()
        if kinds[pid].endswith("understudy.driver.driver_process\0") and pid not in above:
            continue
        total += used[pid]
        todo += [child for child, parent in parents.items() if parent == pid]
    return total


def run(ctx: JobContext, name: str, *, recorded: bool) -> dict[str, object]:
    rows = (
        ctx.spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", 1)
        .json(str(Path("in").absolute()))
    )
    writer = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", ctx.checkpoint_location / name)
        .option("path", str(Path("out", name).absolute()))
        .trigger(processingTime="1 second")
    )
    before = processor_s()
    query = writer.start() if recorded else StreamingQuery(writer._jwrite.start())
    query.processAllAvailable()
    used = processor_s() - before
    query.stop()
    batches = [
        one.durationMs["triggerExecution"] / 1e3 for one in query.recentProgress if one.numInputRows
    ]
    return {"recorded": recorded, "processor": used, "batches": batches}


def stream(ctx: JobContext) -> None:
    ctx.spark.sparkContext.setLogLevel("ERROR")
    for number in range(-1, RUNS):  # The first pair warms up, and is not counted.
        turn = (True, False) if number % 2 else (False, True)
        for recorded in turn:
            note = run(ctx, f"run-{number + 1}-{recorded}", recorded=recorded)
            if number >= 0:
                with Path("runs.jsonl").open("a") as file:
                    file.write(json.dumps(note) + "\n")


Path("in").mkdir()
for number in range(BATCHES):
    Path("in", f"{number}.json").write_text(f'{{"id": {number}}}\n')
understudy.get_environment().execute(stream, name="streams")
