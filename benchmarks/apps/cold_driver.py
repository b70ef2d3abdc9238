"""Starts Spark as a driver does: says when the first count is there, and builds what is missing.

Arguments: a scratch directory, and the directory of archives of classes (empty: without).
"""

import json
import sys
import time

from pyspark.sql import SparkSession

from understudy.core.executors import Launch
from understudy.driver.class_data_building import build
from understudy.spark.defaults import session_conf
from understudy.spark.session import SparkSessions

scratch, class_data = sys.argv[1:]
sessions = SparkSessions()
conf = session_conf({"spark.master": "local[2]"}, scratch, "cold")
sessions.start(Launch(conf, scratch, class_data=class_data))
SparkSession.builder.getOrCreate().range(1000).count()
print(json.dumps({"first": time.time()}), flush=True)
building = sessions.to_build()
print(json.dumps({"built": building is not None and build(building)}), flush=True)
