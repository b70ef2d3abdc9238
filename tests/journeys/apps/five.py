"""Five jobs, two of them at once; each notes its name and attempt in the given directory.

One of them computes with Spark, where the last argument says so.
"""

import os
import sys
from pathlib import Path

import understudy
from understudy import JobContext

PLACE, NUMBER = Path(sys.argv[1]), int(sys.argv[2])
SPARK = sys.argv[3:] == ["spark"]


def work(ctx: JobContext, name: str) -> str:
    notes = os.open(PLACE / "jobs.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(notes, f"{name} {ctx.attempt}\n".encode())  # Whole, whoever else writes.
    os.close(notes)
    return name


def computes(ctx: JobContext, name: str) -> str:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
    assert 1000 == spark.range(1000).count()
    spark.stop()
    return work(ctx, name)


env = understudy.get_environment()
names = [f"{NUMBER}.{job}" for job in range(5)]
first = [env.execute_async(work, name, name=name) for name in names[:2]]
assert names[:2] == [one.result().value for one in first]
for name in names[2:]:
    function = computes if SPARK and name == names[2] else work
    assert name == env.execute(function, name, name=name).value
