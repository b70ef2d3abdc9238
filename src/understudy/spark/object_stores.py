"""Checks whether a Spark session reaches a URL: each scheme needs its class of Hadoop.

The check asks the session's own JVM, so it skips sessions of Spark Connect.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from understudy.errors import CheckpointError

PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "abfss": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26",
}
"""Scheme → the package with its file system, for the session's version of Hadoop."""

_OTHER_DIR = "set execution.checkpointing.dir to what Spark reaches"


def check_reachable(spark: SparkSession, location: str, or_else: str = _OTHER_DIR) -> None:
    """Raise `CheckpointError` if the session has no file system for this URL.

    ``or_else`` is the alternative to adding the package, for the message.
    """
    scheme, separator, _ = location.partition("://")
    jvm = getattr(spark, "_jvm", None)
    if not separator or jvm is None:
        return
    hadoop = jvm.org.apache.hadoop
    configuration = spark._jsc.hadoopConfiguration()
    try:
        hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Exception as error:  # Py4J wraps every error of the class loader.
        version = hadoop.util.VersionInfo.getVersion()
        package = PACKAGES.get(scheme, "").format(hadoop=version)
        way_out = (
            f"add --packages {package}"
            if package
            else "add the package that brings its file system"
        )
        raise CheckpointError(
            f"this Spark session cannot reach {location}: it has no file system for "
            f"{scheme}://; {way_out} (or --jars, where there is no network), or {or_else}"
        ) from error
