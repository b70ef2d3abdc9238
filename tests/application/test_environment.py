"""What ``main`` is warned of, and what it passes on."""

from __future__ import annotations

import decimal
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import understudy
from understudy.application.environment import Environment, current
from understudy.application.job_client import JobClient, JobExecutionResult
from understudy.core import arguments
from understudy.core.ids import job_id
from understudy.core.matching import Assignment
from understudy.errors import JobStopped, SubmissionError
from understudy.ha.format import digest
from understudy.model import JobId, JobStatus, Pointer
from understudy.process import plans
from understudy.rpc import messages
from understudy.rpc.messages import MainMessage

Submit = Callable[[Environment], object]


class Accepting:
    """A link that accepts each job and knows each result; see `MainLink`."""

    execution = 1
    value = b"1"
    arguments: dict[str, str] | None = None
    """Digests that the job had before; None: those that it is submitted with."""

    def request(self, message: Callable[[int], MainMessage]) -> MainMessage:
        """See `MainLink.request`."""
        asked = message(1)
        if isinstance(asked, messages.Submit):
            self.submitted = asked
            known = asked.arguments if self.arguments is None else self.arguments
            return messages.Accepted(request=1, arguments={asked.job_id: known})
        return messages.JobDone(
            request=1,
            status=JobStatus.FINISHED,
            attempt=1,
            start_time=0,
            end_time=1,
            value=self.value,
        )

    def send(self, message: MainMessage) -> None:
        """See `MainLink.send`."""

    def put_plan(self, job_id: JobId, plan: bytes) -> Pointer:
        """See `MainLink.put_plan`."""
        self._plan = plan
        return Pointer(path="plan", digest="", size=len(plan))

    def plan(self) -> plans.Plan:
        """Return the last plan."""
        return plans.decode_plan(
            self._plan, Pointer(path="plan", digest=digest(self._plan), size=0)
        )


def job(ctx: Any) -> int:
    return 1


@understudy.job
def twin(ctx: Any) -> int:
    return 1


def awaited(env: Environment) -> object:
    return env.execute(job, name="twin")


def submitted(env: Environment) -> object:
    return env.execute_async(job, name="twin")


def test_main_gets_a_value_with_its_types() -> None:
    link = Accepting()
    link.value = b'{"total":{"!decimal":"1.10"},"range":{"!tuple":[1,2]}}'
    expected = {"total": decimal.Decimal("1.10"), "range": (1, 2)}

    actual: object = Environment(link, Assignment("a" * 32)).execute(job).value

    assert expected == actual


def test_a_job_that_was_stopped_with_a_savepoint_has_no_value() -> None:
    done = messages.JobDone(
        request=1,
        status=JobStatus.FINISHED,
        attempt=1,
        start_time=0,
        end_time=1,
        value=b"null",
        savepoint="/kept/savepoint-1",
        stopped=True,
    )
    result: JobExecutionResult[object] = JobClient(
        Accepting(), JobId("a" * 32), "load", done
    ).result()

    assert (True, "/kept/savepoint-1") == (result.stopped, result.savepoint)
    with pytest.raises(
        JobStopped, match=r"job 'load' was stopped .* --from-savepoint /kept/savepoint-1;"
    ):
        _ = result.value


def decorated(env: Environment) -> object:
    current.set(env)
    try:
        return twin.run()
    finally:
        current.set(None)


def in_parallel(env: Environment) -> object:
    with env.parallel() as jobs:
        return jobs.submit(twin)


def in_parallel_with_options(env: Environment) -> object:
    with env.parallel() as jobs:
        return jobs.options(name="twin").submit(job)


def with_options(env: Environment) -> object:
    return env.options(name="twin").execute(job)


def whole(env: Environment) -> object:
    current.set(env)
    try:
        return understudy.run(int)
    finally:
        current.set(None)


LINES: dict[Submit, int] = {
    awaited: 1,
    submitted: 1,
    with_options: 1,
    decorated: 3,
    whole: 3,
    in_parallel: 2,
    in_parallel_with_options: 2,
}
"""Ways to submit a job, each with its line that does."""


@pytest.mark.parametrize("submit", LINES)
def test_a_warning_names_the_line_of_main_that_submits(submit: Submit) -> None:
    env = Environment(Accepting(), Assignment("a" * 32))
    submit(env)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        submit(env)
    line = inspect.getsourcelines(submit)[1] + LINES[submit]

    assert [(__file__, line)] == [(one.filename, one.lineno) for one in told]


def load(ctx: Any, path: str, *parts: int, mode: str = "append", **options: object) -> int:
    return 1


def loaded(env: Environment, *args: Any, **kwargs: Any) -> object:
    return env.execute(load, *args, **kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs", "named"),
    [
        (("x", 1), {"since": "now"}, ""),
        (("x", 1), {"mode": "append", "since": "now"}, ""),
        (("x", 2), {"mode": "overwrite", "since": "now"}, "`parts[0]`, `mode`"),
        (("x", 1), {"since": "later"}, "`since`"),
        (("y", 1, 2), {"since": "now"}, "`path`, `parts[1]`"),
        (("x", object()), {"since": object()}, ""),
    ],
)
def test_arguments_that_differ_from_those_of_an_earlier_execution_are_named_at_the_line(
    args: tuple[Any, ...], kwargs: dict[str, Any], named: str
) -> None:
    first = Accepting()
    loaded(Environment(first, Assignment("a" * 32)), "x", 1, since="now")
    again = Accepting()
    again.arguments = first.submitted.arguments
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loaded(Environment(again, Assignment("a" * 32)), *args, **kwargs)
    line = inspect.getsourcelines(loaded)[1] + 1
    expected = f"job 'load': this execution of main passes another value of {named} than an earlier"

    assert ([(__file__, line)] if named else []) == [(one.filename, one.lineno) for one in told]
    assert all(str(one.message).startswith(expected) for one in told)


def test_a_job_whose_result_is_known_already_is_compared_too() -> None:
    class Knowing(Accepting):
        def request(self, message: Callable[[int], MainMessage]) -> MainMessage:
            accepted, asked = super().request(message), message(1)
            if not isinstance(asked, messages.Submit):
                return accepted
            done = super().request(lambda _: messages.AwaitJob(request=1, job_id=asked.job_id))
            assert isinstance(done, messages.JobDone)
            ids = [job_id(asked_of, "load", number) for number in (0, 1)]
            known = arguments.digests({"path": "old"})
            return messages.Accepted(
                request=1, past=dict.fromkeys(ids, done), arguments=dict.fromkeys(ids, known)
            )

    asked_of = "a" * 32
    env = Environment(Knowing(), Assignment(asked_of))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            env.execute(one_path, "new", name="load")

    assert 2 == sum("another value of `path`" in str(one.message) for one in told)


def one_path(ctx: Any, path: str) -> int:
    return 1


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

    assert expected == link.plan().no_retry


@pytest.mark.parametrize("no_retry", ["KeyError", KeyError, 1, (1,), ("",), (int,)])
def test_what_names_no_exceptions_is_refused_before_anything_runs(no_retry: Any) -> None:
    env = Environment(Accepting(), Assignment("a" * 32))

    with pytest.raises(SubmissionError, match="no_retry"):
        env.execute(job, no_retry=no_retry)
