"""News of failed attempts: one event, and the traceback in the application's log.

A failure that is told here is stored already. So nothing waits for the news, and a leader that dies
before it has told loses no failure: `understudy info` reads what is stored.
"""

from __future__ import annotations

from understudy.config.secrets import masked
from understudy.core.failing import Failed
from understudy.jobmanager.failure_history import bounded
from understudy.model import Failure, JobId
from understudy.process.reporter import LOG_ONLY, Reporter, printable, printable_lines


def report(
    reporter: Reporter, log: str, job_id: JobId, name: str, end: Failed, failure: Failure
) -> None:
    """Report a failed attempt to programs and people, and write it to the log named ``log``."""
    short = bounded(failure)
    kind, message, traceback = masked(short.type), masked(short.message), masked(short.traceback)
    reporter.event(
        "attempt-failed",
        job_id=job_id,
        name=name,
        attempt=end.attempt,
        failure={"type": kind, "message": message, "traceback": traceback},
        retry=end.retry,
        retries=end.retries,
        delay_s=None if end.delay_s is None else round(end.delay_s, 3),
        reason=end.reason,
    )
    text = f"attempt {end.attempt} failed: {traceback or f'{kind}: {message}'}"
    reporter.line(log, printable(name), LOG_ONLY + printable_lines(text.rstrip()))
