"""Jobs one after the other, whose tasks tick until a file says that they may end.

Arguments: the names of the jobs. ``shuffles…`` returns what it has shuffled, ``writes…`` appends it
to ``out``. Every attempt is noted in ``jobs.txt``, every tick in ``marks.txt``. Executors have
other working directories: so all paths are whole.
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
FIRST = 100
"""What ``writes`` appends before the write that is held."""

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
    place, mark = Path(where), f"{name} {ctx.attempt}"
    note(place / "jobs.txt", mark)
    out = str(place / "out")
    if name.startswith("writes"):
        ctx.write(ctx.spark.range(FIRST).selectExpr("-1L AS key", "id AS many"), out, mode="append")
    numbers = ctx.spark.sparkContext.range(0, KEYS * EACH, numSlices=4)
    pairs = numbers.map(lambda number: (number % KEYS, 1)).reduceByKey(add, 4)
    kept = pairs.mapPartitionsWithIndex(partial(held, place, mark, f"go-{name}"))
    if name.startswith("writes"):
        ctx.write(ctx.spark.createDataFrame(kept, "key LONG, many LONG"), out, mode="append")
        return {}
    return {str(key): many for key, many in sorted(kept.collect())}


def count(ctx: JobContext, where: str) -> dict[str, int]:
    """Return what lies in ``out``."""
    rows = ctx.spark.read.parquet(str(Path(where) / "out"))
    many = rows.where("key >= 0").selectExpr("sum(many)").first()
    assert many is not None
    return {"rows": rows.count(), "distinct": rows.distinct().count(), "shuffled": many[0]}


here = str(Path.cwd())
env = understudy.get_environment()
values = {name: env.execute(job, name, here, name=name).value for name in sys.argv[1:]}
if Path("out").exists():
    values["count"] = env.execute(count, here).value
Path("values.json").write_text(json.dumps(values))
