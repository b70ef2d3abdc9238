"""A job that notes when it has its first result, and goes on until the file ``go`` is there."""

import json
import time
from pathlib import Path

import understudy
from understudy import JobContext


def long(ctx: JobContext) -> int:
    ctx.spark.range(1000).count()
    with Path("first.jsonl").open("a") as file:
        file.write(json.dumps({"time": time.time(), "attempt": ctx.attempt}) + "\n")
    while not Path("go").exists():
        time.sleep(0.05)
    return ctx.attempt


understudy.get_environment().execute(long)
