"""The desk that answers ``main``'s requests: submit, await, ask for a status, cancel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from understudy.core import matching
from understudy.core.matching import Assignment
from understudy.errors import (
    InvalidValueError,
    NotFoundError,
    ResultUnavailable,
    SubmissionError,
    TooLargeError,
)
from understudy.model import JobId, JobStatus, Outcome
from understudy.rpc import messages
from understudy.rpc.gateway import Link
from understudy.rpc.messages import MainMessage, Submit


class Jobs(Protocol):
    """The operations of an application that the desk needs."""

    async def submit(self, request: Submit) -> bool:
        """Accept a job, durably; False for a new job without a plan.

        Raises `SubmissionError` for a job that the application may not have, and `DataError` where
        the stored jobs are damaged or gone.
        """
        ...

    async def past(self, job_id: JobId) -> dict[JobId, Outcome]:
        """Return the outcomes of a FINISHED job and its FINISHED successors; else none."""
        ...

    def come_by(self, job_id: JobId) -> None:
        """Record that ``main`` has reached a job among the `past` ones."""
        ...

    async def outcome(self, job_id: JobId) -> Outcome:
        """Wait for a job's end and return its outcome.

        Raises `NotFoundError` for an unknown job, `ResultUnavailable` where the job's result is
        gone or cannot be read.
        """
        ...

    def job_status(self, job_id: JobId) -> JobStatus:
        """Return a job's status; raises `NotFoundError`."""
        ...

    async def cancel_job(self, job_id: JobId) -> None:
        """Cancel a job, durably; raises `NotFoundError`, or `DataError` as `submit` does."""
        ...

    def kept(self, job_id: JobId) -> tuple[str, str]:
        """Return the paths of a job's retained checkpoint and last savepoint; empty without one."""
        ...

    def arguments(self, job_id: JobId) -> dict[str, str]:
        """Return the digests of a job's arguments; empty if this deployment has not stored them."""
        ...

    def result_delivered(self, job_id: JobId) -> None:
        """``main`` has received the job's outcome."""
        ...


Record = Callable[[str, str], Awaitable[str]]
"""Records a value under a name, unless one is recorded, and returns the recorded one; an empty
value only asks. Raises `InvalidValueError` where there is no room."""


class MainDesk:
    """Answers one execution of ``main``, until its process is gone."""

    def __init__(
        self,
        link: Link[MainMessage],
        jobs: Jobs,
        assignment: Assignment,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        record: Record,
    ) -> None:
        self._link = link
        self._jobs = jobs
        self._assignment = assignment
        self._spawn = spawn
        self._record = record
        self._gone = False

    async def serve(self) -> messages.MainEnded | None:
        """Answer requests; return ``main``'s last message, None if its process died without one.

        Raises `DataError` where the stored application is damaged or gone.
        """
        ended: messages.MainEnded | None = None
        while (envelope := await self._link.receive()) is not None:
            match envelope.message:
                case messages.MainEnded() as final:
                    ended = final
                case Submit() as request:
                    # In order of arrival: the assignment of ids depends on the order.
                    await self._guard(request.request, self._submit(request))
                case messages.ComeBy() as skipped:
                    await self._guard(0, self._come_by(skipped))
                case messages.AwaitJob() as wish:
                    self._spawn(self._guard(wish.request, self._await_job(wish)))
                case messages.AskStatus() as question:
                    await self._guard(question.request, self._answer_status(question))
                case messages.CancelJob() as wish:
                    self._spawn(self._guard(wish.request, self._cancel(wish)))
                case messages.Once() as wish:
                    await self._guard(wish.request, self._once(wish))
        self._gone = True
        return ended

    async def _guard(self, request: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (
            NotFoundError,
            ResultUnavailable,
            SubmissionError,
            InvalidValueError,
            TooLargeError,
        ) as error:
            # Damage is not reported to ``main``: the application waits for a person's repair.
            code = "result-unavailable" if isinstance(error, TooLargeError) else error.code
            self._link.send(messages.Refusal(request=request, code=code, message=str(error)))

    async def _submit(self, request: Submit) -> None:
        assignment = matching.admitted(
            self._assignment, request.job_id, request.name, request.occurrence
        )
        if await self._jobs.submit(request):
            self._assignment = assignment
            outcomes = await self._jobs.past(request.job_id)
            past = {
                job_id: _done(request.request, one, self._jobs.kept(job_id))
                for job_id, one in outcomes.items()
            }
            arguments = {
                job_id: found
                for job_id in (request.job_id, *past)
                if (found := self._jobs.arguments(job_id))
            }
            self._link.send(
                messages.Accepted(request=request.request, past=past, arguments=arguments)
            )
        else:
            self._link.send(messages.NeedPlan(request=request.request))

    async def _come_by(self, skipped: messages.ComeBy) -> None:
        self._assignment = matching.admitted(
            self._assignment, skipped.job_id, skipped.name, skipped.occurrence
        )
        self._jobs.come_by(skipped.job_id)

    async def _await_job(self, wish: messages.AwaitJob) -> None:
        outcome = await self._jobs.outcome(wish.job_id)
        if self._gone:
            return  # The outcome was not delivered: the next execution of main may await it.
        self._jobs.result_delivered(wish.job_id)
        self._link.send(_done(wish.request, outcome, self._jobs.kept(wish.job_id)))

    async def _answer_status(self, question: messages.AskStatus) -> None:
        status = self._jobs.job_status(question.job_id)
        self._link.send(messages.StatusIs(request=question.request, status=status))

    async def _cancel(self, wish: messages.CancelJob) -> None:
        await self._jobs.cancel_job(wish.job_id)
        self._link.send(messages.Accepted(request=wish.request))

    async def _once(self, wish: messages.Once) -> None:
        value = await self._record(wish.name, wish.value)
        self._link.send(messages.OnceIs(request=wish.request, value=value))


def _done(request: int, outcome: Outcome, kept: tuple[str, str]) -> messages.JobDone:
    checkpoint, savepoint = kept
    return messages.JobDone(
        request=request,
        status=outcome.status,
        attempt=outcome.attempt,
        start_time=outcome.start_time,
        end_time=outcome.end_time,
        value=bytes(outcome.value),
        failure=outcome.failure,
        checkpoint=checkpoint,
        savepoint=savepoint,
        stopped=outcome.stopped,
    )
