"""Which address a driver gives to its executors."""

from __future__ import annotations

import socket

import pytest

from understudy.spark.addresses import (
    OUTSIDE,
    address_settings,
    advertised,
    is_local,
    on_this_host,
    route,
)

WAYS = {
    ("localhost", 7077): "127.0.0.1",
    ("127.0.0.1", 7077): "127.0.0.1",
    ("::1", 7077): "::1",
    ("own", 7077): "10.0.0.5",
    ("near", 7077): "10.0.0.5",
    ("far", 7078): "192.168.1.5",
    ("fd00::1", 7077): "fd00::5",
    ("api", 6443): "10.1.0.5",
    ("api", 443): "10.2.0.5",
    OUTSIDE: "172.16.0.5",
}


def way(host: str, port: int) -> str | None:
    return WAYS.get((host, port))


def no_way(host: str, port: int) -> str | None:
    return None


@pytest.mark.parametrize(
    ("master", "address", "here"),
    [
        ("local", "127.0.0.1", True),
        ("local[*]", "127.0.0.1", True),
        ("local[4,2]", "127.0.0.1", True),
        ("local-cluster[2,1,1024]", "127.0.0.1", True),
        ("spark://localhost:7077", "127.0.0.1", True),
        ("spark://localhost", "127.0.0.1", True),
        ("spark://[::1]:7077", "::1", True),
        ("spark://127.0.0.1:7077,localhost:7077", "127.0.0.1", True),
        ("spark://own:7077", "10.0.0.5", False),
        ("spark://near:7077,far:7078", "10.0.0.5", False),
        ("spark://unknown:7077,far:7078", "192.168.1.5", False),
        ("spark://localhost:7077,far:7078", "192.168.1.5", False),
        ("spark://localhost:7077,unknown:7077", "127.0.0.1", False),
        ("spark://[fd00::1]:7077", "fd00::5", False),
        ("spark://unknown:7077", None, False),
        ("k8s://https://api:6443", "10.1.0.5", False),
        ("k8s://http://api:6443/path", "10.1.0.5", False),
        ("k8s://api", "10.2.0.5", False),
        ("yarn", "172.16.0.5", False),
        ("spark://", "172.16.0.5", False),
        ("other://host:1", "172.16.0.5", False),
    ],
)
def test_it_is_the_one_that_leads_to_the_master(
    master: str, address: str | None, here: bool
) -> None:
    assert (address, here) == (advertised(master, way), on_this_host(master, way))


@pytest.mark.parametrize("master", ["yarn", "spark://far:7078", "k8s://api:6443"])
def test_without_a_way_spark_chooses(master: str) -> None:
    assert {} == address_settings({"spark.master": master}, {}, no_way)
    assert advertised(master, no_way) is None


LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@pytest.mark.parametrize(
    ("conf", "environment", "expected"),
    [
        ({}, {}, LOCAL),
        ({"spark.master": "local[2]"}, {"SPARK_LOCAL_IP": "10.0.0.9"}, LOCAL),
        (
            {"spark.master": "local", "spark.driver.host": "own"},
            {},
            {"spark.driver.bindAddress": "127.0.0.1"},
        ),
        ({"spark.master": "spark://own:7077"}, {}, {"spark.driver.host": "10.0.0.5"}),
        (
            {"spark.master": "spark://own:7077", "spark.driver.bindAddress": "0.0.0.0"},
            {},
            {"spark.driver.host": "10.0.0.5"},
        ),
        ({"spark.master": "spark://own:7077", "spark.driver.host": "outside"}, {}, {}),
        ({"spark.master": "spark://own:7077"}, {"SPARK_LOCAL_IP": "10.0.0.9"}, {}),
        ({"spark.master": "spark://own:7077"}, {"SPARK_LOCAL_HOSTNAME": "me"}, {}),
        (
            {"spark.master": "spark://own:7077"},
            {"SPARK_LOCAL_IP": ""},
            {"spark.driver.host": "10.0.0.5"},
        ),
    ],
)
def test_what_a_person_has_set_stays(
    conf: dict[str, str], environment: dict[str, str], expected: dict[str, str]
) -> None:
    assert expected == address_settings(conf, environment, way)


def test_only_what_runs_in_the_drivers_jvm_is_local() -> None:
    masters = ["local", "local[*]", "local-cluster[1,1,1024]", "spark://localhost:7077", "yarn"]

    assert [True, True, False, False, False] == [is_local(master) for master in masters]


def test_the_kernel_knows_the_way_to_this_host_and_none_to_a_name_that_is_none() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))

        assert "127.0.0.1" == route("127.0.0.1", server.getsockname()[1])
    assert route("no such name", 7077) is None
