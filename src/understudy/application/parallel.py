"""Parallel jobs: a block waits for all its jobs, and a failure of one cancels the others."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from understudy.application.calls import Submitter
from understudy.application.job_client import JobClient, JobExecutionResult
from understudy.application.settings import JobSettings, NoRetry, job_settings
from understudy.errors import JobFailed, JobStopped, SubmissionError, UnderstudyError
from understudy.model import JobStatus

if TYPE_CHECKING:
    from understudy.driver.context import JobContext

P = ParamSpec("P")
R = TypeVar("R")


class ParallelJobs:
    """The jobs of one ``with env.parallel() as jobs`` block; see `Environment.parallel`."""

    def __init__(self, begin: Submitter) -> None:
        self._begin = begin
        self._clients: list[JobClient[Any]] = []
        self._turn = threading.Condition()
        self._open = False
        self._submitting = 0
        """Threads inside `submit`: their jobs belong to the block, too."""

    def submit(
        self,
        function: Callable[Concatenate[JobContext, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> JobClient[R]:
        """Submit a job and return at once; each argument is the function's.

        Raises `SubmissionError` where the job is refused, or the block has ended.
        """
        with self._submission():
            return self._added(self._begin(function, args, kwargs, JobSettings()))

    def options(
        self,
        *,
        name: str | None = None,
        retries: int | None = None,
        no_retry: NoRetry | None = None,
        timeout: str | None = None,
    ) -> ParallelOptions:
        """Return what submits jobs of this block with these options; see `Environment.options`."""
        return ParallelOptions(self, job_settings(name, no_retry, retries, timeout))

    def results(self) -> list[JobExecutionResult[Any]]:
        """Return the results of all jobs in the order of their submission; waits for them.

        Raises as `JobClient.result` does.
        """
        with self._turn:
            clients = list(self._clients)
        return [client.result() for client in clients]

    def __enter__(self) -> ParallelJobs:
        """Begin the block."""
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for all jobs; raise the first failure, after the other jobs are cancelled."""
        if error is None:
            clients = self._closed()
            _wait(clients)
            _raise_failure(clients)
        elif isinstance(error, Exception) and not isinstance(error, JobStopped):
            clients = self._closed()
            _cancel(clients)
            with contextlib.suppress(UnderstudyError):  # The error of the block counts.
                _wait(clients, cancelled=True)
        # A signal, or sys.exit, ends this execution of main: that is no reason to end its jobs.
        self._open = False

    def _closed(self) -> list[JobClient[Any]]:
        """Refuse further jobs; return all jobs of the block once no thread is inside `submit`."""
        with self._turn:
            self._open = False
            self._turn.wait_for(lambda: not self._submitting)
            return list(self._clients)

    @contextlib.contextmanager
    def _submission(self) -> Iterator[None]:
        """Let a thread submit while the block is open; the end of the block waits for it."""
        with self._turn:
            if not self._open:
                raise SubmissionError(
                    "jobs.submit works within its block only: with env.parallel() as jobs: …"
                )
            self._submitting += 1
        try:
            yield
        finally:
            with self._turn:
                self._submitting -= 1
                self._turn.notify_all()

    def _added(self, client: JobClient[R]) -> JobClient[R]:
        with self._turn:
            self._clients.append(client)
        return client


class ParallelOptions:
    """Submits jobs of a parallel block with given options; see `ParallelJobs.options`."""

    def __init__(self, jobs: ParallelJobs, settings: JobSettings) -> None:
        self._jobs = jobs
        self._settings = settings

    def submit(
        self,
        function: Callable[Concatenate[JobContext, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> JobClient[R]:
        """Submit a job and return at once; see `ParallelJobs.submit`."""
        jobs = self._jobs
        with jobs._submission():
            return jobs._added(jobs._begin(function, args, kwargs, self._settings))


def _wait(clients: list[JobClient[Any]], *, cancelled: bool = False) -> None:
    """Return once all jobs have ended; cancel the others as soon as one has failed.

    ``cancelled``: they are cancelled already. Raises the error of a job whose end is unknown.

    A thread for each job, as `main` awaits one job by one request.
    """
    ends: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def follow(client: JobClient[Any]) -> None:
        try:
            finished = client._ended().status is JobStatus.FINISHED
            ends.put(None if finished else client._failure())
        except Exception as error:
            ends.put(error)

    for client in clients:
        threading.Thread(
            target=follow, args=(client,), name=f"understudy-await-{client.name}", daemon=True
        ).start()
    unknown: Exception | None = None
    for _ in clients:
        error = ends.get()
        if error and not isinstance(error, JobFailed):
            unknown = unknown or error  # Nobody can say how the job ended.
        if error and not cancelled:
            cancelled = True
            _cancel(clients)
    if unknown:
        raise unknown


def _cancel(clients: list[JobClient[Any]]) -> None:
    """Cancel all jobs that can be cancelled; one that has ended stays as it is."""
    for client in clients:
        with contextlib.suppress(UnderstudyError):
            client.cancel()


def _raise_failure(clients: list[JobClient[Any]]) -> None:
    """Raise the first failure, if any.

    The recorded ends decide which one is the first, not the order in which they are heard of: a
    later execution of ``main`` raises the same one. What was cancelled comes after what failed.
    """
    failures: list[tuple[bool, float, JobFailed]] = []
    for client in clients:
        end = client._ended()
        if end.status is not JobStatus.FINISHED:
            canceled = end.status is JobStatus.CANCELED
            failures.append((canceled, end.end_time, client._failure()))
    if not failures:
        return
    _, _, first = min(failures, key=lambda one: one[:2])
    for canceled, _, other in failures:
        if other is not first and not canceled:
            first.add_note(f"job {other.job_name!r} has failed, too: {other.args[0]}")
    raise first
