import sys

from pyspark.sql import SparkSession


def load(source, target):
    spark = SparkSession.builder.appName("etl").getOrCreate()
    sales = spark.read.csv(source, header=True, inferSchema=True)
    sales.dropna().write.mode("append").parquet(target)
    print("rows:", spark.read.parquet(target).count())
    spark.stop()


if __name__ == "__main__":
    load(sys.argv[1], sys.argv[2])
