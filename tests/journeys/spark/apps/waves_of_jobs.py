"""Waves of jobs at once, each with a shuffle; then main waits, and executes one more.

Arguments: the sizes of the waves.
"""

import sys
import time
from operator import add
from pathlib import Path

import understudy
from understudy import JobContext

ROWS = 1000
LONG_S = 2.0
"""Of every second job: as long as it takes a cluster to give executors to the next one."""


def count(ctx: JobContext, number: int) -> int:
    """Count rows by key on executors; return their sum."""
    rows = ctx.spark.sparkContext.range(0, ROWS, numSlices=2)
    counted = rows.map(lambda row: (row % 4, 1)).reduceByKey(add, 2)
    if number % 2:
        counted = counted.map(slowly)
    return sum(many for _, many in counted.collect())


def slowly(pair: tuple[int, int]) -> tuple[int, int]:
    time.sleep(LONG_S / 4)
    return pair


env = understudy.get_environment()
for wave in map(int, sys.argv[1:]):
    numbers = range(wave)
    clients = [env.execute_async(count, number, name=f"{wave}.{number}") for number in numbers]
    counts = [client.result().value for client in clients]
    with Path("waves.txt").open("a") as file:
        file.write(f"{wave} {sum(counts)}\n")
while not Path("go").exists():
    time.sleep(0.02)
last = env.execute(count, 0, name="late")
print("late", last.value)
