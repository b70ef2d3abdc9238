"""``@understudy.job``: a function that knows its options as a job, and can submit itself.

The decorated function stays a plain function: it can be called, pickled and documented as before.
Its options, `run` and `submit` are attributes of the function, so they travel with it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from understudy.application.environment import get_environment
from understudy.application.job_client import JobClient, JobExecutionResult
from understudy.application.job_function import DECLARED, CallsOfJob
from understudy.application.settings import NoRetry, job_settings
from understudy.errors import SubmissionError
from understudy.process.failures import shown

if TYPE_CHECKING:
    from understudy.driver.context import JobContext

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Job(Protocol[P, R_co]):
    """What `understudy.job` makes of a function: the same function, with `run` and `submit`."""

    __name__: str

    def __call__(self, ctx: JobContext, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here and now, as any function: no job runs."""
        ...

    def run(self, *args: P.args, **kwargs: P.kwargs) -> JobExecutionResult[R_co]:
        """Run the job to its end and return its result; raises as `Environment.execute` does."""
        ...

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobClient[R_co]:
        """Submit the job and return at once; see `Environment.execute_async`."""
        ...


class Decorate(Protocol):
    """What `understudy.job` with options returns: it takes the function."""

    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> Job[P, R]:
        """Return the function, decorated."""
        ...


@overload
def job(function: Callable[Concatenate[JobContext, P], R], /) -> Job[P, R]: ...


@overload
def job(
    *,
    name: str | None = None,
    retries: int | None = None,
    no_retry: NoRetry | None = None,
    timeout: str | None = None,
) -> Decorate: ...


def job(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retries: int | None = None,
    no_retry: NoRetry | None = None,
    timeout: str | None = None,
) -> Any:
    """Give a function its options as a job, and the methods ``run`` and ``submit``.

    ::

        @understudy.job(name="load", retries=2, timeout="2 h")
        def load(ctx: understudy.JobContext, path: str) -> dict[str, int]: ...

        rows = load.run("x.csv").value      # runs the job to its end
        later = load.submit("x.csv")        # a JobClient, at once

    The function can still be called directly, ``load(ctx, "x.csv")``, and given to
    `Environment.execute`. Options that are given there replace these:

    - ``name`` identifies the job across failovers; the default is the function's name.
    - ``retries``: how often the job is retried after exceptions of the function. The limit replaces
      the restart strategy's, whose pauses stay; ``0`` never retries. The loss of a driver is not an
      exception and does not count.
    - ``no_retry`` replaces ``restart-strategy.no-retry``: the exceptions that are not retried, as
      classes or their names.
    - ``timeout``: how long the function may run in one attempt, such as ``"2 h"``. A job that
      exceeds it fails without a retry.

    Write the decorator above all others. Raises `SubmissionError` for a wrong option.
    """
    settings = job_settings(name, no_retry, retries, timeout)

    def decorate(decorated: object) -> FunctionType:
        if not isinstance(decorated, FunctionType):
            raise SubmissionError(
                f"understudy.job decorates a function, but got {shown(decorated)}: write "
                "@understudy.job(name=…) above `def`, and above other decorators"
            )
        calls = _Calls(decorated, settings)
        for attribute, value in (
            (DECLARED, settings),
            ("run", calls.run),
            ("submit", calls.submit),
        ):
            setattr(decorated, attribute, value)
        return decorated

    return decorate if function is None else decorate(function)


class _Calls(CallsOfJob):
    """The methods of a decorated function."""

    def run(self, *args: Any, **kwargs: Any) -> JobExecutionResult[Any]:
        """Run the job to its end and return its result; raises as `Environment.execute` does."""
        return get_environment()._begin(self._function, args, kwargs, self._settings).result()

    def submit(self, *args: Any, **kwargs: Any) -> JobClient[Any]:
        """Submit the job and return at once; see `Environment.execute_async`."""
        return get_environment()._begin(self._function, args, kwargs, self._settings)
