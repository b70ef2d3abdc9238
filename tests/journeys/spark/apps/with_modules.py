"""Jobs whose code is spread over the script, modules beside it, and what --py-files brings."""

import json
from pathlib import Path
from typing import Any

import archived  # type: ignore[import-not-found]  # In the .zip.
import brought  # type: ignore[import-not-found]  # The .py that was given.
import gauge  # type: ignore[import-not-found]  # In the wheel, with a data file.
import neighbour  # type: ignore[import-not-found]
from parts.words import shout  # type: ignore[import-not-found]
from pyspark import SparkFiles

import understudy
from understudy import JobContext

FACTOR = 10


def closure(step: int) -> Any:
    def add(number: int) -> int:
        return number * FACTOR + step

    return add


def archive(_: int) -> str:
    """Return what lies in the archive, where Spark has unpacked it under its alias."""
    return Path(SparkFiles.get("model"), "weights.txt").read_text()


def compute(ctx: JobContext, step: int) -> dict[str, Any]:
    """Call each module in the driver, and each in the processes that run Spark's tasks."""

    def everywhere(number: int) -> list[Any]:
        here = closure(step)(number)
        return [
            here,
            neighbour.double(here),
            shout("a"),
            brought.WORD,
            archived.third(9),
            gauge.UNIT,
        ]

    archives = bool(ctx.spark.conf.get("spark.archives", ""))
    numbers = ctx.spark.sparkContext.range(1, 3, numSlices=2)
    return {
        "driver": everywhere(1),
        "tasks": numbers.map(everywhere).collect(),
        "partitions": ctx.spark.conf.get("spark.sql.shuffle.partitions"),
        "files": [
            Path(path).name for path in str(ctx.spark.conf.get("spark.files", "")).split(",")
        ],
        "archives": [archive(0), *numbers.map(archive).collect()] if archives else [],
        "own": ctx.spark.conf.get("spark.sql.session.timeZone"),
    }


env = understudy.get_environment()
found = env.execute(compute, 3).value
found["elsewhere"] = env.execute(neighbour.job, name="from a module").value
found["nameless"] = env.execute(lambda ctx: ctx.spark.range(4).count(), name="nameless").value
print(json.dumps(found))
