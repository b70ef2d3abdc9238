"""An ordinary PySpark script: it appends rows, waits for ``go``, counts them and stops Spark."""

import argparse
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType


@udf(LongType())
def twice(number: int) -> int:
    return 2 * number


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("target")
    arguments = parser.parse_args()
    builder = SparkSession.builder.appName("etl").master("local[2]")
    spark = builder.config("spark.driver.memory", "600m").getOrCreate()
    rows = spark.range(arguments.rows).select(twice("id").alias("number"))
    rows.write.mode("append").parquet(arguments.target)
    Path("appended").write_text("yes\n")
    while not Path("go").exists():
        time.sleep(0.02)
    print("rows:", spark.read.parquet(arguments.target).count())
    spark.stop()
    print("after stop", SparkSession.getActiveSession())


if __name__ == "__main__":
    main()
