"""TALKS. How processes of a cluster speak with each other.

Messages, each with its term and incarnation; the links that carry them; nothing about what they
mean. Whoever lives here knows neither stores nor Spark.
"""
