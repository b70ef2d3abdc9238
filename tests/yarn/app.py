"""Jobs in the order of the arguments: ``computes``, ``holds/2``; ``go-on`` waits for that file."""

import json
import sys
import time
from pathlib import Path

import understudy
from understudy import JobContext

ROWS = 1000


def computes(ctx: JobContext) -> int:
    numbers = ctx.spark.sparkContext.parallelize(range(ROWS), 4)
    return int(numbers.map(lambda number: 2 * number).sum()) + ctx.spark.range(ROWS).count()


def holds(ctx: JobContext, parts: int) -> int:
    go = f"{Path.cwd()}/go"

    def wait(number: int) -> int:
        Path(f"{go}-{number}").touch()
        while not Path(go).exists():
            time.sleep(0.1)
        return number

    with Path("attempts.txt").open("a") as file:
        file.write(f"{ctx.attempt} {ctx.spark.sparkContext.applicationId}\n")
    return int(ctx.spark.sparkContext.parallelize(range(parts), parts).map(wait).sum())


env = understudy.get_environment()
found = {}
for name in sys.argv[2:]:
    word, _, parts = name.partition("/")
    if word == "computes":
        found[word] = env.execute(computes).value
    elif word == "holds":
        found[word] = env.execute(holds, int(parts)).value
    else:
        while not Path(word).exists():
            time.sleep(0.05)
Path(sys.argv[1]).write_text(json.dumps(found))
