"""Results of jobs that had finished before ``main`` reached them.

After a takeover ``main`` comes by all of them, one by one, in the order in which it has submitted
them: so several are read at once, and told to ``main`` before it asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from itertools import dropwhile, islice

from understudy.errors import DataError, StorageError
from understudy.ha.result_store import ResultStore, outcomes
from understudy.model import JobEntry, JobId, JobStatus, Outcome

AHEAD = 64
"""Results told at once: at most 16 MB with the default limit of a value."""


class PastResults:
    """The outcomes of finished jobs."""

    def __init__(self, results: ResultStore, entries: Mapping[JobId, JobEntry]) -> None:
        self._results = results
        self._entries = entries

    async def read(self, first: JobId) -> dict[JobId, Outcome]:
        """Return how a job and those after it ended.

        Only what has FINISHED and can be read; nothing if the first one has not, or cannot.
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
            return {}  # Whoever awaits the job reads it again, and is told.
        past = {}
        for (job_id, source), data in zip(wanted, found, strict=True):
            with contextlib.suppress(DataError):
                if data is not None:
                    past[job_id] = outcomes.load(data, source.path)
        return past if first in past else {}
