import sys

from pyspark.sql import SparkSession

import understudy


def follow(ctx, source, target):
    def keep(batch, number):
        batch.dropna().write.mode("append").parquet(target)
        print("batch", number)

    spark = SparkSession.builder.appName("stream").getOrCreate()
    sales = spark.readStream.schema("shop string, amount double").csv(source, header=True)
    stream = sales.writeStream.foreachBatch(ctx.fenced_batch(keep)).trigger(availableNow=True)
    stream.option("checkpointLocation", ctx.checkpoint_location).start().awaitTermination()


if __name__ == "__main__":
    understudy.get_environment().execute(follow, sys.argv[1], sys.argv[2])
