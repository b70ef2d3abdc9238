"""News of failed attempts: one event, and the traceback in the application's log.

A failure that is told here is stored already. So nothing waits for the news, and a leader that dies
before it has told loses no failure: `understudy info` reads what is stored.
"""

from __future__ import annotations

from understudy.config.secrets import masked
from understudy.core.failing import NEVER, Failed
from understudy.jobmanager.failure_history import bounded
from understudy.model import Failure, JobEntry
from understudy.process.reporter import LOG_ONLY, Reporter, printable, printable_lines

FROM_THE_TOP = "it starts again from the top, and what it appended before stands twice"
"""What follows where nothing is kept between the attempts of a job."""

ONCE = "not restarted: another attempt would repeat what this one has written"
"""Why an exception ends such a job."""


def report(reporter: Reporter, log: str, job: JobEntry, end: Failed, failure: Failure) -> None:
    """Report a failed attempt to programs and people, and write it to the log named ``log``."""
    short = bounded(failure)
    kind, message, traceback = masked(short.type), masked(short.message), masked(short.traceback)
    consequence = FROM_THE_TOP if job.limits.whole and not end.reason else ""
    reporter.event(
        "attempt-failed",
        job_id=job.job_id,
        name=job.name,
        attempt=end.attempt,
        failure={"type": kind, "message": message, "traceback": traceback},
        retry=end.retry,
        retries=end.retries,
        delay_s=None if end.delay_s is None else round(end.delay_s, 3),
        reason=ONCE if job.limits.whole and end.reason == NEVER else end.reason,
        consequence=consequence,
    )
    text = f"attempt {end.attempt} failed: {traceback or f'{kind}: {message}'}".rstrip()
    if consequence:
        text += f"\n{consequence}"
    reporter.line(log, printable(job.name), LOG_ONLY + printable_lines(text))
