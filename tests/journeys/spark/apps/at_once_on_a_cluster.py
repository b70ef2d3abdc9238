"""Jobs at once, whose tasks tick until a file says that they may end.

Arguments: the directory of all notes, then the names of the jobs. Every attempt notes in
``attempts.txt`` where its driver is found, every task that is held ticks in ``marks.txt``, and what
the jobs have returned is in ``values.json``.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from operator import add
from pathlib import Path

import understudy
from understudy import JobContext

KEYS = 40
EACH = 25

Pair = tuple[int, int]


def note(path: Path, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, text.encode() + b"\n")
    os.close(file)


def held(place: Path, mark: str, go: str, part: int, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Be a reducer: half of them end at once, the others tick until they may."""
    yield from pairs
    while part % 2 and not (place / go).exists():
        note(place / "marks.txt", f"tick {mark}")
        time.sleep(0.05)


def job(ctx: JobContext, name: str, where: str) -> dict[str, int]:
    place, context = Path(where), ctx.spark.sparkContext
    assert context._jsc is not None
    spark = context._jsc.sc()
    spark.listenerBus().waitUntilEmpty()  # From there the store below has what it tells.
    found = {
        "job": name,
        "attempt": ctx.attempt,
        "pid": os.getppid(),
        "application": context.applicationId,
        "host": context.getConf().get("spark.driver.host"),
        "port": int(context.getConf().get("spark.driver.port") or 0),
        "blocks": spark.statusStore().executorSummary("driver").hostPort(),
    }
    note(place / "attempts.txt", json.dumps(found))
    keys = context.broadcast(list(range(KEYS)))  # Executors fetch it from the driver.
    numbers = context.range(0, KEYS * EACH, numSlices=4)
    pairs = numbers.map(lambda number: (keys.value[number % KEYS], 1)).reduceByKey(add, 4)
    mark = f"{name} {ctx.attempt}"
    kept = pairs.mapPartitionsWithIndex(partial(held, place, mark, f"go-{name}"))
    return {str(key): many for key, many in sorted(kept.collect())}


where, names = sys.argv[1], sys.argv[2:]
env = understudy.get_environment()
clients = {name: env.execute_async(job, name, where, name=name) for name in names}
values = {name: client.result().value for name, client in clients.items()}
Path(where, "values.json").write_text(json.dumps(values))
