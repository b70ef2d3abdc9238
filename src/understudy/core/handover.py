"""What a driver tells the process of a job, so that this need not ask the JVM."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Handover:
    """A SparkContext that runs in a JVM, for a process that attaches to it.

    Ids are those of Py4J: the JVM holds the objects for the driver, which outlives the job.
    """

    port: int
    secret: str
    jvm_pid: int
    context: str
    """Id of the JavaSparkContext."""
    session: str
    """Id of the SparkSession that the job's own is made from."""
    java_conf: str
    """Id of the SparkConf."""
    conf: dict[str, str]
    """What the SparkContext was started with."""
    environment: dict[str, str]
    """What Spark has added to the environment of the driver."""
    path: tuple[str, ...]
    """Where Python finds modules."""
    includes: tuple[str, ...]
    """Where Python workers find further ones."""
    worker_environment: dict[str, str]
    """What Python workers get."""
    temporary: str
    """Spark's directory for files that go with the SparkContext."""
    encrypted: bool
    """Broadcast variables are encrypted on disk."""
    group: str = ""
    """The group of the job's Spark jobs."""
    label: str = ""
    """Their description."""
    per_attempt: bool = False
    """The SparkContext is an application of its own on a cluster, which may end it."""
