"""A plain PySpark driver that notes each small job it has done; argument: the master."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

builder = SparkSession.builder.master(sys.argv[1])
for key, value in {
    "spark.cores.max": "1",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
step = 0
with Path("steps.jsonl").open("a", buffering=1) as notes:
    while True:
        spark.range(0, 1000, 1, 2).count()
        step += 1
        notes.write(json.dumps({"time": time.time(), "step": step, "attempt": 1}) + "\n")
        time.sleep(0.02)
