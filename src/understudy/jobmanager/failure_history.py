"""The failures of a job's last attempts, kept through failovers and after the job's cleanup.

An attempt whose function raised has staged the failure itself. Only the leader knows why an attempt
was lost, so the leader writes that failure beside; no decision waits for it or depends on it. The
job's cleanup collects all failures in one file, which is removed with the application.

A failure is reported (one event, and the traceback in the application's log) after it is stored: a
leader that dies before its report loses no failure, as `understudy info` reads what is stored.
"""

from __future__ import annotations

import contextlib

from msgspec.structs import replace

from understudy.config.secrets import masked
from understudy.core.failing import NEVER, Failed
from understudy.errors import DataError, JobTimedOut, NotFoundError
from understudy.ha import layout
from understudy.ha.format import Format
from understudy.ha.result_store import outcomes
from understudy.ha.storage import Storage
from understudy.model import Failure, JobEntry, JobId, JobStatus, Record
from understudy.process.reporter import LOG_ONLY, Reporter, printable, printable_lines

FROM_THE_TOP = "it starts again from the top, and what it appended before stands twice"
"""What follows where nothing is kept between the attempts of a job."""

ONCE = "not restarted: another attempt would repeat what this one has written"
"""Why an exception ends such a job."""

HISTORY_MAX = 16
"""Flink's default of ``web.exception-history-size``."""

MESSAGE_CHARS_MAX = 2_000
TRACEBACK_CHARS_MAX = 8_000
"""Kept size of an earlier failure, beginning and end of the text: the last failure is complete, in
the job's result."""

LOST = "AttemptLost"
TIMED_OUT = f"{JobTimedOut.__module__}.{JobTimedOut.__qualname__}"


class Collected(Record, frozen=True):
    """The failures of an ended job's attempts, oldest first."""

    failures: tuple[Failure, ...]


_collections: Format[Collected] = Format("failures", Collected)
_losses: Format[Failure] = Format("failure", Failure)


class FailureHistory:
    """The failures of the jobs of one application."""

    def __init__(self, storage: Storage, cluster: str, directory: str, size: int = HISTORY_MAX):
        self._storage = storage
        self._cluster = cluster
        self._directory = directory
        self._size = size

    async def keep(self, job_id: JobId, failure: Failure) -> None:
        """Store why an attempt was lost, and delete the failure that is too old."""
        data = _losses.dump(failure, pretty=True)
        await self._storage.publish(self._lost_path(job_id, failure.attempt), data)
        if (old := failure.attempt - self._size) > 0:
            await self._storage.delete(self._lost_path(job_id, old))

    async def collect(self, entry: JobEntry) -> None:
        """Write the failures of an ended job into one file; may be repeated."""
        assert entry.result is not None
        if found := await self.read(entry, entry.result.status):
            data = _collections.dump(Collected(failures=tuple(found)), pretty=True)
            await self._storage.publish(self.collected_path(entry.job_id), data)

    def collected_path(self, job_id: JobId) -> str:
        """Return the path of an ended job's collected failures."""
        return layout.failures_path(self._cluster, self._directory, job_id)

    async def collected(self, job_id: JobId) -> list[Failure]:
        """Return the collected failures of an ended job; empty where they cannot be read."""
        path = self.collected_path(job_id)
        with contextlib.suppress(NotFoundError, DataError):
            return [*_collections.load(await self._storage.read(path), path).failures]
        return []

    async def read(self, entry: JobEntry, status: JobStatus) -> list[Failure]:
        """Return the failures of a job's attempts, oldest first.

        The last attempt counts if it has staged a failure. Raises ``OSError`` or ``TimeoutError``;
        damaged failures are left out.
        """
        if entry.result and (collected := await self.collected(entry.job_id)):
            return collected
        last = entry.attempt
        if status in {JobStatus.CANCELING, JobStatus.CANCELED}:
            last -= 1  # An exception of an interrupted attempt is no failure.
        found = []
        for attempt in range(max(1, last - self._size + 1), last + 1):
            if failure := await self.of(entry.job_id, attempt):
                found.append(bounded(replace(failure, attempt=attempt)))
        return found

    async def of(self, job_id: JobId, attempt: int) -> Failure | None:
        """Return why an attempt failed; None where that is not stored, or damaged."""
        path = layout.staged_path(self._cluster, self._directory, job_id, attempt)
        with contextlib.suppress(NotFoundError, DataError):
            outcome = outcomes.load(await self._storage.read(path), path)
            if outcome.job_id == job_id:
                return outcome.failure
        path = self._lost_path(job_id, attempt)
        with contextlib.suppress(NotFoundError, DataError):
            return _losses.load(await self._storage.read(path), path)
        return None

    def _lost_path(self, job_id: JobId, attempt: int) -> str:
        return layout.lost_path(self._cluster, self._directory, job_id, attempt)


def merged(earlier: list[Failure], last: Failure | None, attempt: int, size: int) -> list[Failure]:
    """Return a job's failures, oldest first, one an attempt: ``last`` replaces its attempt's."""
    found = {one.attempt: one for one in earlier}
    if last:
        found[attempt] = replace(last, attempt=attempt)
    return [found[number] for number in sorted(found)][-size:]


def bounded(failure: Failure) -> Failure:
    """Return the failure, its texts cut to the kept size."""
    return replace(
        failure,
        message=_cut(failure.message, MESSAGE_CHARS_MAX),
        traceback=_cut(failure.traceback, TRACEBACK_CHARS_MAX),
    )


def _cut(text: str, most: int) -> str:
    left_out = len(text) - most
    if left_out <= 0:
        return text
    half = most // 2
    return f"{text[:half]}\n… {left_out:,} characters are left out …\n{text[-half:]}"


def report_failure(
    reporter: Reporter, log: str, job: JobEntry, end: Failed, failure: Failure
) -> None:
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
