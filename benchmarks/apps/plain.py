"""A plain PySpark script: says how long each small call took once the session is warm."""

import json
import sys
import time

from pyspark.sql import SparkSession

WARM_UP = 20

spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.range(1000).count()
print(json.dumps({"first": time.time()}), flush=True)
seconds = []
for _ in range(int(sys.argv[1]) + WARM_UP if int(sys.argv[1]) else 0):
    start = time.perf_counter()
    spark.range(1000).count()
    seconds.append(time.perf_counter() - start)
print(json.dumps({"calls": seconds[WARM_UP:]}), flush=True)
