"""What ``main`` is warned of, and what it passes on."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from understudy.application.environment import Environment
from understudy.core.matching import Assignment
from understudy.errors import SubmissionError
from understudy.ha.format import digest
from understudy.model import JobId, JobStatus, Pointer
from understudy.process.plans import decode_plan
from understudy.rpc import messages
from understudy.rpc.messages import MainMessage

Submit = Callable[[Environment], object]


class Accepting:
    """A link that accepts each job and knows each result; see `MainLink`."""

    execution = 1

    def request(self, message: Callable[[int], MainMessage]) -> MainMessage:
        """See `MainLink.request`."""
        asked = message(1)
        if isinstance(asked, messages.Submit):
            return messages.Accepted(request=1, past={})
        return messages.JobDone(
            request=1, status=JobStatus.FINISHED, attempt=1, start_time=0, end_time=1, value=b"1"
        )

    def tell(self, message: MainMessage) -> None:
        """See `MainLink.tell`."""

    def put_plan(self, job_id: JobId, plan: bytes) -> Pointer:
        """See `MainLink.put_plan`."""
        self.plan = plan
        return Pointer(path="plan", digest=digest(plan), size=len(plan))


def job(ctx: Any) -> int:
    return 1


def awaited(env: Environment) -> object:
    return env.execute(job, name="twin")


def submitted(env: Environment) -> object:
    return env.execute_async(job, name="twin")


@pytest.mark.parametrize("submit", [awaited, submitted])
def test_a_warning_names_the_line_of_main_that_submits(submit: Submit) -> None:
    env = Environment(Accepting(), Assignment("a" * 32))
    submit(env)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        submit(env)
    line = inspect.getsourcelines(submit)[1] + 1

    assert [(__file__, line)] == [(one.filename, one.lineno) for one in told]


class BrokenError(Exception):
    """An exception of this module."""


@pytest.mark.parametrize(
    ("no_retry", "expected"),
    [
        (None, None),
        ((), ()),
        ([KeyError, "my.Error"], ("builtins.KeyError", "my.Error")),
        ((BrokenError,), (f"{__name__}.BrokenError",)),
    ],
)
def test_a_plan_holds_what_its_job_does_not_retry(
    no_retry: Any, expected: tuple[str, ...] | None
) -> None:
    link = Accepting()
    Environment(link, Assignment("a" * 32)).execute(job, no_retry=no_retry)
    pointer = Pointer(path="plan", digest=digest(link.plan), size=len(link.plan))

    assert expected == decode_plan(link.plan, pointer).no_retry


@pytest.mark.parametrize("no_retry", ["KeyError", KeyError, 1, (1,), ("",), (int,)])
def test_what_names_no_exceptions_is_refused_before_anything_runs(no_retry: Any) -> None:
    env = Environment(Accepting(), Assignment("a" * 32))

    with pytest.raises(SubmissionError, match="no_retry"):
        env.execute(job, no_retry=no_retry)
