"""YARN is asked for its capacity all the time, and for single applications only by who waits."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from understudy.core.executors import Capacity, CoreHolder
from understudy.spark.managers import yarn
from understudy.spark.managers.yarn import HOLDERS_MAX, HOLDERS_S, MARK, Yarn

MINE = "application_1_1"


def always(value: Any) -> Any:
    """Return a method that returns a value."""
    return lambda *_: value


class Client:
    """Hadoop's client of a cluster of 8 cores, 2 of them free; counts who is asked for."""

    def __init__(self, applications: list[str]) -> None:
        self.applications = applications
        self.asked: list[str] = []
        """The applications that were read, each in several calls of the JVM."""
        self.listed = 0

    def getQueueInfo(self, name: str) -> Any:  # noqa: N802 -- Hadoop's name
        statistics = SimpleNamespace(
            getAvailableVCores=always(2),
            getAvailableMemoryMB=always(4096),
            getAllocatedVCores=always(6),
            getReservedVCores=always(0),
        )
        nodes = SimpleNamespace(getAbsoluteCapacity=always(1.0), getAbsoluteMaxCapacity=always(1.0))
        return SimpleNamespace(
            getQueueStatistics=always(statistics),
            getQueueConfigurations=always({"": nodes}),
            getCurrentCapacity=always(0.75),
        )

    def getApplicationReport(self, which: str) -> Any:  # noqa: N802 -- Hadoop's name
        return self.report(which)

    def listing(self) -> Iterator[Any]:
        self.listed += 1
        return map(self.report, self.applications)

    def report(self, name: str) -> Any:
        self.asked.append(name)
        usage = SimpleNamespace(
            getNumUsedContainers=always(2),
            getUsedResources=always(SimpleNamespace(getVirtualCores=always(3))),
        )
        return SimpleNamespace(
            getApplicationResourceUsageReport=always(usage),
            getApplicationTags=always([MARK] if name == MINE else []),
            getApplicationId=always(SimpleNamespace(toString=always(name))),
            getName=always(f"name of {name}"),
        )


class Cluster(Yarn):
    """A YARN behind a client of ours."""

    def __init__(self, client: Client) -> None:
        from_string = SimpleNamespace(fromString=lambda name: name)
        records = SimpleNamespace(ApplicationId=from_string)
        api = SimpleNamespace(records=records)
        utils = SimpleNamespace(JavaUtils=SimpleNamespace(byteStringAsMb=always(1024)))
        apache = SimpleNamespace(
            hadoop=SimpleNamespace(yarn=SimpleNamespace(api=api)),
            spark=SimpleNamespace(network=SimpleNamespace(util=utils)),
        )
        super().__init__(
            SimpleNamespace(org=SimpleNamespace(apache=apache)), {"spark.master": "yarn"}
        )
        self.client = client

    def _asked(self) -> Any:
        return self.client

    def _reports(self, states: tuple[str, ...], *tags: str) -> Any:
        return self.client.listing()


def test_what_the_cluster_carries_costs_no_call_for_single_applications() -> None:
    client = Client([MINE, "other"])

    assert Capacity(8, 2) == Cluster(client).capacity()
    assert ([], 0) == (client.asked, client.listed)


def test_who_waits_sees_who_holds_cores_and_whether_it_holds_some_itself() -> None:
    found = Cluster(Client(["other", MINE])).capacity(MINE)

    assert found is not None
    assert 3 == found.held_by("other")
    assert CoreHolder("other", "name of other", 3) in found.holders
    # Without its ApplicationMaster's core.
    assert 2 == found.held_by(MINE)


def test_of_thousands_of_applications_some_are_read_and_its_own_in_any_case() -> None:
    client = Client([*(f"other {number}" for number in range(5000)), MINE])
    found = Cluster(client).capacity(MINE)

    assert found is not None
    assert 2 == found.held_by(MINE)
    assert HOLDERS_MAX + 1 == len(client.asked)


def test_others_are_read_again_only_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(yarn, "time", SimpleNamespace(monotonic=lambda: now))
    client = Client(["other"])
    cluster = Cluster(client)
    for _ in range(3):
        cluster.capacity(MINE)
    often = client.listed
    now += HOLDERS_S + 0.1
    cluster.capacity(MINE)

    assert (1, 2) == (often, client.listed)
