"""What ``main`` holds of a job that it has submitted: a client, and in the end a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from understudy import errors
from understudy.core.values import decode_value
from understudy.errors import JobCanceled, JobFailed, JobStopped, SubmissionError, UnderstudyError
from understudy.model import JobId, JobStatus, Pointer
from understudy.rpc import messages
from understudy.rpc.messages import MainMessage

R_co = TypeVar("R_co", covariant=True)
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class JobExecutionResult(Generic[R_co]):
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

    _value: R_co
    job_id: str
    attempt: int
    start_time: float
    end_time: float
    checkpoint: str | None = None
    savepoint: str | None = None
    stopped: bool = False
    name: str = ""

    @property
    def value(self) -> R_co:
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

    def send(self, message: MainMessage) -> None:
        """Send a message without an answer."""
        ...

    def put_plan(self, job_id: JobId, plan: bytes) -> Pointer:
        """Store a plan's bytes durably."""
        ...


class JobClient(Generic[R_co]):
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
        return expect(answer, messages.StatusIs).status.value

    def result(self) -> JobExecutionResult[R_co]:
        """Wait for the job's end and return its result.

        Raises `JobFailed` with the remote traceback, `JobCanceled`, or `ResultUnavailable`.
        """
        done = self._ended()
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
        raise self._failure()

    def _ended(self) -> messages.JobDone:
        """Wait for the job's end, and return how it ended."""
        if self._done is None:
            answer = self._link.request(
                lambda number: messages.AwaitJob(request=number, job_id=self._job_id)
            )
            self._done = expect(answer, messages.JobDone)
        return self._done

    def _failure(self) -> JobFailed:
        return _failed(self._ended(), self._job_id, self._name)

    def cancel(self) -> None:
        """Cancel the job; returns once the request is durable. `result` waits for the end."""
        answer = self._link.request(
            lambda number: messages.CancelJob(request=number, job_id=self._job_id)
        )
        expect(answer, messages.Accepted)

    def __repr__(self) -> str:
        """Return a text with the job's id and name."""
        return f"JobClient(job_id={self._job_id!r}, name={self._name!r})"


def expect(answer: MainMessage, kind: type[M]) -> M:
    """Return an answer of the expected kind; raises the error that a refusal names."""
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
    error = kind(
        message,
        job_id,
        name,
        failure.type if failure else "",
        failure.traceback if failure else "",
    )
    error.checkpoint, error.savepoint = done.checkpoint or None, done.savepoint or None
    return error


_ERRORS: dict[str, type[UnderstudyError]] = {
    error.code: error
    for error in (
        errors.InvalidValueError,
        errors.JobNameError,
        errors.PlanError,
        errors.NotFoundError,
        errors.ResultUnavailable,
        errors.SubmissionError,
    )
}
