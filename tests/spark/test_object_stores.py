"""What is said where a Spark session does not reach an object store; no JVM is needed for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from understudy.errors import CheckpointError
from understudy.spark.object_stores import check_reachable


def session(*schemes: str) -> SparkSession:
    """Return a session whose JVM knows the file systems of these schemes."""

    def find(scheme: str, _: object) -> type:
        if scheme not in schemes:
            raise RuntimeError("java.lang.ClassNotFoundException: …S3AFileSystem not found")
        return object

    hadoop = SimpleNamespace(
        fs=SimpleNamespace(FileSystem=SimpleNamespace(getFileSystemClass=find)),
        util=SimpleNamespace(VersionInfo=SimpleNamespace(getVersion=lambda: "3.5.0")),
    )
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
    made: Any = SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=dict))
    return cast("SparkSession", made)


@pytest.mark.parametrize(
    ("location", "package"),
    [
        ("s3a://bucket/x", "add --packages org.apache.hadoop:hadoop-aws:3.5.0"),
        ("abfss://c@a/x", "add --packages org.apache.hadoop:hadoop-azure:3.5.0"),
        ("swift://c/x", "add the package that brings its file system"),
    ],
)
def test_what_is_missing_is_named_in_the_version_of_the_session(
    location: str, package: str
) -> None:
    with pytest.raises(CheckpointError) as told:
        check_reachable(session("file"), location)
    assert f"cannot reach {location}: it has no file system" in str(told.value)
    assert package in str(told.value)


@pytest.mark.parametrize("location", ["s3a://bucket/x", "/mine"])
def test_what_is_reached_is_not_refused(location: str) -> None:
    check_reachable(session("s3a"), location)


def test_a_session_without_a_jvm_is_not_looked_at() -> None:
    made: Any = SimpleNamespace(_jvm=None)
    check_reachable(cast("SparkSession", made), "s3a://bucket/x")
