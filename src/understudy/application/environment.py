"""The public API of ``main``: the environment, job clients and results.

The same class serves in a cluster and under plain ``python app.py``; only the link differs. All
calls block the calling thread, and any thread may call. Functions, arguments and values pass
through the same pickling and JSON everywhere, so code that works in one mode works in the other.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from understudy import errors
from understudy.application.job_function import check_function, check_own_name
from understudy.core import matching
from understudy.core.matching import Assigned, Assignment
from understudy.core.values import decode_value
from understudy.errors import JobCanceled, JobFailed, JobStopped, SubmissionError, UnderstudyError
from understudy.model import JobId, JobStatus, Pointer
from understudy.process import plans
from understudy.process.failures import shown
from understudy.process.user_code import is_main_process, running_job
from understudy.rpc import messages
from understudy.rpc.messages import MainMessage

_TO_MAIN = 4
"""Frames from a warning in `Environment._assign` to the calling line of ``main``."""

NoRetry = Iterable[type[BaseException] | str]
"""Classes of exceptions, or their names, with or without the module."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobExecutionResult:
    """The result of a finished job, or of one that was stopped with a savepoint.

    Attributes:
        job_id: the job's id, 32 hexadecimal digits.
        attempt: the number of the attempt that finished, from 1.
        start_time: when that attempt started, in seconds since 1970.
        end_time: when that attempt ended, in seconds since 1970.
        checkpoint: the location of the last completed checkpoint, if retained; else None.
        savepoint: the location of the savepoint that stopped the job, if any; else None.
        stopped: a person stopped the job with that savepoint before it had a value.
        name: the job's name.
    """

    _value: Any
    job_id: str
    attempt: int
    start_time: float
    end_time: float
    checkpoint: str | None = None
    savepoint: str | None = None
    stopped: bool = False
    name: str = ""

    @property
    def value(self) -> Any:
        """Return what the function returned, with its types (``docs/jobs.md``).

        Raises `JobStopped` if the job was stopped with a savepoint.
        """
        if self.stopped:
            raise JobStopped(
                f"job {self.name!r} was stopped with a savepoint before it had a value: go on from "
                f"it with --from-savepoint {self.savepoint}; or let main ask `result.stopped` first"
            )
        return self._value

    @property
    def duration(self) -> float:
        """Return the run time of the last attempt, in seconds."""
        return self.end_time - self.start_time


class MainLink(Protocol):
    """The connection from ``main`` to its JobManager."""

    execution: int
    """Number of this execution of ``main``, from 1."""

    def request(self, message: Callable[[int], MainMessage]) -> MainMessage:
        """Send the message made for a new request number, and wait for the answer."""
        ...

    def tell(self, message: MainMessage) -> None:
        """Send a message without an answer."""
        ...

    def put_plan(self, job_id: JobId, plan: bytes) -> Pointer:
        """Store a plan's bytes durably."""
        ...


class JobClient:
    """A handle to a submitted job."""

    def __init__(
        self, link: MainLink, job_id: JobId, name: str, done: messages.JobDone | None = None
    ) -> None:
        self._link = link
        self._job_id = job_id
        self._name = name
        self._done = done

    @property
    def job_id(self) -> str:
        """Return the job's id, 32 hexadecimal digits."""
        return self._job_id

    @property
    def name(self) -> str:
        """Return the job's name."""
        return self._name

    def status(self) -> str:
        """Return the job's status in Flink's words, such as ``RUNNING`` or ``FINISHED``."""
        answer = self._link.request(
            lambda number: messages.AskStatus(request=number, job_id=self._job_id)
        )
        status: JobStatus = _expect(answer, messages.StatusIs).status
        return status.value

    def result(self) -> JobExecutionResult:
        """Wait for the job's end and return its result.

        Raises `JobFailed` with the remote traceback, or `JobCanceled`.
        """
        done = self._done or self._await()
        if done.status is JobStatus.FINISHED:
            return JobExecutionResult(
                decode_value(done.value),
                self._job_id,
                done.attempt,
                done.start_time,
                done.end_time,
                done.checkpoint or None,
                done.savepoint or None,
                done.stopped,
                self._name,
            )
        raise _failed(done, self._job_id, self._name)

    def _await(self) -> messages.JobDone:
        answer = self._link.request(
            lambda number: messages.AwaitJob(request=number, job_id=self._job_id)
        )
        done: messages.JobDone = _expect(answer, messages.JobDone)
        return done

    def cancel(self) -> None:
        """Cancel the job; returns once the request is durable. `result` waits for the end."""
        answer = self._link.request(
            lambda number: messages.CancelJob(request=number, job_id=self._job_id)
        )
        _expect(answer, messages.Accepted)

    def __repr__(self) -> str:
        """Return a text with the job's id and name."""
        return f"JobClient(job_id={self._job_id!r}, name={self._name!r})"


class Environment:
    """The environment in which ``main`` submits jobs; see `understudy.get_environment`."""

    def __init__(self, link: MainLink, assignment: Assignment) -> None:
        self._link = link
        self._assignment = assignment
        self._submitting = threading.Lock()
        self._process = os.getpid()
        self._past: dict[JobId, messages.JobDone] = {}

    def __reduce__(self) -> NoReturn:
        raise TypeError("the environment belongs to main, a job gets a JobContext instead")

    def execute(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobExecutionResult:
        """Run a job to its end and return its result.

        A driver calls ``function(ctx, *args, **kwargs)``. cloudpickle must be able to pickle the
        function and its arguments; ``docs/jobs.md`` lists the types that it may return. ``name``
        identifies the job across failovers; the default is the function's name. ``no_retry``
        replaces ``restart-strategy.no-retry`` for this job: the exceptions of the function that
        fail it at once, as classes or their names; ``()`` leaves each to the restart strategy.

        Raises `JobFailed` or `JobCanceled`, and `SubmissionError` before anything has run.
        """
        check_own_name(function, args, name)
        return self._begin(function, args, name, kwargs, no_retry).result()

    def execute_async(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        no_retry: NoRetry | None = None,
        **kwargs: Any,
    ) -> JobClient:
        """Submit a job and return at once; from then on the job survives any failover."""
        check_own_name(function, args, name)
        return self._begin(function, args, name, kwargs, no_retry)

    def options(self, *, name: str | None = None, no_retry: NoRetry | None = None) -> JobOptions:
        """Return what submits jobs with these options, apart from the arguments of the function.

        ``env.options(name="train lr").execute(train, data, name="lr")`` names the job ``train lr``,
        and calls ``train(ctx, data, name="lr")``. The options have the meaning that they have in
        `execute`.
        """
        return JobOptions(self._begin, name, no_retry)

    def _begin(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        name: str | None,
        kwargs: dict[str, Any],
        no_retry: NoRetry | None,
    ) -> JobClient:
        """Submit a job; a direct call from each public method, as `_TO_MAIN` counts the frames."""
        self._check_caller()
        check_function(function)
        listed = _class_names(no_retry)
        with self._submitting:
            assigned = self._assign(matching.name_of(function, name))
            done = self._past.pop(assigned.job_id, None)
            if done:
                self._come_by(assigned)
                return JobClient(self._link, assigned.job_id, assigned.name, done)
            pointer = None
            if self._link.execution == 1:
                pointer = self._put_plan(assigned, function, args, kwargs, listed)
            answer = self._submit(assigned, pointer)
            if isinstance(answer, messages.NeedPlan):
                answer = self._submit(
                    assigned, self._put_plan(assigned, function, args, kwargs, listed)
                )
            accepted: messages.Accepted = _expect(answer, messages.Accepted)
            self._past = dict(accepted.past)
            done = self._past.pop(assigned.job_id, None)
        return JobClient(self._link, assigned.job_id, assigned.name, done)

    def _check_caller(self) -> None:
        """Raise `SubmissionError` for a caller that is not ``main``, as it would wait for ever."""
        if job := running_job():
            raise SubmissionError(
                f"job {job!r} cannot submit jobs: main does, and may branch on what the job returns"
            )
        if os.getpid() != self._process:
            raise SubmissionError("only the process of main submits jobs, not one that it forked")

    def _assign(self, name: str) -> Assigned:
        self._assignment, assigned = matching.assign(self._assignment, name)
        if assigned.repeated:
            warnings.warn(
                f"two jobs are named {name!r}: after a failover they are told apart by the order "
                "of their submission only; give them different names",
                stacklevel=_TO_MAIN,
            )
        return assigned

    def _put_plan(
        self,
        assigned: Assigned,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        no_retry: tuple[str, ...] | None,
    ) -> Pointer:
        plan = plans.encode_plan(assigned.name, function, args, kwargs, no_retry)
        return self._link.put_plan(assigned.job_id, plan)

    def _come_by(self, assigned: Assigned) -> None:
        """Report the call of a job whose result is known already, without waiting for an answer."""
        told = messages.ComeBy(
            job_id=assigned.job_id, name=assigned.name, occurrence=assigned.occurrence
        )
        self._link.tell(told)

    def _submit(self, assigned: Assigned, plan: Pointer | None) -> MainMessage:
        return self._link.request(
            lambda number: messages.Submit(
                request=number,
                job_id=assigned.job_id,
                name=assigned.name,
                occurrence=assigned.occurrence,
                plan=plan,
            )
        )


class _Begin(Protocol):
    def __call__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        name: str | None,
        kwargs: dict[str, Any],
        no_retry: NoRetry | None,
    ) -> JobClient: ...


class JobOptions:
    """Submits jobs with given options; see `Environment.options`. Each argument is the function's.

    Raises as `Environment.execute` does.
    """

    def __init__(self, begin: _Begin, name: str | None, no_retry: NoRetry | None) -> None:
        self._begin = begin
        self._name = name
        self._no_retry = no_retry

    def execute(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> JobExecutionResult:
        """Run a job to its end and return its result; see `Environment.execute`."""
        return self._begin(function, args, self._name, kwargs, self._no_retry).result()

    def execute_async(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> JobClient:
        """Submit a job and return at once; see `Environment.execute_async`."""
        return self._begin(function, args, self._name, kwargs, self._no_retry)


class Elsewhere(Environment):
    """The environment of a process that is not ``main`` but imports modules that need one."""

    def __init__(self) -> None:
        """Create an environment without a link, as nothing can be submitted."""

    def _begin(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        name: str | None,
        kwargs: dict[str, Any],
        no_retry: NoRetry | None,
    ) -> JobClient:
        """Raise `SubmissionError`."""
        raise SubmissionError(
            "only main submits jobs, neither a job nor a process that main or a job has started"
        )


class Current:
    """The environment of this process, created at the first call."""

    def __init__(self) -> None:
        self._environment: Environment | None = None
        self._turn = threading.Lock()

    def get(self, make: Callable[[], Environment]) -> Environment:
        """Return the environment; create it by ``make`` if there is none yet."""
        with self._turn:
            if self._environment is None:
                self._environment = make()
            return self._environment

    def set(self, environment: Environment | None) -> None:
        """Set the environment of the process."""
        with self._turn:
            self._environment = environment


current = Current()


def get_environment() -> Environment:
    """Return the environment in which ``main`` submits jobs; always the same within a process.

    Under ``understudy run-application`` (or a JobManager) the environment is the cluster; under
    plain ``python app.py`` it is a cluster within this process.
    """
    return current.get(_embed)


def _embed() -> Environment:
    if not is_main_process():
        return Elsewhere()
    # Imported only when needed: never by a process of ``main`` in a cluster.
    environment: Environment = importlib.import_module("understudy.embedded").embed()
    return environment


def _class_names(no_retry: NoRetry | None) -> tuple[str, ...] | None:
    """Return the names of exceptions as a plan holds them. Raises `SubmissionError`."""
    if no_retry is None:
        return None
    if isinstance(no_retry, str | type) or not isinstance(no_retry, Iterable):
        raise SubmissionError(
            f"no_retry={shown(no_retry)}: give a tuple of classes or names, as no_retry=(KeyError,)"
        )
    return tuple(_class_name(one) for one in no_retry)


def _class_name(one: object) -> str:
    if isinstance(one, type) and issubclass(one, BaseException):
        return f"{one.__module__}.{one.__qualname__}"
    if isinstance(one, str) and one:
        return one
    raise SubmissionError(
        f"no_retry holds {shown(one)}: give classes of exceptions, or their names"
    )


def _expect(answer: MainMessage, kind: type[Any]) -> Any:
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, messages.Refusal):
        raise _ERRORS.get(answer.code, SubmissionError)(answer.message)
    raise UnderstudyError(f"unexpected answer {type(answer).__name__}")


def _failed(done: messages.JobDone, job_id: str, name: str) -> JobFailed:
    failure = done.failure
    canceled = done.status is JobStatus.CANCELED
    kind = JobCanceled if canceled else JobFailed
    message = f"job {name!r} failed in attempt {done.attempt}"
    if canceled:
        message = f"job {name!r} was cancelled in attempt {done.attempt}"
    if failure:
        message += f": {failure.type}" + (f": {failure.message}" if failure.message else "")
    return kind(
        message,
        job_id,
        name,
        failure.type if failure else "",
        failure.traceback if failure else "",
        done.checkpoint or None,
        done.savepoint or None,
    )


_ERRORS: dict[str, type[UnderstudyError]] = {
    error.code: error
    for error in (
        errors.JobNameError,
        errors.PlanError,
        errors.NotFoundError,
        errors.ResultUnavailable,
        errors.SubmissionError,
    )
}
