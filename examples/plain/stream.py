import sys

from pyspark.sql import SparkSession


def follow(source, target):
    def keep(batch, number):
        batch.dropna().write.mode("append").parquet(target)
        print("batch", number)

    spark = SparkSession.builder.appName("stream").getOrCreate()
    sales = spark.readStream.schema("shop string, amount double").csv(source, header=True)
    stream = sales.writeStream.foreachBatch(keep).trigger(availableNow=True)
    stream.option("checkpointLocation", "out/checkpoints").start().awaitTermination()


if __name__ == "__main__":
    follow(sys.argv[1], sys.argv[2])
