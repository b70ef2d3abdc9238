"""High availability for PySpark pipelines: the public API."""
