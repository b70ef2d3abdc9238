"""What REST answers to the wish to cancel an application or a job: Flink's codes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import Response

from understudy.api import answers
from understudy.api.leading import BuriedJob, Leading
from understudy.api.rest_applications import ApplicationRoutes
from understudy.api.rest_jobs import JobRoutes
from understudy.errors import NotFoundError
from understudy.model import ApplicationStatus, JobStatus

ONE = "a" * 32


class Led:
    """A leader that knows one application; see `Leading`."""

    def __init__(
        self, status: ApplicationStatus, *, executed: bool = True, recorded: bool = False
    ) -> None:
        self.cancelled = 0
        self._status = status
        running = SimpleNamespace(cancel=self._cancel) if executed else None
        self._recorded = recorded
        self.term = SimpleNamespace(
            dispatcher=SimpleNamespace(
                application=lambda name: running if name == ONE else None, attention={}
            )
        )

    async def application(self, wanted: str) -> Any:
        """See `Leading.application`."""
        if wanted != ONE:
            raise NotFoundError(f"Application {wanted} not found")
        return SimpleNamespace(status=self._status, body=SimpleNamespace(application_id=ONE))

    def json(self, body: object, status: int = 200) -> Response:
        """See `Leading.json`."""
        return answers.as_json(body, 1, status)

    async def _cancel(self, *, unless_recorded: bool) -> bool:
        if unless_recorded and self._recorded:
            return False
        self.cancelled += 1
        return True


def asked(led: Led, application: str = ONE, query: str = "") -> int:
    """Ask to cancel; return the code."""
    routes = {
        one.path: one.handler
        for one in ApplicationRoutes(cast("Leading", led)).routes()
        if one.method != "GET"
    }
    handler = routes["/applications/{application_id}/cancel"]
    request = Request(
        {
            "type": "http",
            "path_params": {"application_id": application},
            "query_string": query.encode(),
        }
    )
    return asyncio.run(_answer(handler, request)).status_code


async def _answer(handler: Any, request: Request) -> Response:
    answer: Response = await handler(request)
    return answer


@pytest.mark.parametrize(
    "status",
    [ApplicationStatus.CREATED, ApplicationStatus.RUNNING, ApplicationStatus.FAILING],
)
def test_what_runs_is_cancelled_and_that_is_accepted(status: ApplicationStatus) -> None:
    led = Led(status)

    assert 202 == asked(led)
    assert 1 == led.cancelled


@pytest.mark.parametrize(
    ("recorded", "query", "code"),
    [
        (True, "unless=recorded", 412),
        (False, "unless=recorded", 202),
        (True, "", 202),
        (True, "unless=whatever", 400),
    ],
)
def test_an_application_with_checkpoints_is_only_cancelled_by_who_means_it(
    recorded: bool, query: str, code: int
) -> None:
    led = Led(ApplicationStatus.RUNNING, recorded=recorded)

    assert code == asked(led, query=query)
    assert (code == 202) == bool(led.cancelled)


def test_cancelling_again_what_is_cancelled_is_accepted() -> None:
    led = Led(ApplicationStatus.CANCELED)

    assert 202 == asked(led)
    assert 0 == led.cancelled


@pytest.mark.parametrize("status", [ApplicationStatus.FINISHED, ApplicationStatus.FAILED])
def test_what_has_ended_otherwise_cannot_be_cancelled(status: ApplicationStatus) -> None:
    led = Led(status)

    assert 409 == asked(led)
    assert 0 == led.cancelled


def test_what_this_leader_does_not_execute_cannot_be_cancelled() -> None:
    assert 409 == asked(Led(ApplicationStatus.RUNNING, executed=False))


def test_an_unknown_application_cannot_be_cancelled() -> None:
    led = Led(ApplicationStatus.RUNNING)
    with pytest.raises(NotFoundError, match="not found"):  # `Rest` answers it with 404.
        asked(led, "b" * 32)

    assert 0 == led.cancelled


@pytest.mark.parametrize("buried", [False, True])
@pytest.mark.parametrize(
    ("status", "code"),
    [(JobStatus.CANCELED, 202), (JobStatus.FINISHED, 409), (JobStatus.FAILED, 409)],
)
def test_a_job_that_has_ended_is_as_cancelled_as_it_has_ended(
    status: JobStatus, code: int, buried: bool
) -> None:
    ended: Any = SimpleNamespace(status=status)
    facts = SimpleNamespace(entries={ONE: SimpleNamespace(result=ended)})
    there = SimpleNamespace(facts=facts, job_id=ONE)
    gone = BuriedJob(cast("Any", None), cast("Any", None), ended)

    assert code == _asked_for_job(gone if buried else there)


def _asked_for_job(found: object) -> int:
    """Ask to cancel a job; return the code."""

    async def job(wanted: str) -> object:
        assert wanted == ONE
        return found

    services = SimpleNamespace(results=None)
    around = SimpleNamespace(services=services)
    led = SimpleNamespace(
        manager=SimpleNamespace(around=around),
        job=job,
        json=lambda body, code=200: answers.as_json(body, 1, code),
    )
    routes = JobRoutes(cast("Leading", led)).routes()
    handler = next(one.handler for one in routes if one.method == "PATCH")
    scope = {"type": "http", "path_params": {"job_id": ONE}, "query_string": b""}
    return asyncio.run(_answer(handler, Request(scope))).status_code
