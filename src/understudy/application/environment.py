"""The environment of ``main``, through which it submits jobs.

The same class serves in a cluster and under plain ``python app.py``; only the link differs. All
calls block the calling thread, and any thread may call. Functions, arguments and values pass
through the same pickling and JSON everywhere, so code that works in one mode works in the other.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

from understudy.application.calls import Calls
from understudy.application.job_client import JobClient, MainLink, expect
from understudy.application.job_function import bind_arguments, check_function, declared, warn
from understudy.application.parallel import ParallelJobs
from understudy.application.settings import JobSettings, whole_job
from understudy.clock import SystemClock
from understudy.core import arguments, matching
from understudy.core.matching import Assigned, Assignment
from understudy.core.values import ONCE_BYTES_MAX, decode_value, encode_value
from understudy.errors import SubmissionError
from understudy.model import JobId, Limits, Pointer
from understudy.process import plans
from understudy.process.user_code import is_main_process, running_job
from understudy.rpc import messages
from understudy.rpc.messages import MainMessage

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Environment(Calls):
    """The environment in which ``main`` submits jobs; see `understudy.get_environment`."""

    def __init__(self, link: MainLink, assignment: Assignment) -> None:
        self._link = link
        self._assignment = assignment
        self._submitting = threading.Lock()
        self._process = os.getpid()
        self._past: dict[JobId, messages.JobDone] = {}
        self._stored: dict[JobId, dict[str, str]] = {}
        """Digests of the arguments that jobs have."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("the environment belongs to main, a job gets a JobContext instead")

    def parallel(self) -> ParallelJobs:
        """Return a block of jobs that run at the same time.

        ::

            with env.parallel() as jobs:
                jobs.submit(load, "x.csv")
                jobs.options(name="load y", retries=1).submit(load, "y.csv")
            for result in jobs.results(): ...

        The end of the block waits for all its jobs. The first failure (`JobFailed` or
        `JobCanceled`) cancels the others, and is raised once they have ended. So does an exception
        of the block itself.
        """
        return ParallelJobs(self._begin)

    def once(self, name: str, function: Callable[[], T], /) -> T:
        """Return a value that ``main`` computes once for the whole run.

        For what differs between two executions of ``main``: the time, a random number, a listing.
        The first execution calls ``function()`` and records the value durably. Each later call
        with this name returns the recorded value, in this and every other execution of ``main``,
        after failovers and restarts of the run. If ``main`` dies before the value is recorded, the
        function is called again; nobody has seen the first value then. The value may have the types
        of `Environment.execute`; all values of a run together take at most 64 KiB of JSON.

        Raises `InvalidValueError` for a value that cannot be recorded, `JobNameError` for the name,
        and `SubmissionError` outside ``main``.
        """
        self._check_caller()
        matching.check_name(name)
        recorded = self._record(name, "")
        if not recorded:
            value = bytes(encode_value(function(), ONCE_BYTES_MAX)).decode()
            recorded = self._record(name, value)
        found: T = decode_value(recorded.encode())
        return found

    def now(self) -> datetime:
        """Return when this run called `now` first, in UTC: the same in each execution of ``main``.

        Each call in a run returns the same time. For a second time, use `once` with another name.
        """
        return self.once("env.now()", lambda: datetime.fromtimestamp(SystemClock().wall(), UTC))

    def _record(self, name: str, value: str) -> str:
        answer = self._link.request(
            lambda number: messages.Once(request=number, name=name, value=value)
        )
        return expect(answer, messages.OnceIs).value

    def begin_whole(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        name: str,
    ) -> JobClient[Any]:
        """Submit a job that keeps nothing: see `understudy.run`, which is the way to call it."""
        return self._begin(function, args, kwargs, whole_job(name))

    def _begin(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        settings: JobSettings,
    ) -> JobClient[Any]:
        """Submit a job."""
        self._check_caller()
        settings = settings.over(declared(function))
        check_function(function)
        digests = arguments.digests(bind_arguments(function, args, kwargs))
        with self._submitting:
            assigned = self._assign(matching.name_of(function, settings.name))
            done = self._past.pop(assigned.job_id, None)
            if done:
                self._come_by(assigned)
                self._compare(assigned, digests)
                return JobClient(self._link, assigned.job_id, assigned.name, done)
            pointer = None
            if self._link.execution == 1:
                pointer = self._put_plan(assigned, function, args, kwargs, settings)
            answer = self._submit(assigned, pointer, settings.limits, digests)
            if isinstance(answer, messages.NeedPlan):
                pointer = self._put_plan(assigned, function, args, kwargs, settings)
                answer = self._submit(assigned, pointer, settings.limits, digests)
            accepted = expect(answer, messages.Accepted)
            self._past, self._stored = dict(accepted.past), accepted.arguments
            done = self._past.pop(assigned.job_id, None)
            self._compare(assigned, digests)
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
            warn(
                f"two jobs are named {name!r}: after a failover they are told apart by the order "
                "of their submission only; give them different names",
            )
        return assigned

    def _compare(self, assigned: Assigned, digests: dict[str, str]) -> None:
        """Warn of arguments that differ from those that the job has, and keeps."""
        stored = self._stored.get(assigned.job_id, {})
        if found := arguments.different(stored, digests):
            warn(
                f"job {assigned.name!r}: this execution of main passes another value of "
                f"{', '.join(f'`{one}`' for one in found)} than an earlier one did, which the job "
                "keeps; main must pass the same values each time: get the time, random numbers and "
                "the like from env.once or env.now (docs/convert.md)",
            )

    def _put_plan(
        self,
        assigned: Assigned,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        settings: JobSettings,
    ) -> Pointer:
        plan = plans.encode_plan(assigned.name, function, args, kwargs, settings.no_retry)
        return self._link.put_plan(assigned.job_id, plan)

    def _come_by(self, assigned: Assigned) -> None:
        """Report the call of a job whose result is known already, without waiting for an answer."""
        skipped = messages.ComeBy(
            job_id=assigned.job_id, name=assigned.name, occurrence=assigned.occurrence
        )
        self._link.send(skipped)

    def _submit(
        self, assigned: Assigned, plan: Pointer | None, limits: Limits, digests: dict[str, str]
    ) -> MainMessage:
        return self._link.request(
            lambda number: messages.Submit(
                request=number,
                job_id=assigned.job_id,
                name=assigned.name,
                occurrence=assigned.occurrence,
                plan=plan,
                limits=limits,
                arguments=digests,
            )
        )


class Elsewhere(Environment):
    """The environment of a process that is not ``main`` but imports modules that need one."""

    def __init__(self) -> None:
        """Create an environment without a link, as nothing can be submitted."""

    def _begin(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        settings: JobSettings,
    ) -> JobClient[Any]:
        """Raise `SubmissionError`."""
        self._check_caller()
        raise AssertionError

    def _check_caller(self) -> None:
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
