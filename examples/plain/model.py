import sys

from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import LinearRegression
from pyspark.sql import SparkSession


def train(source, target):
    spark = SparkSession.builder.appName("model").getOrCreate()
    sales = spark.read.csv(source, header=True, inferSchema=True).dropna()
    features = VectorAssembler(inputCols=["day"], outputCol="features").transform(sales)
    model = LinearRegression(labelCol="amount").fit(features)
    model.write().overwrite().save(target)
    print("slope:", round(model.coefficients[0], 3))


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2])
