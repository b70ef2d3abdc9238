"""TALKS. Communication between the processes of a cluster.

Messages, each with its term and incarnation, and the links that carry them; nothing about their
meaning. Modules here know neither stores nor Spark.
"""
