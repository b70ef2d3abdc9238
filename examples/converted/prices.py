from pyspark.sql.functions import udf
from pyspark.sql.types import DoubleType


@udf(DoubleType())
def with_tax(amount):
    return None if amount is None else amount * 1.19
