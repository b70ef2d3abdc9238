"""Metrics of real processes: each answers for itself, and what happens is counted."""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.journeys.conftest import Start
from tests.journeys.harness import PATIENCE_S

Samples = dict[str, float]


def scrape(url: str) -> Samples:
    """Return all samples of a process; labels stand behind a name, sorted, as in a=b,c=d."""
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    return {
        " ".join((sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items())))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def until(url: str, holds: Callable[[Samples], bool]) -> Samples:
    """Scrape again until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds(samples := scrape(url)):
        assert time.monotonic() < deadline, samples
        time.sleep(0.05)
    return samples


def test_leader_standby_and_taskmanager_are_scraped_while_driver_and_leader_are_killed(
    start: Start, nothing_left: Callable[[], None]
) -> None:
    run = start("three.py", standbys=1)
    run.running("second job")
    status = run.standby_is_ready()
    leader, (standby,) = status["leader"], status["standbys"]
    taskmanager, slot = run.busy()
    told = run.of("taskmanager-started")[0]["metrics"]

    assert told == taskmanager["metrics"]
    assert told.startswith("http://127.0.0.1:")
    before = until(leader["rest"] + "/metrics", lambda one: one["understudy_standbys_ready"] == 1)
    aside = scrape(standby["rest"] + "/metrics")
    worker = scrape(told)
    assert [1, leader["term"], 0] == [
        before[f"understudy_{name}"] for name in ("leading", "term", "takeovers_total")
    ]
    assert [1, 1, 1, 1] == [
        before["understudy_jobs state=FINISHED"],
        before["understudy_jobs state=RUNNING"],
        before["understudy_slots state=busy"],
        before["understudy_applications state=RUNNING"],
    ]
    assert before["understudy_register_operation_seconds_count outcome=ok verb=swap"] > 3
    assert [0, leader["term"]] == [aside["understudy_leading"], aside["understudy_term"]]
    assert "understudy_jobs state=RUNNING" not in aside
    assert aside["process_resident_memory_bytes"] > 1_000_000
    assert [1, 1, 2, 1] == [
        worker["understudy_taskmanager_registered"],
        worker["understudy_taskmanager_attempts_running"],
        worker["understudy_taskmanager_attempts_total"],
        worker["understudy_taskmanager_attempt_ends_total status=finished"],
    ]

    os.kill(slot["driver_pid"], signal.SIGKILL)
    run.running("second job", attempt=2)
    worker = scrape(told)
    assert [1, 1, 3] == [
        worker["understudy_taskmanager_driver_ends_total reason=died"],
        worker["understudy_taskmanager_attempt_ends_total status=lost"],
        worker["understudy_taskmanager_attempts_total"],
    ]
    assert scrape(leader["rest"] + "/metrics")["understudy_job_restarts_total"] == 1

    os.kill(leader["pid"], signal.SIGKILL)
    takeover = run.wait("takeover")
    after = scrape(standby["rest"] + "/metrics")
    assert [1, 1, leader["term"] + 1, 1] == [
        after[f"understudy_{name}"] for name in ("leading", "takeovers_total", "term")
    ] + [after["understudy_takeover_jobs_total fate=adopted"]]
    assert abs(after["understudy_takeover_seconds_sum"] - takeover["seconds"]) < 1e-3
    assert after["understudy_job_restarts_total"] == 1
    until(told, lambda one: one["understudy_term"] == leader["term"] + 1)

    run.release()
    assert run.finish() == 0
    nothing_left()


@pytest.mark.long  # Units: tests/api/test_metrics_taskmanager.py.
def test_several_taskmanagers_of_one_host_have_a_port_each_and_nobody_must_have_one(
    start: Start,
) -> None:
    run = start("three.py", options=["--taskmanagers", "2"])
    found = [run.wait("taskmanager-started")["metrics"] for _ in range(2)]
    names = {
        name for url in found for name in scrape(url) if name.startswith("understudy_info cluster")
    }
    run.release()

    assert run.finish() == 0
    assert len(set(found)) == 2
    assert len(names) == 2


@pytest.mark.long  # Units: tests/api/test_metrics_taskmanager.py.
def test_without_reporters_nothing_listens_and_the_run_is_the_same(start: Start) -> None:
    run = start("three.py", options=["-D", "metrics.reporters="])
    told = run.wait("taskmanager-started")["metrics"]
    run.running("second job")
    shown = run.get("/taskmanagers")["taskmanagers"][0]["metrics"]
    run.release()

    assert (None, None) == (told, shown)
    assert run.finish() == 0
