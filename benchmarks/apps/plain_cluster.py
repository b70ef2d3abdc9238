"""A plain PySpark script: starts a session on the master that it is given, and counts once."""

import json
import sys
import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.master(sys.argv[1]).getOrCreate()
spark.range(1000).count()
print(json.dumps({"first": time.time()}), flush=True)
spark.stop()
