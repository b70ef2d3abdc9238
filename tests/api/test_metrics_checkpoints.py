"""Metrics of checkpoints: of all jobs together."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.api.test_metrics import manager, of, only
from tests.ha import ground
from tests.support.virtual_time import run_virtual
from understudy.core.job import Phase
from understudy.model import ApplicationStatus, Checkpoint, CheckpointKind, Checkpoints

LAST = ("number", "age_seconds", "duration_seconds", "size_bytes")


def linked(*jobs: tuple[Checkpoints, bool]) -> Any:
    """Return what a leader has: an application with jobs of these checkpoints; some have ended."""

    def master(body: Checkpoints, over: bool) -> SimpleNamespace:
        done = asyncio.Event()
        if over:
            done.set()
        coordinator = SimpleNamespace(body=body)
        state = SimpleNamespace(phase=Phase.RUNNING, cancelled=False, ends_as=None)
        return SimpleNamespace(checkpoints=coordinator, done=done, state=state)

    masters = {number: master(body, over) for number, (body, over) in enumerate(jobs)}
    held = SimpleNamespace(masters=masters, entries={})
    stored = SimpleNamespace(body=SimpleNamespace(application_id=ground.APPLICATION))
    running = SimpleNamespace(jobs=held, stored=stored, status=ApplicationStatus.RUNNING)
    return {ground.APPLICATION: SimpleNamespace(application=running, cleanup=None)}


def recorded(job: int, *times: tuple[float, float, int]) -> Checkpoints:
    """Return what is recorded of a job: when each was completed, how long it took, its size."""
    kept = tuple(
        Checkpoint(
            kind=CheckpointKind.BATCH,
            name="q",
            attempt=1,
            number=number,
            completed_at=at,
            duration_s=took,
            size=size,
        )
        for number, (at, took, size) in enumerate(times, start=5)
    )
    return Checkpoints(
        application_id=ground.APPLICATION,
        job_id=ground.job(job).job_id,
        counter=4 + len(times),
        completed=kept,
        completed_total=4 + len(times),
        failed_total=job,
        restored_total=1,
    )


def test_checkpoints_are_told_of_all_jobs_together_and_the_last_of_those_that_go_on() -> None:
    async def story() -> dict[str, float]:
        one = manager()
        one.lead(1)
        now = one.around.clock.wall()
        assert one.term is not None
        one.term.dispatcher.applications = linked(
            (recorded(1, (now - 9, 1.0, 10), (now - 3, 0.5, 100)), False),
            (recorded(2, (now - 7, 0.25, 1000)), False),
            (recorded(3, (now - 900, 99.0, 9999), (now, 1, 1), (now, 1, 1)), True),
        )
        return of(one)

    actual = run_virtual(story())

    assert {"{state=completed}": 18, "{state=failed}": 6, "{state=restored}": 3} == only(
        actual, "understudy_checkpoints_total"
    )
    assert 6 == actual["understudy_checkpoints_retained{}"]
    last = {name: actual[f"understudy_checkpoint_last_{name}{{}}"] for name in LAST}
    assert {
        "number": 6,
        "age_seconds": pytest.approx(7),
        "duration_seconds": 0.5,
        "size_bytes": 1100,
    } == last


def test_of_a_last_checkpoint_nothing_is_told_where_there_is_none() -> None:
    async def story() -> dict[str, float]:
        one = manager()
        one.lead(1)
        assert one.term is not None
        one.term.dispatcher.applications = linked((recorded(1), False))
        return of(one)

    actual = run_virtual(story())

    assert 4 == actual["understudy_checkpoints_total{state=completed}"]
    assert not [name for name in actual if "checkpoint_last" in name]
