"""Streaming jobs without Spark: checkpoint locations written as files, as Spark writes them."""
