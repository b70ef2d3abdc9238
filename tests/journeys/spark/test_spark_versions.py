"""The oldest PySpark that is supported, and the Java that the other journeys do not run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.versions import ground
from tests.versions.journey import travel, travel_on_a_cluster

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize("which", [0, 1], ids=["the oldest PySpark", "another Java"])
def test_a_journey_with_two_deaths_ends_well_on(which: int, tmp_path: Path) -> None:
    combination = ground.few_combinations()[which]
    home = ground.java_home(combination.java)
    with ground.overlay(combination.pyspark) as overlay:
        found = travel(tmp_path, home, overlay)

    assert found["spark"].startswith(f"{combination.pyspark}.")
    assert found["java"].startswith(f"{combination.java}.")


def test_a_standalone_cluster_of_the_oldest_pyspark_carries_a_safe_write(tmp_path: Path) -> None:
    combination = ground.few_combinations()[0]
    home = ground.java_home(combination.java)
    with ground.overlay(combination.pyspark) as overlay:
        travel_on_a_cluster(tmp_path, home, overlay)
