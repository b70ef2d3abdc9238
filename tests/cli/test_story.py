"""The story of one run, where its cluster executes others, too."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.cli.launch import story
from understudy.cli.launch.story import Story


def clock() -> float:
    return 7.0


def status(run: str, state: str = "RUNNING") -> dict[str, Any]:
    about = {"application_id": f"id of {run}", "run_id": run, "status": state}
    return {"event": "application-status", **about}


def ended(run: str) -> dict[str, Any]:
    about: dict[str, Any] = {"run_id": run, "status": "FINISHED", "failure": None, "jobs": []}
    return {"event": "application-finished", **about}


def job(number: int, state: str) -> dict[str, Any]:
    about = {"job_id": f"job {number}", "name": "n", "status": state, "attempt": 1}
    return {"event": "job-status", **about, "adopted": False}


def test_the_end_of_another_application_is_not_that_of_the_own_run() -> None:
    told = Story(clock, clock, own="mine")
    told.hear(status("mine"))
    told.hear(status("other"))
    passed_on = told.hear(ended("other"))
    before = told.finished
    told.hear(ended("mine"))

    assert passed_on is not None
    assert before is None
    assert ("mine", "FINISHED") == (told.run_id, told.status)
    assert told.finished is not None
    assert "mine" == told.finished["run_id"]


def test_the_own_run_counts_though_another_one_was_heard_of_first() -> None:
    told = Story(clock, clock, own="mine")
    for event in (status("other"), status("mine"), status("other", "CANCELED")):
        told.hear(event)

    assert ("mine", "RUNNING", "id of mine") == (told.run_id, told.status, told.application_id)


def test_a_start_that_lost_the_race_follows_the_run_that_won() -> None:
    told = Story(clock, clock, own="lost")
    told.hear(status("won"))
    told.hear(ended("won"))

    assert told.finished is not None


def test_each_end_is_told_once() -> None:
    told = Story(clock, clock)
    heard = [told.hear(ended(run)) for run in ("one", "two", "one", "two")]

    assert [True, True, False, False] == [one is not None for one in heard]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "REMEMBERED_MAX", 10)
    told = Story(clock, clock)
    for number in range(100):
        told.hear(job(number, "RUNNING"))
        told.hear(job(number, "FINISHED"))

    assert 10 == len(told.jobs) == len(told._told)
    assert told.hear(job(99, "FINISHED")) is None
