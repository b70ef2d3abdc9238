"""A block of parallel jobs: it waits for all, and the first failure ends the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from understudy.application.environment import Environment
from understudy.application.parallel import ParallelJobs
from understudy.core.matching import Assignment
from understudy.errors import (
    JobCanceled,
    JobFailed,
    JobStopped,
    ResultUnavailable,
    SubmissionError,
)
from understudy.model import Failure, JobId, JobStatus, Limits, Pointer
from understudy.rpc import messages
from understudy.rpc.messages import MainMessage

END_S = 30.0
"""Longest wait for the end of a job, which a test decides."""


class Jobs:
    """A link whose jobs end when a test, or a cancellation, ends them; see `MainLink`."""

    execution = 1

    def __init__(self) -> None:
        self.submitted: dict[str, messages.Submit] = {}
        self.cancelled: list[str] = []
        self.gone: set[str] = set()
        self._ends: dict[str, messages.JobDone] = {}
        self._changed = threading.Condition()

    def request(self, message: Callable[[int], MainMessage]) -> MainMessage:
        """See `MainLink.request`."""
        asked = message(1)
        match asked:
            case messages.Submit():
                self.submitted[asked.job_id] = asked
            case messages.CancelJob():
                self.cancelled.append(self.submitted[asked.job_id].name)
                self.end(self.submitted[asked.job_id].name, JobStatus.CANCELED, 9.0)
            case messages.AwaitJob():
                name = self.submitted[asked.job_id].name
                if name in self.gone:
                    return messages.Refusal(request=1, code="result-unavailable", message=name)
                with self._changed:
                    assert self._changed.wait_for(lambda: name in self._ends, END_S)
                    return self._ends[name]
        return messages.Accepted(request=1)

    def end(self, name: str, status: JobStatus, at: float = 1.0) -> None:
        """End a job, unless it has ended."""
        failure = Failure(type="ValueError", message=f"{name} is bad")
        done = messages.JobDone(
            request=1,
            status=status,
            attempt=1,
            start_time=0.0,
            end_time=at,
            value=f'"{name}"'.encode(),
            failure=failure if status is JobStatus.FAILED else None,
        )
        with self._changed:
            self._ends.setdefault(name, done)
            self._changed.notify_all()

    def send(self, message: MainMessage) -> None:
        """See `MainLink.send`."""

    def put_plan(self, job_id: JobId, plan: bytes) -> Pointer:
        """See `MainLink.put_plan`."""
        return Pointer(path="plan", digest="", size=len(plan))


class Slow(Jobs):
    """A link on which a submission lasts until the test lets it go on."""

    begun: threading.Event
    go_on: threading.Event

    def put_plan(self, job_id: JobId, plan: bytes) -> Pointer:
        """See `MainLink.put_plan`."""
        self.begun.set()
        assert self.go_on.wait(END_S)
        return super().put_plan(job_id, plan)


def a(ctx: Any) -> str: ...  # type: ignore[empty-body]
def b(ctx: Any) -> str: ...  # type: ignore[empty-body]
def c(ctx: Any) -> str: ...  # type: ignore[empty-body]


def block(link: Jobs) -> ParallelJobs:
    return Environment(link, Assignment("a" * 32)).parallel()


def run(link: Jobs) -> ParallelJobs:
    """Run the three jobs in one block, to its end."""
    with block(link) as jobs:
        for function in (a, b, c):
            jobs.submit(function)
    return jobs


def interrupted(jobs: ParallelJobs, error: BaseException) -> None:
    """Run a block that raises an error of its own."""
    with jobs:
        jobs.submit(a)
        jobs.submit(b)
        raise error


def test_the_end_of_a_block_waits_for_all_its_jobs() -> None:
    link = Jobs()
    for name in ("c", "b", "a"):
        link.end(name, JobStatus.FINISHED)
    jobs = run(link)

    assert ["a", "b", "c"] == [result.value for result in jobs.results()]
    assert [] == link.cancelled


def test_the_first_failure_cancels_the_others_and_is_raised() -> None:
    link = Jobs()
    link.end("b", JobStatus.FAILED)
    with pytest.raises(JobFailed, match="job 'b' failed in attempt 1: ValueError: b is bad"):
        run(link)

    assert {"a", "c"} <= set(link.cancelled)


def test_the_recorded_ends_say_which_failure_was_the_first() -> None:
    """So that main, executed again, takes the same path."""
    link = Jobs()
    link.end("a", JobStatus.CANCELED, 1.0)
    link.end("b", JobStatus.FAILED, 3.0)
    link.end("c", JobStatus.FAILED, 2.0)
    with pytest.raises(JobFailed) as caught:
        run(link)

    assert "c" == caught.value.job_name
    assert [
        "job 'b' has failed, too: job 'b' failed in attempt 1: ValueError: b is bad"
    ] == caught.value.__notes__


def test_a_job_that_somebody_cancelled_ends_the_block() -> None:
    link = Jobs()
    link.end("b", JobStatus.CANCELED, 0.5)
    with pytest.raises(JobCanceled) as caught:
        run(link)

    assert "b" == caught.value.job_name


def test_a_job_whose_result_is_gone_ends_the_block() -> None:
    link = Jobs()
    link.gone.add("b")
    with pytest.raises(ResultUnavailable):
        run(link)

    assert {"a", "c"} <= set(link.cancelled)


def test_an_error_of_the_block_cancels_its_jobs() -> None:
    link = Jobs()
    with pytest.raises(KeyError):
        interrupted(block(link), KeyError("in the block"))

    assert ["a", "b"] == link.cancelled


@pytest.mark.parametrize("end", [SystemExit(143), KeyboardInterrupt(), JobStopped("a is stopped")])
def test_what_ends_main_alone_cancels_no_job(end: BaseException) -> None:
    """After a signal, the next execution of main finds its jobs running."""
    link = Jobs()
    with pytest.raises(type(end)):
        interrupted(block(link), end)

    assert [] == link.cancelled


def test_a_job_of_a_block_may_have_options() -> None:
    link = Jobs()
    link.end("load x", JobStatus.FINISHED)
    with block(link) as jobs:
        client = jobs.options(name="load x", retries=1, timeout="1 min").submit(a)
    submit = link.submitted[client.job_id]

    assert ("load x", Limits(retries=1, timeout_s=60.0)) == (submit.name, submit.limits)
    assert "load x" == client.result().value


def test_nothing_is_submitted_after_the_end_of_a_block() -> None:
    jobs = block(Jobs())
    with jobs:
        pass
    with pytest.raises(SubmissionError, match="within its block only"):
        jobs.submit(a)


def test_the_end_of_a_block_waits_for_what_another_thread_submits() -> None:
    link, begun, go_on = Slow(), threading.Event(), threading.Event()
    link.begun, link.go_on = begun, go_on
    for name in ("a", "b"):
        link.end(name, JobStatus.FINISHED)
    jobs = block(link)

    def in_time() -> None:
        with jobs:
            thread = threading.Thread(target=jobs.submit, args=(b,), daemon=True)
            thread.start()
            assert begun.wait(END_S)

    ending = threading.Thread(target=in_time, daemon=True)
    ending.start()
    assert begun.wait(END_S)
    while jobs._open and ending.is_alive():  # Until the block ends.
        threading.Event().wait(0.001)
    with pytest.raises(SubmissionError, match="within its block only"):
        jobs.submit(a)
    assert ending.is_alive()
    go_on.set()
    ending.join(END_S)

    assert not ending.is_alive()
    assert ["b"] == [result.value for result in jobs.results()]


def test_a_submission_that_is_refused_keeps_no_block_from_its_end() -> None:
    with block(Jobs()) as jobs, pytest.raises(SubmissionError):
        jobs.options(name="x" * 10_000).submit(a)

    assert [] == jobs.results()
