"""Settings with which Spark's driver would not be a process of ours are refused."""

from __future__ import annotations

import pytest

from understudy.cli.launch.spark_submit import spark_conf
from understudy.errors import UsageError


@pytest.mark.parametrize(
    ("flags", "conf", "words"),
    [
        ({"master": "sc://host:15002"}, (), "spark.master=sc://host:15002: a Spark Connect"),
        ({}, ("spark.master=sc://host",), "spark.master=sc://host: a Spark Connect"),
        ({"master": "yarn"}, ("spark.remote=local",), "spark.remote=local: a Spark Connect"),
        ({}, ("spark.submit.deployMode=cluster",), "spark.submit.deployMode=cluster: drivers run"),
    ],
)
def test_what_keeps_the_driver_elsewhere_is_refused_by_name(
    flags: dict[str, str], conf: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError) as refused:
        spark_conf(flags, conf, None)

    assert words in str(refused.value)


@pytest.mark.parametrize("master", ["local[2]", "spark://a:7077,b:7077", "yarn", "k8s://https://h"])
def test_each_other_master_is_taken(master: str) -> None:
    found = spark_conf({"master": master}, ("spark.submit.deployMode=client",), None)

    assert master == found["spark.master"]
