"""Two jobs, one after the other in one driver, whose executors tell what has reached them."""

import json
import os
import sys
import time
from importlib.resources import files
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


def look(_: int) -> dict[str, Any]:
    """Return what is there, in whatever process this is called."""
    return {
        "modules": [neighbour.double(4), shout("a"), brought.WORD, archived.third(9), gauge.UNIT],
        "beside": files("parts").joinpath("degree.txt").read_text(),
        "file": Path(SparkFiles.get("data.txt")).read_text(),
        "archive": Path(SparkFiles.get("model"), "weights.txt").read_text(),
        "jars": sorted(path.name for path in Path(SparkFiles.getRootDirectory()).glob("*.jar")),
        "python": os.environ.get("PACKED"),
        "home": os.environ["HOME"],
        "directory": str(Path.cwd()),
    }


def compute(ctx: JobContext, home: str) -> dict[str, Any]:
    """Wait until the directory of the script is gone; then ask the executors."""
    while Path(home).exists():
        time.sleep(0.05)
    context = ctx.spark.sparkContext
    rows = ctx.spark.sql("SELECT reflect('Knot', 'tie', string(id)) AS tied FROM range(2)")
    return {
        "tasks": context.range(0, 4, numSlices=4).map(look).collect(),
        "tied": [row.tied for row in rows.collect()],
        "pid": os.getppid(),
        "application": context.applicationId,
        "host": context.getConf().get("spark.driver.host"),
    }


env = understudy.get_environment()
print(json.dumps([env.execute(compute, sys.argv[1], name=name).value for name in ("one", "two")]))
