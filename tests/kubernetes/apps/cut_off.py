"""A job that writes once it is let, with Spark or without, and waits then for its end."""

import os
import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext

PLACE = Path(sys.argv[1])
WITH_SPARK = sys.argv[2] == "spark"
ROWS = 100


def note(name: str, text: str) -> None:
    with (PLACE / name).open("a") as file:
        file.write(f"{text}\n")


def await_file(name: str) -> None:
    while not (PLACE / name).exists():
        time.sleep(0.01)


def writes(ctx: JobContext) -> object:
    if WITH_SPARK:
        rows = ctx.spark.range(ROWS)
        rows.count()  # What is slow is done before the attempt may write.
    note("begun", f"{ctx.attempt} {os.getpid()}")
    await_file(f"write-{ctx.attempt}")
    try:
        if WITH_SPARK:
            ctx.write(rows, str(PLACE / "rows"), mode="append")
        else:
            ctx.save(f"by {ctx.attempt}")
    except BaseException as error:
        note("refused", f"{ctx.attempt} {type(error).__name__}")
        raise
    note("written", str(ctx.attempt))
    await_file("end")
    return ctx.spark.read.parquet(str(PLACE / "rows")).count() if WITH_SPARK else ctx.attempt


result = understudy.get_environment().execute(writes)
note("result", str(result.value))
