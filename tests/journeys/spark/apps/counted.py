"""A query that passes on each word once, however often it comes, and counts all words it has seen.

Arguments: the directory it reads, the one it writes to, and the file that lets it end.
"""

import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext

SOURCE, TARGET, GO = sys.argv[1:4]


def words(ctx: JobContext, source: str, target: str, go: str) -> str:
    lines = ctx.spark.readStream.schema("value string").text(source)
    new = (
        lines.dropDuplicates(["value"])
        .writeStream.format("parquet")
        .option("path", target)
        .option("checkpointLocation", str(ctx.checkpoint_location / "new"))
        .trigger(processingTime="300 milliseconds")
        .start()
    )
    per_word = lines.groupBy("value").count()

    def keep(batch, number):  # type: ignore[no-untyped-def]
        rows = sorted((row["value"], row["count"]) for row in batch.collect())
        with Path("counts.txt").open("a") as file:
            file.writelines(f"{number} {word} {count}\n" for word, count in rows)

    counts = (
        per_word.writeStream.outputMode("update")
        .foreachBatch(keep)
        .option("checkpointLocation", str(ctx.checkpoint_location / "counts"))
        .trigger(processingTime="300 milliseconds")
        .start()
    )
    while not Path(go).exists():
        for query in (new, counts):
            if query.exception():
                raise RuntimeError(str(query.exception()))
        time.sleep(0.05)
    for query in (new, counts):
        query.processAllAvailable()
        query.stop()
    return "done"


def seen(ctx: JobContext, target: str) -> list[str]:
    return sorted(row["value"] for row in ctx.spark.read.parquet(target).collect())


env = understudy.get_environment()
env.execute(words, SOURCE, TARGET, GO, name="words")
rows = env.execute(seen, TARGET, name="seen").value
Path("rows.txt").write_text("\n".join(rows) + "\n")
