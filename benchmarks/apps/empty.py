"""The same small work as a job, and as a plain call, once the file ``go`` is there.

Arguments: how many, and ``spark``.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import understudy
from understudy import JobContext

WARM_UP = 20


def nothing(ctx: JobContext) -> None:
    return None


def count(ctx: JobContext) -> float:
    start = time.perf_counter()
    ctx.spark.range(1000).count()
    return time.perf_counter() - start


def plain_calls(ctx: JobContext, often: int, how: str) -> list[float]:
    if how == "spark":
        return timed(lambda _: ctx.spark.range(1000).count(), often)
    return timed(lambda _: nothing(ctx), often)


def timed(call: Callable[[int], object], often: int) -> list[float]:
    seconds = []
    for number in range(often + WARM_UP):
        start = time.perf_counter()
        call(number)
        seconds.append(time.perf_counter() - start)
    return seconds[WARM_UP:]


often, how = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
env = understudy.get_environment()
while not Path("go").exists():
    time.sleep(0.05)
inside: list[float] = []
figures = {
    "empty": timed(lambda number: env.execute(nothing, name=f"empty {number}"), often),
    "plain": env.execute(plain_calls, often, how).value,
}
if how == "spark":
    figures["job"] = timed(
        lambda number: inside.append(env.execute(count, name=f"count {number}").value), often
    )
    figures["inside"] = inside[WARM_UP:]
Path("figures.json").write_text(json.dumps(figures))
