"""Settings with which Spark's driver would not be a process of ours are refused."""

from __future__ import annotations

import pytest

from understudy.cli.launch.spark_submit import check_configured, spark_conf
from understudy.config.configuration import load_configuration
from understudy.errors import UsageError


@pytest.mark.parametrize(
    ("flags", "conf", "words"),
    [
        ({"master": "sc://host:15002"}, (), "spark.master=sc://host:15002: a Spark Connect"),
        ({}, ("spark.master=sc://host",), "spark.master=sc://host: a Spark Connect"),
        ({"master": "yarn"}, ("spark.remote=local",), "spark.remote=local: a Spark Connect"),
        ({}, ("spark.api.mode=Connect",), "spark.api.mode=Connect: a Spark Connect"),
        ({}, ("spark.submit.deployMode=cluster",), "spark.submit.deployMode=cluster: drivers run"),
    ],
)
def test_what_keeps_the_driver_elsewhere_is_refused_by_name(
    flags: dict[str, str], conf: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError) as refused:
        spark_conf(flags, conf, None)

    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("spark.remote=sc://host", "spark.remote=sc://host: a Spark Connect"),
        ("spark.master=sc://host", "spark.master=sc://host: a Spark Connect"),
        ("spark.submit.deployMode=cluster", "spark.submit.deployMode=cluster: drivers run"),
    ],
)
def test_so_is_what_the_configuration_says(setting: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_configured(load_configuration(None, [setting]), {})

    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("SPARK_REMOTE", "sc://host"), ("SPARK_API_MODE", "connect")],
)
def test_so_is_what_the_environment_says_if_a_driver_reads_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    check_configured(load_configuration(None, ["taskmanager.driver.type=session-less"]), {})
    with pytest.raises(UsageError) as refused:
        check_configured(load_configuration(None, []), {})
    assert f"{name}={value} in the environment: a Spark Connect" in str(refused.value)


@pytest.mark.parametrize("master", ["local[2]", "spark://a:7077,b:7077", "yarn", "k8s://https://h"])
def test_each_other_master_is_taken(master: str) -> None:
    found = spark_conf({"master": master}, ("spark.submit.deployMode=client",), None)

    assert master == found["spark.master"]
