"""A cluster in ZooKeeper, its data in the default directory, looked at without its settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journeys.conftest import Start
from tests.journeys.harness import command
from tests.support.zookeeper import Server

pytestmark = pytest.mark.filesystem

NAMED = ("-D", "high-availability.cluster-id=live")


def in_zookeeper(server: Server, place: Path) -> tuple[str, ...]:
    return (
        "-D",
        "high-availability.type=zookeeper",
        "-D",
        f"high-availability.zookeeper.quorum={server.connect_string}",
        "-D",
        f"high-availability.zookeeper.path.root=/{place.name}",
    )


def files_of(place: Path) -> list[str]:
    root = place / "state/understudy/ha"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.long  # test_destroy.py has one in its own register.
@pytest.mark.parametrize("noted", [True, False])
def test_a_cluster_that_runs_is_never_taken_for_what_is_left_of_one(
    start: Start, place: Path, zookeeper: Server, noted: bool
) -> None:
    """Without the note as well, of a cluster that an older version has begun: by its locks."""
    there = in_zookeeper(zookeeper, place)
    run = start("three.py", options=(*NAMED, *there), standbys=1)
    run.running("second job")
    if not noted:
        (place / "state/understudy/ha/live/coordination.json").unlink()
    listed = command(place, "list", "--json")
    before = files_of(place)
    refused = command(place, "destroy", *NAMED, "--yes", code=None)
    after = files_of(place)
    run.release()

    assert 0 == run.finish()
    assert before == after
    assert 0 != refused.returncode
    problem = json.loads(listed.stdout)["attention"][0]["problem"]
    if noted:
        for told in (problem, refused.stderr):
            assert "belongs to high-availability.type zookeeper at " in told
            assert f"{zookeeper.connect_string}/{place.name}" in told
        assert "remove all that is left" not in problem
    else:
        assert "is in use" in refused.stderr
    assert ["first 1", "long 1", "third 1"] == run.lines("jobs.txt")


@pytest.mark.long
def test_with_its_own_settings_it_is_listed_and_destroyed(
    start: Start, place: Path, zookeeper: Server
) -> None:
    there = in_zookeeper(zookeeper, place)
    keep = ("-D", "application-result-store.delete-on-commit=false")
    assert 0 == start("mains.py", "same-name", options=(*NAMED, *there, *keep)).finish()
    refused = command(place, "destroy", *NAMED, "--yes", code=None)
    started = start("mains.py", "same-name", options=NAMED)
    code = started.finish()
    listed = json.loads(command(place, "list", *NAMED, *there, "--json").stdout)
    command(place, "destroy", *NAMED, *there, "--yes")

    assert "belongs to high-availability.type zookeeper" in refused.stderr
    assert 0 != refused.returncode
    assert 2 == code
    assert "belongs to high-availability.type zookeeper" in (place / "stderr-1.log").read_text()
    assert ["FINISHED"] == [one["status"] for one in listed["applications"]]
    assert [] == [name for name in files_of(place) if name.startswith("live")]
