"""The calls by which ``main`` submits jobs, typed: mypy and pyright find wrong arguments.

`execute` and `execute_async` take the job's own ``name`` and ``no_retry`` beside the arguments of
the function, which one signature cannot describe. The overloads describe, in this order: calls
without these two options; with positional arguments only; with keywords only; with one to three
positional arguments and keywords. In the last two kinds, type checkers do not see the keywords.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
    TypeVarTuple,
    overload,
)

from understudy.application.job_client import JobClient, JobExecutionResult
from understudy.application.job_function import check_own_name
from understudy.application.settings import JobSettings, NoRetry, job_settings

if TYPE_CHECKING:
    from understudy.driver.context import JobContext

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
Args = TypeVarTuple("Args")


class Submitter(Protocol):
    """Submits a job."""

    def __call__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        settings: JobSettings,
    ) -> JobClient[Any]:
        """Raise `SubmissionError` where the job is refused."""
        ...


class Calls:
    """The calls of an environment; a subclass submits."""

    def _begin(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        settings: JobSettings,
    ) -> JobClient[Any]:
        raise NotImplementedError

    @overload
    def execute(
        self,
        function: Callable[Concatenate[JobContext, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> JobExecutionResult[R]: ...

    @overload
    def execute(
        self,
        function: Callable[[JobContext, *Args], R],
        /,
        *args: *Args,
        name: str | None = None,
        no_retry: NoRetry | None = None,
    ) -> JobExecutionResult[R]: ...

    @overload
    def execute(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[Concatenate[JobContext, ...], R],
        /,
        *,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobExecutionResult[R]: ...

    @overload
    def execute(
        self,
        function: Callable[Concatenate[JobContext, A, ...], R],
        a: A,
        /,
        *,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobExecutionResult[R]: ...

    @overload
    def execute(
        self,
        function: Callable[Concatenate[JobContext, A, B, ...], R],
        a: A,
        b: B,
        /,
        *,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobExecutionResult[R]: ...

    @overload
    def execute(
        self,
        function: Callable[Concatenate[JobContext, A, B, C, ...], R],
        a: A,
        b: B,
        c: C,
        /,
        *,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobExecutionResult[R]: ...

    def execute(  # type: ignore[misc]  # The overloads say more than one signature can.
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobExecutionResult[Any]:
        """Run a job to its end and return its result.

        A driver calls ``function(ctx, *args, **kwargs)``. cloudpickle must be able to pickle the
        function and its arguments; ``docs/jobs.md`` lists the types that it may return. ``name``
        identifies the job across failovers; the default is the function's name. ``no_retry``
        replaces ``restart-strategy.no-retry`` for this job: the exceptions of the function that
        fail it at once, as classes or their names; ``()`` leaves each to the restart strategy.
        `options` has further options, and leaves every argument to the function.

        Raises `JobFailed` or `JobCanceled`, `ResultUnavailable`, and `SubmissionError` before
        anything has run.
        """
        check_own_name(function, args, name)
        return self._begin(function, args, kwargs, job_settings(name, no_retry)).result()

    @overload
    def execute_async(
        self,
        function: Callable[Concatenate[JobContext, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> JobClient[R]: ...

    @overload
    def execute_async(
        self,
        function: Callable[[JobContext, *Args], R],
        /,
        *args: *Args,
        name: str | None = None,
        no_retry: NoRetry | None = None,
    ) -> JobClient[R]: ...

    @overload
    def execute_async(  # type: ignore[overload-cannot-match]
        self,
        function: Callable[Concatenate[JobContext, ...], R],
        /,
        *,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobClient[R]: ...

    @overload
    def execute_async(
        self,
        function: Callable[Concatenate[JobContext, A, ...], R],
        a: A,
        /,
        *,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobClient[R]: ...

    @overload
    def execute_async(
        self,
        function: Callable[Concatenate[JobContext, A, B, ...], R],
        a: A,
        b: B,
        /,
        *,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobClient[R]: ...

    @overload
    def execute_async(
        self,
        function: Callable[Concatenate[JobContext, A, B, C, ...], R],
        a: A,
        b: B,
        c: C,
        /,
        *,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobClient[R]: ...

    def execute_async(  # type: ignore[misc]
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobClient[Any]:
        """Submit a job and return at once; from then on the job survives any failover.

        The arguments are those of `execute`. Raises `SubmissionError` where the job is refused.
        """
        check_own_name(function, args, name)
        return self._begin(function, args, kwargs, job_settings(name, no_retry))

    def options(
        self,
        *,
        name: str | None = None,
        retries: int | None = None,
        no_retry: NoRetry | None = None,
        timeout: str | None = None,
    ) -> JobOptions:
        """Return what submits jobs with these options, apart from the arguments of the function.

        ``env.options(name="train lr").execute(train, data, name="lr")`` names the job ``train lr``,
        and calls ``train(ctx, data, name="lr")``. The options, and the errors, are those of
        `understudy.job`; an option that is given here replaces the decorator's.
        """
        return JobOptions(self._begin, job_settings(name, no_retry, retries, timeout))


class JobOptions:
    """Submits jobs with given options; see `Environment.options`. Each argument is the function's.

    Raises as `Environment.execute` does.
    """

    def __init__(self, begin: Submitter, settings: JobSettings) -> None:
        self._begin = begin
        self._settings = settings

    def execute(
        self,
        function: Callable[Concatenate[JobContext, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> JobExecutionResult[R]:
        """Run a job to its end and return its result; see `Environment.execute`."""
        return self._begin(function, args, kwargs, self._settings).result()

    def execute_async(
        self,
        function: Callable[Concatenate[JobContext, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> JobClient[R]:
        """Submit a job and return at once; see `Environment.execute_async`."""
        return self._begin(function, args, kwargs, self._settings)
