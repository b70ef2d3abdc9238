"""A PySpark script that has never heard of Understudy; its tasks tick until ``go`` is there."""

import os
import time
from pathlib import Path

from pyspark.sql import SparkSession

ME = os.getpid()


def note(text: str) -> None:
    file = os.open("marks.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, text.encode() + b"\n")
    os.close(file)


def tick(number: int) -> int:
    while not Path("go").exists():
        note(f"tick {ME}")
        time.sleep(0.02)
    return number


note(f"begin {ME}")
spark = SparkSession.builder.appName("plain").config("spark.driver.memory", "600m").getOrCreate()
total = spark.sparkContext.range(0, 2, numSlices=2).map(tick).sum()
conf = spark.sparkContext.getConf()
note(f"end {ME}")
print("total", total, conf.get("spark.master"), conf.get("spark.sql.shuffle.partitions"))
print("memory", conf.get("spark.driver.memory"))
spark.stop()
