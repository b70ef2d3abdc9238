"""Which masters Spark accepts."""

from __future__ import annotations

import pytest

from understudy.spark.masters import places_of, problem_of

VALID = (
    "local",
    "local[4]",
    "local[*]",
    "local[*,2]",
    "local[2, 3]",
    "local-cluster[2,1,1024]",
    "spark://host:7077",
    "spark://a:7077,b:7078",
    "spark://[::1]:7077",
    "yarn",
    "k8s://https://host:443",
)


@pytest.mark.parametrize("master", VALID)
def test_what_spark_accepts_is_accepted(master: str) -> None:
    assert problem_of(master) == ""


@pytest.mark.parametrize(
    "master",
    ["locl", "local[]", "local[0]", "local[x]", "Local", "yarn-client", "mesos://h:1", "k8s://"],
)
def test_what_spark_does_not_know_is_refused_with_what_it_knows(master: str) -> None:
    assert "local[*], local[2], spark://host:7077, yarn" in problem_of(master)


@pytest.mark.parametrize(
    "places", ["", "host", "host:", "host:0", "host:70000", "a:1,b", "host:1/x", "a b:1"]
)
def test_a_master_without_a_host_and_port_is_refused(places: str) -> None:
    assert "is no host:port" in problem_of(f"spark://{places}")


def test_the_places_of_a_master_are_those_that_its_url_names() -> None:
    assert places_of("spark://a:7077,[::1]:7078") == [("a", 7077), ("::1", 7078)]
    assert places_of("local[2]") == []
