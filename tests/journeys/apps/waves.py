"""Waves of two jobs at once, until the file ``go`` is there; whatever runs says so all the time.

Arguments: the seconds that a job takes, and ``spark`` where it is to use the session. Each line of
``marks.jsonl`` says who is alive (``main``, or a job), in which attempt, when (CLOCK_MONOTONIC,
which all processes of a host share), and whether it begins, goes on, or ends.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import understudy
from understudy import JobContext

MARKS = Path("marks.jsonl").absolute()


def mark(what: str, who: str, attempt: int) -> None:
    line = {"what": what, "who": who, "attempt": attempt, "pid": os.getpid()}
    with MARKS.open("a") as file:
        file.write(json.dumps({**line, "time": time.monotonic()}) + "\n")


def work(ctx: JobContext, name: str, seconds: float, spark: bool) -> str:
    mark("begins", name, ctx.attempt)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if spark:
            ctx.spark.range(0, 1000, 1, 2).count()
        else:
            time.sleep(0.02)
        mark("lives", name, ctx.attempt)
    mark("ends", name, ctx.attempt)
    return f"value of {name}"


def main() -> None:
    seconds, spark = float(sys.argv[1]), "spark" in sys.argv
    execution = time.monotonic_ns()
    mark("begins", "main", execution)

    def tell() -> None:
        while True:
            mark("lives", "main", execution)
            time.sleep(0.05)

    threading.Thread(target=tell, daemon=True).start()
    env = understudy.get_environment()
    wave = 0
    while True:
        names = [f"job {wave}.{part}" for part in (1, 2)]
        clients = [env.execute_async(work, name, seconds, spark, name=name) for name in names]
        for name, client in zip(names, clients, strict=True):
            value = client.result().value
            assert value == f"value of {name}", value
        wave += 1
        # What main decides must not change with the execution: so a job looks.
        if env.execute(is_over, name=f"is it over after {wave}").value:
            break
    mark("ends", "main", execution)
    print("waves", wave)


def is_over(ctx: JobContext) -> bool:
    return Path("go").exists()


main()
