"""Side by side on one ZooKeeper: Understudy, Flink 2.3, and Spark's standalone Master.

``python -m benchmarks.zookeeper`` starts each from its own jars or code, kills its leader, counts
what it writes, and tells it in ``docs/benchmarks-zookeeper.md``. Only what runs a process of one of
the three, or counts what the server has written, belongs here.
"""
