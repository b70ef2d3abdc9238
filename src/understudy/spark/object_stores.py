"""Whether a Spark session reaches a URL: each scheme is a class of Hadoop's that it has or not.

Only the session's own JVM is asked, so a session of Spark Connect is not looked at.
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
"""What brings the file system of a scheme, in the version of Hadoop that the session has."""

_OTHER_DIR = "set execution.checkpointing.dir to what Spark reaches"


def check_reachable(spark: SparkSession, location: str, or_else: str = _OTHER_DIR) -> None:
    """Raise `CheckpointError` where the session has nothing that reads and writes this URL.

    ``or_else`` is what a person can do besides adding the package.
    """
    scheme, separator, _ = location.partition("://")
    jvm = getattr(spark, "_jvm", None)
    if not separator or jvm is None:
        return
    hadoop = jvm.org.apache.hadoop
    configuration = spark._jsc.hadoopConfiguration()
    try:
        hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Exception as error:  # Py4J wraps whatever the class loader says.
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
