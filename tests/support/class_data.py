"""Builds the archive of Spark's classes that all tests share: ``make spark`` runs this first.

A driver has the archive built with CPU time that nobody else wants; tests leave none.
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import SparkSession

from understudy.config.configuration import cache_home
from understudy.core.executors import Launch
from understudy.driver.class_data_building import build
from understudy.ha import own_directory
from understudy.spark.defaults import session_conf
from understudy.spark.session import SparkSessions


def main() -> None:
    """Start Spark as a driver does, and build the archive that its JVM has started without."""
    directory = cache_home() / "class-data"
    own_directory.make(directory, levels=2, way_out="remove it")
    with tempfile.TemporaryDirectory() as scratch:
        sessions = SparkSessions()
        conf = session_conf({"spark.master": "local[2]"}, scratch, "archive")
        sessions.start(Launch(conf, scratch, class_data=str(directory)))
        SparkSession.builder.getOrCreate().range(1000).count()
        building = sessions.to_build()
        built = building is None or build(building)
    print("the archive of Spark's classes", "is there" if built else "could not be built")
    sys.exit(not built)


if __name__ == "__main__":
    main()
