"""Drivers on several hosts, a Spark cluster on another one, and the loss of a driver's host."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.harness import WHOLE_S
from tests.journeys.spark.hosts import DRIVERS, EACH, KEYS, MARKS, Note, Site, running
from tests.support.spark_cluster import SparkCluster

pytestmark = MARKS

JOBS = ("one", "two")


@dataclass
class Story:
    """What was seen of the run."""

    site: Site
    cluster: SparkCluster
    both: dict[str, Note] = field(default_factory=dict)
    """What each first attempt has noted."""
    names: list[str] = field(default_factory=list)
    """... and the Spark applications while both ran."""
    driver_urls: dict[str, set[str]] = field(default_factory=dict)
    """... and where the executors of each application look for their driver."""
    alone: list[str] = field(default_factory=list)
    """The Spark applications just before a host is cut off."""
    again: Note = field(default_factory=dict)
    """What the second attempt has noted."""
    driver_lived: bool = True
    """Whether the driver of the lost attempt was still there then."""
    at_begin: list[str] = field(default_factory=list)
    """The Spark applications while the tasks of the second attempt tick."""
    code: int = -1
    values: dict[str, Any] = field(default_factory=dict)
    at_end: list[str] = field(default_factory=list)
    """The Spark applications when the run has ended; the host is still cut off."""


def _driver_urls(cluster: SparkCluster) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pid, application in cluster.executors().items():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            found.setdefault(application, set()).add(words[words.index("--driver-url") + 1])
    return found


def _tell(story: Story, jobmanager: subprocess.Popen[bytes]) -> None:
    site, cluster = story.site, story.cluster
    for job in JOBS:
        site.ticks(job, 1)
    story.both = {job: site.note_of(job, 1) for job in JOBS}
    story.names = sorted(cluster.state().names)
    story.driver_urls = _driver_urls(cluster)
    stays, lost = JOBS
    site.release(stays)
    story.alone = cluster.await_state(lambda state: len(state.names) == 1).names
    site.cut_off(story.both[lost]["host"])
    story.again = site.note_of(lost, 2)
    story.driver_lived = Path(f"/proc/{story.both[lost]['pid']}").exists()
    site.ticks(lost, 2)
    story.at_begin = cluster.state().names
    site.release(lost)
    story.code = jobmanager.wait(WHOLE_S)
    story.at_end = cluster.state().names
    story.values = json.loads((site.place / "values.json").read_text())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Run two jobs in drivers on two hosts; cut one host off, with the job on it."""
    place = tmp_path_factory.mktemp("hosts")
    with running(place, "hosts", JOBS) as (site, cluster, jobmanager):
        found = Story(site, cluster)
        _tell(found, jobmanager)
        yield found


def test_jobs_run_in_drivers_on_both_hosts_at_once(story: Story) -> None:
    addresses = {story.site.network.address(host) for host in DRIVERS}

    assert addresses == {note["host"] for note in story.both.values()}
    assert [f"hosts / {job} #1" for job in JOBS] == story.names


def test_executors_reach_each_driver_at_the_address_of_its_host(story: Story) -> None:
    expected = {
        note["application"]: {f"spark://CoarseGrainedScheduler@{note['host']}:{note['port']}"}
        for note in story.both.values()
    }

    assert expected == story.driver_urls
    assert [] == [
        note for note in story.both.values() if note["blocks"].partition(":")[0] != note["host"]
    ]


def test_the_job_of_a_host_that_is_cut_off_runs_again_on_the_other_one(story: Story) -> None:
    stays, lost = JOBS

    assert story.both[stays]["host"] == story.again["host"]
    assert [(stays, 1), (lost, 1), (lost, 2)] == sorted(
        (note["job"], note["attempt"]) for note in story.site.notes()
    )
    assert not story.driver_lived


def test_the_results_are_right(story: Story) -> None:
    shuffled = {str(key): EACH for key in range(KEYS)}

    assert 0 == story.code, story.site.story()
    assert dict.fromkeys(JOBS, shuffled) == story.values


def test_the_spark_application_of_the_lost_attempt_is_ended_first(story: Story) -> None:
    """Of the loss the Master has not heard: an orphan's last words go nowhere."""
    _, lost = JOBS
    host = next(one for one in DRIVERS if story.site.network.address(one) == story.again["host"])
    application = story.both[lost]["application"]

    assert [f"hosts / {lost} #1"] == story.alone
    assert f"{application} (hosts / {lost} #1) has outlived its driver" in story.site.said(host)
    assert [f"hosts / {lost} #2"] == story.at_begin
    assert [] == story.at_end


def test_the_cluster_is_idle_at_the_end(story: Story) -> None:
    state = story.cluster.await_idle()

    assert (0, ()) == (state.cores_used, state.active)
