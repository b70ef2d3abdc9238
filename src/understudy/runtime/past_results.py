"""Results of jobs that had finished before ``main`` reached them, read ahead.

After a takeover ``main`` comes by all of them, one by one, in the order in which it has submitted
them: so several are read at once, and the next ones are there when they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import dropwhile, islice

from understudy.errors import DataError, StorageError
from understudy.ha.result_store import ResultStore, outcomes
from understudy.model import JobEntry, JobId, JobStatus, Outcome

AHEAD = 32
"""Results read at once: at most 8 MB with the default limit of a value."""


class PastResults:
    """The outcomes of finished jobs; `find` is told by one caller at a time."""

    def __init__(self, results: ResultStore, entries: Mapping[JobId, JobEntry]) -> None:
        self._results = results
        self._entries = entries
        self._ahead: dict[JobId, Outcome] = {}

    async def find(self, job_id: JobId) -> Outcome | None:
        """Return a finished job's outcome; None where it has none, or it cannot be read."""
        result = self._entries[job_id].result
        if result is None or result.status is not JobStatus.FINISHED:
            return None
        if job_id not in self._ahead:
            await self._read(job_id)
        return self._ahead.pop(job_id, None)

    async def _read(self, first: JobId) -> None:
        """Read the results from this job on; what was read before and not asked for is dropped."""
        wanted = [
            (entry.job_id, entry.result.source)
            for entry in islice(
                dropwhile(lambda one: one.job_id != first, self._entries.values()), AHEAD
            )
            if entry.result and entry.result.status is JobStatus.FINISHED
        ]
        self._ahead.clear()
        try:
            found = await self._results.read_all(wanted)
        except (OSError, TimeoutError, StorageError, DataError):
            return  # Whoever awaits the job reads it again, and is told.
        for (job_id, source), data in zip(wanted, found, strict=True):
            if data is None:
                continue
            try:
                self._ahead[job_id] = outcomes.load(data, source.path)
            except DataError:
                continue
