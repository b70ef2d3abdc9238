"""Where queries keep their checkpoints: as Spark spells it, and as Python does."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from understudy.driver.streaming import CheckpointLocation
from understudy.errors import UsageError
from understudy.spark.urls import address_of, plain_url, spark_url

BARE = CheckpointLocation("/ha/checkpoints/j/streaming")


def test_a_name_gives_a_location_below() -> None:
    expected = f"{BARE}/orders"

    assert expected == BARE("orders")
    assert expected == BARE / "orders"
    assert expected == f"{BARE}/orders"
    assert expected == os.path.join(BARE, "orders")  # noqa: PTH118 -- as users write it
    assert f"{expected}/eu" == BARE / "orders" / "eu"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/etc", "a:b", "a b", "ä", "metadata", "offsets", "a" * 101, 3]
)
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a checkpoint location"):
        BARE(name)


def test_it_travels_as_plain_text() -> None:
    assert str is type(pickle.loads(pickle.dumps(BARE)))


@pytest.mark.parametrize(
    ("storage", "path", "expected"),
    [
        ("/ha", "a/b", "/ha/a/b"),
        ("file:///ha", "a/b", "/ha/a/b"),
        ("/up/../ha//", "a/b", "/ha/a/b"),
        ("s3://bucket/ha/", "a/b", "s3a://bucket/ha/a/b"),
        ("/ha", "/mine", "/mine"),
        ("/ha", "s3://bucket/x", "s3a://bucket/x"),
        ("/ha", "s3a://bucket/x", "s3a://bucket/x"),
        ("gcs://bucket/ha", "a", "gs://bucket/ha/a"),
        ("abfss://c@a.dfs.core.windows.net/ha", "a", "abfss://c@a.dfs.core.windows.net/ha/a"),
        ("hdfs://name/ha", "a", "hdfs://name/ha/a"),
        ("s3://bucket/ha", "file:///mine", "/mine"),
        ("/ha", "/data//cp/../points", "/data/points"),
        ("az://c@a/ha", "a", "abfs://c@a/ha/a"),
    ],
)
def test_where_spark_finds_a_path(storage: str, path: str, expected: str) -> None:
    assert expected == spark_url(storage, path)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("s3a://bucket/x", "s3://bucket/x"),
        ("s3://bucket/x", "s3://bucket/x"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("gcs://bucket/x", "gs://bucket/x"),
        ("az://c@a/x", "abfs://c@a/x"),
        ("s3n://bucket/x", "s3://bucket/x"),
        ("file:///a//b/../mine", "/a/mine"),
        ("hdfs://name/x", "hdfs://name/x"),
        ("file:/mine", "/mine"),
        ("/mine", "/mine"),
    ],
)
def test_where_python_finds_what_spark_names(named: str, expected: str) -> None:
    assert expected == plain_url(named)


def test_a_relative_storage_is_made_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    assert str(tmp_path / "ha" / "a") == spark_url("ha", "a")


def test_what_lies_in_memory_has_a_directory_for_spark() -> None:
    found = Path(spark_url("memory://understudy-1", "a/b"))

    assert found.is_absolute()
    assert found.parent.parent.is_dir()
    assert str(found) == spark_url("memory://understudy-1", "a/b")


@pytest.mark.parametrize("location", ["/x/y", "file:/x/y", "file:///x/y", "file://x/y"])
def test_where_python_finds_what_spark_calls_so(location: str) -> None:
    assert "/x/y" == plain_url(location)


@pytest.mark.parametrize(
    ("storage", "path", "expected"),
    [
        ("/ha", "one/cp", "/ha/one/cp"),
        ("file:///ha", "one/cp", "/ha/one/cp"),
        ("/ha", "/data/cp", "/data/cp"),
        ("s3://bucket/ha", "one/cp", "s3://bucket/ha/one/cp"),
        ("/ha", "s3a://bucket/cp", "s3://bucket/cp"),
        ("/ha", "file:/data/cp", "/data/cp"),
        ("/ha", "file:///data/cp/", "/data/cp"),
        ("/ha", "memory://x", "memory://x"),
        ("memory://ha", "one/cp", "memory://ha/one/cp"),
        ("/up/../ha//", "one/cp", "/ha/one/cp"),
        ("/ha", "/data//cp", "/data/cp"),
        ("gcs://bucket/ha", "one/cp", "gs://bucket/ha/one/cp"),
        ("az://c@a/ha", "one/cp", "abfs://c@a/ha/one/cp"),
    ],
)
def test_one_address_for_a_place(storage: str, path: str, expected: str) -> None:
    assert expected == address_of(storage, path)


@pytest.mark.parametrize(
    "storage",
    ["ha", "../ha", "/up/../ha//", "//ha", "s3://b/ha", "gs://b/ha", "gcs://b/ha", "az://c/ha"],
)
@pytest.mark.parametrize("checkpoints", ["one/cp", "/data//x/../cp", "gcs://b/cp", "s3a://b/cp"])
def test_what_spark_names_is_below_what_is_recorded(storage: str, checkpoints: str) -> None:
    told = plain_url(spark_url(storage, f"{checkpoints}/streaming/q"))

    assert f"{address_of(storage, checkpoints)}/streaming/q" == told == address_of(storage, told)
