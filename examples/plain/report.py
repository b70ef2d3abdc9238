import argparse

from prices import with_tax
from pyspark.sql import SparkSession


def prepare(source, target):
    spark = SparkSession.builder.getOrCreate()
    sales = spark.read.csv(source, header=True, inferSchema=True).dropna()
    sales.select("shop", with_tax("amount").alias("amount")).write.parquet(target, "overwrite")


def best(source, count):
    spark = SparkSession.builder.getOrCreate()
    sums = spark.read.parquet(source).groupBy("shop").sum("amount").toDF("shop", "amount")
    return [row["shop"] for row in sums.orderBy("amount", ascending=False).take(count)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--best", type=int, default=2)
    arguments = parser.parse_args()
    prepare(arguments.source, arguments.target)
    print("best:", *best(arguments.target, arguments.best))
