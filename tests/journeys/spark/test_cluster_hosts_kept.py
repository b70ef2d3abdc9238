"""The loss of a host whose driver had kept its executors for a later job, which ran there then.

On the cluster, the Spark application is called after the earlier job: the tag that it has from then
names the driver, too, and by that the later job finds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.journeys.harness import WHOLE_S
from tests.journeys.spark.hosts import DRIVERS, EACH, KEYS, MARKS, Note, Site, running

pytestmark = MARKS

EARLIER, OTHER, LATER = JOBS = ("earlier", "other", "later")
"""There are two slots: the third job has the driver of the first one, once that has ended."""


@dataclass
class Story:
    """What was seen of the run."""

    site: Site
    first: dict[str, Note] = field(default_factory=dict)
    """What each first attempt has noted."""
    again: Note = field(default_factory=dict)
    """What the second attempt of the later job has noted."""
    names: list[list[str]] = field(default_factory=list)
    """The Spark applications before the host is cut off, and while the second attempt's tasks
    tick."""
    code: int = -1
    values: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Cut off the host on which the later job runs."""
    place = tmp_path_factory.mktemp("kept")
    keep = ("-D", "taskmanager.executors.keep-idle=30min")
    with running(place, "kept", JOBS, *keep) as (site, cluster, jobmanager):
        found = Story(site)
        for job in (EARLIER, OTHER):
            site.ticks(job, 1)
        site.release(EARLIER)
        site.ticks(LATER, 1)
        found.first = {job: site.note_of(job, 1) for job in JOBS}
        found.names.append(sorted(cluster.state().names))
        site.release(OTHER)
        site.cut_off(found.first[LATER]["host"])
        site.ticks(LATER, 2)
        found.again = site.note_of(LATER, 2)
        found.names.append(cluster.state().names)
        site.release(LATER)
        found.code = jobmanager.wait(WHOLE_S)
        found.values = json.loads((site.place / "values.json").read_text())
        cluster.await_idle()
        yield found


def test_the_later_job_has_the_executors_of_the_earlier_one(story: Story) -> None:
    earlier, other, later = (story.first[job] for job in JOBS)

    assert (earlier["pid"], earlier["application"]) == (later["pid"], later["application"])
    assert earlier["host"] != other["host"]
    assert [f"kept / {EARLIER} #1", f"kept / {OTHER} #1"] == story.names[0]


def test_what_the_lost_driver_had_kept_is_ended_before_the_next_attempt_begins(
    story: Story,
) -> None:
    application = story.first[EARLIER]["application"]
    outlived = f"{application} (kept / {EARLIER} #1) has outlived its driver"
    host = next(one for one in DRIVERS if story.site.network.address(one) == story.again["host"])

    assert story.first[OTHER]["application"] == story.again["application"]
    assert [f"kept / {OTHER} #1"] == story.names[1]
    assert outlived in story.site.said(host)


def test_the_results_are_right(story: Story) -> None:
    shuffled = {str(key): EACH for key in range(KEYS)}

    assert 0 == story.code, story.site.story()
    assert dict.fromkeys(JOBS, shuffled) == story.values
