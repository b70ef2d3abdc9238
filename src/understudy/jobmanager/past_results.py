"""Results of jobs that had finished before ``main`` reached them.

After a takeover, ``main`` reaches all these jobs one by one, in the order of their submission: so
several results are read at once, and sent to ``main`` before it asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from itertools import dropwhile, islice

from understudy.errors import DataError, StorageError
from understudy.ha.result_store import ResultStore, outcomes
from understudy.model import JobEntry, JobId, JobStatus, Outcome

AHEAD = 64
"""Results sent at once: at most 16 MB with the default limit of a value."""


class PastResults:
    """The outcomes of finished jobs."""

    def __init__(self, results: ResultStore, entries: Mapping[JobId, JobEntry]) -> None:
        self._results = results
        self._entries = entries

    async def read(self, first: JobId) -> dict[JobId, Outcome]:
        """Return the outcomes of a job and of the jobs after it.

        Only readable outcomes of FINISHED jobs; empty if the first job has none.
        """
        result = self._entries[first].result
        if result is None or result.status is not JobStatus.FINISHED:
            return {}
        wanted = [
            (entry.job_id, entry.result.source)
            for entry in islice(
                dropwhile(lambda one: one.job_id != first, self._entries.values()), AHEAD
            )
            if entry.result and entry.result.status is JobStatus.FINISHED
        ]
        try:
            found = await self._results.read_all(wanted)
        except (OSError, TimeoutError, StorageError, DataError):
            return {}  # Awaiting the job reads its result again, and raises the error.
        past = {}
        for (job_id, source), data in zip(wanted, found, strict=True):
            with contextlib.suppress(DataError):
                if data is not None:
                    past[job_id] = outcomes.load(data, source.path)
        return past if first in past else {}
