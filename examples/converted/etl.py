import sys

from pyspark.sql import SparkSession

import understudy


def load(ctx, source, target):
    spark = SparkSession.builder.appName("etl").getOrCreate()
    sales = spark.read.csv(source, header=True, inferSchema=True)
    ctx.write(sales.dropna(), target, mode="append")
    print("rows:", spark.read.parquet(target).count())
    spark.stop()


if __name__ == "__main__":
    understudy.get_environment().execute(load, sys.argv[1], sys.argv[2])
