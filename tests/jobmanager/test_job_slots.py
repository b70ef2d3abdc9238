"""The jobs of an application as tenant: from when, and which ends are of no further use."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ha import ground
from tests.jobmanager.test_resource_manager import ended
from understudy.jobmanager.application import Application
from understudy.jobmanager.job_slots import JobSlots

RUNS, OVER = None, object()


@pytest.mark.parametrize(
    ("stored", "settled"),
    [
        ({}, True),
        ({"1": (1, RUNS)}, False),
        ({"1": (1, OVER)}, True),
        ({"1": (2, RUNS)}, True),
        ({"1": (0, RUNS)}, False),
    ],
    ids=["no such job", "of the present attempt", "it has a result", "retried", "of a later one"],
)
def test_an_end_is_settled_by_the_stored_job(
    stored: dict[str, tuple[int, object]], settled: bool
) -> None:
    entries = {
        job_id: SimpleNamespace(attempt=attempt, result=result)
        for job_id, (attempt, result) in stored.items()
    }
    context = SimpleNamespace(
        record=ground.record(), incarnation="", directory="", ended_runs=tuple
    )
    jobs: Any = SimpleNamespace(entries=entries, context=context)

    assert settled == JobSlots(jobs).is_settled(ended())


class EndedError(Exception):
    """The execution goes no further here."""


def test_an_application_takes_taskmanagers_in_once_its_jobs_have_masters() -> None:
    done: list[str] = []

    def begin(work: Coroutine[Any, Any, None]) -> None:
        work.close()
        raise EndedError

    async def nothing() -> None:
        pass

    async def main() -> None:
        application: Any = SimpleNamespace(
            _group=asyncio.TaskGroup(),
            _recover=lambda: done.append("recovers"),
            _end_main=nothing,
            context=SimpleNamespace(resources=SimpleNamespace(serve=done.append)),
            slots="serves",
            served=SimpleNamespace(set=lambda: done.append("is known to be served")),
            _hold_turn=nothing,
            _spawn=begin,
        )
        with pytest.raises(ExceptionGroup) as caught:
            await Application.run(application)

        assert caught.group_contains(EndedError)

    asyncio.run(main())

    assert ["recovers", "serves", "is known to be served"] == done
