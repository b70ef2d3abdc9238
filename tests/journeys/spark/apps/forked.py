"""A job in Spark that forks: its children neither speak to the JVM, nor for their parent."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import understudy
from understudy import JobContext


def in_child(call: Callable[[], object]) -> int:
    """Return how a child ends that calls this: 9 where nothing stops it."""
    child = os.fork()
    if child == 0:
        try:
            call()
        except Exception as error:
            with Path("told.txt").open("a") as file:
                file.write(f"{type(error).__name__}\n")
            os._exit(8)
        os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def counting(ctx: JobContext) -> dict[str, Any]:
    df = ctx.spark.range(1000)
    codes = [in_child(df.count), in_child(lambda: ctx.spark.range(3).count())]
    if os.fork() == 0:
        return {"of": "a child"}
    os.wait()
    return {"codes": codes, "count": df.count()}


env = understudy.get_environment()
print("value", env.execute(counting).value, flush=True)
