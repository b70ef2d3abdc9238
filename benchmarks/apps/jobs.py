"""Some empty jobs, then one that goes on until the file ``go`` is there.

Arguments: how many jobs, and ``spark`` where the last one is to use the session. Notes the wall
clock when ``main`` begins and when it has reached the last job, and what each job has cost it.
"""

import json
import os
import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext


def note(path: str, **what: object) -> None:
    with Path(path).open("a") as file:
        file.write(json.dumps({"time": time.time(), **what}) + "\n")


def empty(ctx: JobContext, number: int) -> int:
    return number


def long(ctx: JobContext, how: str) -> int:
    while not Path("go").exists():
        if how == "spark":
            ctx.spark.range(0, 10_000, 1, 2).count()
        time.sleep(0.05)
    return ctx.attempt


Path("main.pid").write_text(str(os.getpid()))
count, how = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
env = understudy.get_environment()
note("began.jsonl", pid=os.getpid())
seconds = []
for number in range(count):
    start = time.perf_counter()
    assert env.execute(empty, number, name=f"job {number}").value == number
    seconds.append(round(time.perf_counter() - start, 6))
last = env.execute_async(long, how, name="last")
note("reached.jsonl", seconds=seconds)
assert last.result().value == 1
